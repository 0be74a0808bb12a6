#include "mailbox.h"

#include <algorithm>
#include <cstring>

#include "exit_gate.h"

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

std::string Mailbox::Post(Letter letter) {
  at::Tensor message;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.empty()) return failure_;
    if (letter.claimed->load()) return "";
    const auto found = std::find_if(unexpected_.begin(), unexpected_.end(),
                                    [&](const auto& aside) { return aside.first == letter.tag; });
    if (found == unexpected_.end()) {
      letters_.push_back(std::move(letter));
      if (!runs_) {
        runs_ = true;
        std::thread([self = shared_from_this()]() mutable {
          const ExitGate::Inside inside;
          self->Run();
          self.reset();  // inside: it may be the last one
        }).detach();
      }
      changed_.notify_one();
      return "";
    }
    if (letter.claimed->exchange(true)) return "";
    message = std::move(found->second);
    unexpected_.erase(found);
  }
  Deliver(letter, message);
  return "";
}

void Mailbox::Abort(const std::string& reason) {
  Fail(reason, true);
}

void Mailbox::Fail(const std::string& reason, bool shared) {
  std::shared_ptr<Channel> channel;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.empty()) failure_ = reason;
    channel = channel_;
    cancelled_.store(true);
    changed_.notify_one();
  }
  if (channel != nullptr) channel->Abort(reason);
  std::deque<Letter> letters;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    letters.swap(letters_);
  }
  for (const Letter& letter : letters) {
    if (letter.shared && !shared) continue;  // another rank may have a message for it
    if (!letter.claimed->exchange(true)) letter.work->Settle(letter.work->Describe() + ": " + reason);
  }
}

void Mailbox::Stop() {
  bool busy = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    DropClaimed();
    busy = !letters_.empty() || listens_;
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
    if (!channel->Failure().empty()) return;
    const ExitGate::Outside outside;
    channel->Leave();
  } catch (const std::exception& failed) {
    Fail(failed.what(), false);
  }
}

// The sender makes the id, so that the receiver can come first or last.
void Mailbox::Open() {
  const std::string key = "c4/mail/" + std::to_string(address_.from) + ">" + std::to_string(address_.to);
  ncclUniqueId id;
  if (address_.sends) {
    id = NewId();
    store_->set(key, Bytes(id));
  } else {
    // As long as somebody waits: the deadline of a letter ends the mailbox.
    for (auto pause = kFirstLook; !store_->check({key}); pause = std::min(2 * pause, kLongestLook)) {
      if (!AwaitLetter()) throw std::runtime_error("the process group was destroyed");
      const ExitGate::Outside outside;
      std::this_thread::sleep_for(pause);
    }
    Listen(true);
    const std::vector<uint8_t> read = store_->get(key);  // it is there
    if (read.size() != sizeof id) throw std::runtime_error("the store holds no unique id at " + key);
    memcpy(&id, read.data(), sizeof id);
  }
  const Deadline deadline = std::chrono::steady_clock::now() + timeout_;
  std::shared_ptr<Channel> channel;
  {
    const ExitGate::Outside outside;
    channel = std::make_shared<Channel>(id, address_.sends ? 0 : 1, 2, address_.name, deadline, cancelled_);
  }
  Listen(false);
  const std::lock_guard<std::mutex> lock(mutex_);
  channel_ = std::move(channel);
}

bool Mailbox::AwaitLetter() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    DropClaimed();
  }
  {
    const ExitGate::Outside outside;
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return stopped_ || !letters_.empty() || !failure_.empty(); });
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failure_.empty()) throw std::runtime_error(failure_);
  return !letters_.empty();
}

bool Mailbox::Next() {
  if (!AwaitLetter()) return false;
  return address_.sends ? SendNext() : ReceiveNext();
}

void Mailbox::Move(bool sends, void* begin, size_t bytes) {
  if (bytes == 0) return;
  const int peer = sends ? 1 : 0;
  const Event event = channel_->Submit([&](const Library& library, ncclComm_t comm, cudaStream_t stream) {
    return sends ? library.ncclSend(begin, bytes, ncclUint8, peer, comm, stream)
                 : library.ncclRecv(begin, bytes, ncclUint8, peer, comm, stream);
  });
  {
    const ExitGate::Outside outside;
    channel_->Await(event);
  }
  const std::string failure = channel_->Failure();
  if (!failure.empty()) throw std::runtime_error(failure);
}

bool Mailbox::SendNext() {
  Letter letter;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (letters_.empty()) return true;  // it failed meanwhile
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
  const auto found = std::find_if(letters_.begin(), letters_.end(), [tag](const Letter& other) {
    return other.tag == tag && !other.claimed->exchange(true);
  });
  if (found == letters_.end()) return false;
  *letter = std::move(*found);
  letters_.erase(found);
  return true;
}

void Mailbox::DropClaimed() {
  if (address_.sends) return;
  letters_.erase(std::remove_if(letters_.begin(), letters_.end(),
                                [](const Letter& letter) { return letter.claimed->load(); }),
                 letters_.end());
}

void Mailbox::Listen(bool listens) {
  const std::lock_guard<std::mutex> lock(mutex_);
  listens_ = listens;
}

void Mailbox::Deliver(const Letter& letter, const at::Tensor& bytes) {
  letter.work->set_source(address_.from);
  if (static_cast<size_t>(bytes.numel()) != letter.tensor.nbytes()) {
    letter.work->Settle(letter.work->Describe() + ": the message has " + std::to_string(bytes.numel()) +
                        " bytes, and the tensor " + std::to_string(letter.tensor.nbytes()));
    return;
  }
  if (bytes.numel() > 0) memcpy(letter.tensor.data_ptr(), bytes.data_ptr(), letter.tensor.nbytes());
  letter.work->Settle("");
}

bool Mailbox::ReceiveNext() {
  Header header{};
  Listen(true);
  Move(false, &header, sizeof header);
  Listen(false);
  Letter letter;
  bool asked = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    asked = TakeMatching(header.tag, &letter);
  }
  const bool fits = asked && static_cast<size_t>(header.bytes) == letter.tensor.nbytes();
  at::Tensor bytes = fits ? letter.tensor : at::empty({header.bytes}, at::kByte);
  try {
    Move(false, bytes.data_ptr(), bytes.nbytes());
  } catch (const std::exception& failed) {
    if (asked) letter.work->Settle(letter.work->Describe() + ": " + failed.what());
    throw;
  }
  if (fits) {
    letter.work->set_source(address_.from);
    letter.work->Settle("");
    return true;
  }
  if (!asked) {
    const std::lock_guard<std::mutex> lock(mutex_);
    asked = TakeMatching(header.tag, &letter);  // somebody may have asked meanwhile
    if (!asked) unexpected_.emplace_back(header.tag, bytes);
  }
  if (asked) Deliver(letter, bytes);
  return true;
}

}  // namespace c4_torch
