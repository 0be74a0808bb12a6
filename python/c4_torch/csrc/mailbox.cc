#include "mailbox.h"

#include <algorithm>
#include <cstring>

namespace c4_torch {
namespace {

constexpr auto kFirstLook = std::chrono::milliseconds(1);
constexpr auto kLongestLook = std::chrono::milliseconds(20);

std::vector<uint8_t> Bytes(const ncclUniqueId& id) {
  const auto* const begin = reinterpret_cast<const uint8_t*>(&id);
  return {begin, begin + sizeof id};
}

}  // namespace

Mailbox::Mailbox(Address address, c10::intrusive_ptr<c10d::Store> store, std::chrono::milliseconds timeout)
    : address_(std::move(address)), store_(std::move(store)), timeout_(timeout) {}

void Mailbox::Post(int tag, at::Tensor tensor, WorkPtr work) {
  std::string failure;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure = failure_;
    if (failure.empty()) {
      letters_.push_back({tag, std::move(tensor), work});
      if (!runs_) {
        runs_ = true;
        std::thread([self = shared_from_this()] { self->Run(); }).detach();
      }
      changed_.notify_one();
    }
  }
  if (!failure.empty()) work->Settle(work->Describe() + ": " + failure);
}

void Mailbox::Abort(const std::string& reason) {
  std::shared_ptr<Channel> channel;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.empty()) failure_ = reason;
    channel = channel_;
    cancelled_.store(true);
    changed_.notify_one();
  }
  if (channel != nullptr) channel->Abort(reason);
  FailAll(reason);
}

void Mailbox::Stop() {
  bool busy = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    busy = !letters_.empty();
    stopped_ = true;
    changed_.notify_one();
  }
  if (busy) Abort("the process group was destroyed");
}

void Mailbox::Run() {
  try {
    Open();
    while (Next()) {
    }
    std::shared_ptr<Channel> channel;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      channel = channel_;
    }
    if (channel->Failure().empty()) channel->Leave();
  } catch (const std::exception& failed) {
    Abort(failed.what());
  }
}

// The sender makes the id, so that the receiver can come first or last.
void Mailbox::Open() {
  const Deadline deadline = std::chrono::steady_clock::now() + timeout_;
  const std::string key = "c4/mail/" + std::to_string(address_.from) + ">" + std::to_string(address_.to);
  ncclUniqueId id;
  if (address_.sends) {
    id = NewId();
    store_->set(key, Bytes(id));
  } else {
    for (auto pause = kFirstLook; !store_->check({key}); pause = std::min(2 * pause, kLongestLook)) {
      if (cancelled_.load()) throw std::runtime_error("the process group was destroyed");
      if (std::chrono::steady_clock::now() > deadline) {
        throw std::runtime_error("rank " + std::to_string(address_.from) + " has sent nothing yet");
      }
      std::this_thread::sleep_for(pause);
    }
    const std::vector<uint8_t> read = store_->get(key);
    if (read.size() != sizeof id) throw std::runtime_error("the store holds no unique id at " + key);
    memcpy(&id, read.data(), sizeof id);
  }
  auto channel =
      std::make_shared<Channel>(id, address_.sends ? 0 : 1, 2, address_.name, deadline, cancelled_);
  const std::lock_guard<std::mutex> lock(mutex_);
  channel_ = std::move(channel);
}

bool Mailbox::Next() {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return stopped_ || !letters_.empty() || !failure_.empty(); });
    if (!failure_.empty()) throw std::runtime_error(failure_);
    if (letters_.empty()) return false;
  }
  return address_.sends ? SendNext() : ReceiveNext();
}

void Mailbox::Move(bool sends, void* begin, size_t bytes) {
  if (bytes == 0) return;
  const int peer = sends ? 1 : 0;
  const Event event = channel_->Submit([&](const Library& library, ncclComm_t comm, cudaStream_t stream) {
    return sends ? library.ncclSend(begin, bytes, ncclUint8, peer, comm, stream)
                 : library.ncclRecv(begin, bytes, ncclUint8, peer, comm, stream);
  });
  channel_->Await(event);
  const std::string failure = channel_->Failure();
  if (!failure.empty()) throw std::runtime_error(failure);
}

bool Mailbox::SendNext() {
  Letter letter;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    letter = letters_.front();
  }
  Header header{letter.tag, static_cast<int64_t>(letter.tensor.nbytes())};
  Move(true, &header, sizeof header);
  Move(true, letter.tensor.data_ptr(), letter.tensor.nbytes());
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!letters_.empty()) letters_.pop_front();
  }
  letter.work->Settle("");
  return true;
}

bool Mailbox::TakeMatching(int64_t tag, Letter* letter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found =
      std::find_if(letters_.begin(), letters_.end(), [tag](const Letter& other) { return other.tag == tag; });
  if (found == letters_.end()) return false;
  *letter = std::move(*found);
  letters_.erase(found);
  return true;
}

void Mailbox::Deliver(const Letter& letter, const at::Tensor& bytes) {
  if (static_cast<size_t>(bytes.numel()) != letter.tensor.nbytes()) {
    letter.work->Settle(letter.work->Describe() + ": the message has " + std::to_string(bytes.numel()) +
                        " bytes, and the tensor " + std::to_string(letter.tensor.nbytes()));
    return;
  }
  if (bytes.numel() > 0) memcpy(letter.tensor.data_ptr(), bytes.data_ptr(), letter.tensor.nbytes());
  letter.work->Settle("");
}

bool Mailbox::ReceiveNext() {
  for (auto it = unexpected_.begin(); it != unexpected_.end(); ++it) {
    Letter letter;
    if (!TakeMatching(it->first, &letter)) continue;
    Deliver(letter, it->second);
    unexpected_.erase(it);
    return true;
  }
  Header header{};
  Move(false, &header, sizeof header);
  Letter letter;
  if (TakeMatching(header.tag, &letter)) {
    const bool fits = static_cast<size_t>(header.bytes) == letter.tensor.nbytes();
    const at::Tensor bytes = fits ? letter.tensor : at::empty({header.bytes}, at::kByte);
    try {
      Move(false, bytes.data_ptr(), bytes.nbytes());
    } catch (const std::exception& failed) {
      letter.work->Settle(letter.work->Describe() + ": " + failed.what());
      throw;
    }
    if (fits) {
      letter.work->Settle("");
    } else {
      Deliver(letter, bytes);
    }
    return true;
  }
  at::Tensor bytes = at::empty({header.bytes}, at::kByte);
  Move(false, bytes.data_ptr(), bytes.nbytes());
  unexpected_.emplace_back(header.tag, std::move(bytes));
  return true;
}

void Mailbox::FailAll(const std::string& reason) {
  std::deque<Letter> letters;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    letters.swap(letters_);
  }
  for (const Letter& letter : letters) letter.work->Settle(letter.work->Describe() + ": " + reason);
}

}  // namespace c4_torch
