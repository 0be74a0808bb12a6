#include "group.h"

#include <cstring>
#include <thread>

namespace c4_torch {
namespace {

constexpr char kIdKey[] = "c4/id";

ncclUniqueId Meet(c10d::Store& store, int rank) {
  ncclUniqueId id;
  if (rank == 0) {
    id = NewId();
    const auto* const begin = reinterpret_cast<const uint8_t*>(&id);
    store.set(kIdKey, std::vector<uint8_t>(begin, begin + sizeof id));
    return id;
  }
  const std::vector<uint8_t> read = store.get(kIdKey);
  TORCH_CHECK(read.size() == sizeof id, "the store holds no unique id of rank 0's");
  memcpy(&id, read.data(), sizeof id);
  return id;
}

}  // namespace

Group::Group(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::intrusive_ptr<Options> options)
    : Backend(rank, size), store_(std::move(store)), options_(std::move(options)) {
  const std::atomic<bool> never{false};
  try {
    const ncclUniqueId id = size == 1 ? NewId() : Meet(*store_, rank);
    channel_ = std::make_shared<Channel>(id, rank, size, options_->group_name,
                                         std::chrono::steady_clock::now() + options_->timeout, never);
  } catch (const std::exception& failed) {
    C10_THROW_ERROR(DistBackendError, "rank " + std::to_string(rank) + " of the process group " +
                                          options_->group_name + " cannot join the " + std::to_string(size) +
                                          ": " + failed.what());
  }
}

Group::~Group() {
  shutdown();
}

void Group::shutdown() {
  if (getpid() != process_ || left_.exchange(true)) return;
  ledger_->DropAbortHooks();
  {
    const std::lock_guard<std::mutex> lock(mailboxes_mutex_);
    for (const auto& [key, mailbox] : mailboxes_) mailbox->Stop();
  }
  if (ledger_->HasPending() || !channel_->Failure().empty()) {
    channel_->Abort("the process group was destroyed");
  } else {
    channel_->Leave();
  }
  ledger_->Tick(std::chrono::steady_clock::now());
  ledger_->Stop();
}

void Group::abort() {
  ledger_->RunAbortHooks();
  channel_->Abort("the process group was aborted by the program");
  {
    const std::lock_guard<std::mutex> lock(mailboxes_mutex_);
    for (const auto& [key, mailbox] : mailboxes_)
      mailbox->Abort("the process group was aborted by the program");
  }
  ledger_->Tick(std::chrono::steady_clock::now());
}

Group::Milliseconds Group::TimeoutOf(Milliseconds asked) const {
  return asked == c10d::kUnsetTimeout ? options_->timeout : asked;
}

Call Group::NewCall(c10d::OpType type, const char* title, Tensors inputs, Tensors outputs,
                    Milliseconds timeout) {
  return {type, title, std::move(inputs), std::move(outputs), TimeoutOf(timeout), ++sequence_};
}

Group::Work Group::Done(Work work) {
  if (coalesced_.has_value()) coalesced_->push_back(work);
  return work;
}

Group::Work Group::Launch(const Call& call, const Channel::Enqueue& enqueue, std::function<void()> finish) {
  const auto work = c10::make_intrusive<GroupWork>(rank_, call, ledger_);
  try {
    // The closure of the call holds the tensors that were made for it: they live until it is over.
    work->Place(channel_, channel_->Submit(enqueue), [held = enqueue, finish = std::move(finish)] {
      if (finish) finish();
    });
  } catch (const std::exception& failed) {
    const std::string sentence = work->Describe() + ": " + failed.what();
    work->Settle(sentence);
    C10_THROW_ERROR(DistBackendError, sentence);
  }
  ledger_->Add(work);
  return Done(work);
}

Group::Work Group::LaunchGathered(const Call& call, const at::Tensor& input, const c10d::ReduceOp& op,
                                  std::function<void(const at::Tensor&)> use) {
  const at::Tensor mine = input.contiguous();
  const at::Tensor gathered = at::empty({size_, mine.numel()}, mine.options());
  const Elements elements = ElementsOf(mine);
  return Launch(
      call,
      [=](const Library& library, ncclComm_t comm, cudaStream_t stream) {
        return library.ncclAllGather(Begin(mine), Begin(gathered), elements.count, elements.type, comm,
                                     stream);
      },
      [=, use = std::move(use)] { use(ReduceGathered(gathered, op)); });
}

void Group::startCoalescing() {
  TORCH_CHECK(!coalesced_.has_value(), "c4: a coalescing manager is open already");
  coalesced_.emplace();
}

Group::Work Group::endCoalescing() {
  TORCH_CHECK(coalesced_.has_value(), "c4: there is no coalescing manager to end");
  std::vector<Work> parts = std::move(*coalesced_);
  coalesced_.reset();
  return c10::make_intrusive<JointWork>(rank_, std::move(parts));
}

c10::intrusive_ptr<c10d::Backend> Group::split(const c10::intrusive_ptr<c10d::Store>& store,
                                               const std::vector<int>& ranks,
                                               const c10::intrusive_ptr<Options>& options) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank_);
  if (found == ranks.end()) return nullptr;
  return c10::make_intrusive<Group>(store->clone(), static_cast<int>(found - ranks.begin()),
                                    static_cast<int>(ranks.size()), options);
}

std::shared_ptr<Mailbox> Group::MailboxOf(int peer, bool sends) {
  const std::lock_guard<std::mutex> lock(mailboxes_mutex_);
  std::shared_ptr<Mailbox>& place = mailboxes_[{peer, sends}];
  if (place == nullptr) {
    Mailbox::Address address{sends ? rank_ : peer, sends ? peer : rank_, sends, ""};
    address.name =
        options_->group_name + " " + std::to_string(address.from) + ">" + std::to_string(address.to);
    place = std::make_shared<Mailbox>(std::move(address), store_->clone(), options_->timeout);
  }
  return place;
}

Group::Work Group::Mail(const char* title, bool sends, Tensors& tensors, const std::vector<int>& peers,
                        int tag) {
  TORCH_CHECK(tensors.size() == 1, title, " takes one tensor");
  CheckTensor(tensors[0], title);
  for (const int peer : peers) {
    TORCH_CHECK(peer >= 0 && peer < size_ && peer != rank_, title, ": ", peer,
                " is no other rank of this group of ", size_);
  }
  const at::Tensor whole = tensors[0];
  const at::Tensor piece = whole.contiguous();
  Call call{sends ? c10d::OpType::SEND : c10d::OpType::RECV, title, tensors, tensors, options_->timeout, 0};
  const auto work = c10::make_intrusive<GroupWork>(rank_, call, ledger_);
  if (!sends && !piece.is_same(whole)) work->Finish([whole, piece] { whole.copy_(piece); });
  std::vector<std::shared_ptr<Mailbox>> mailboxes;
  for (const int peer : peers) mailboxes.push_back(MailboxOf(peer, sends));
  work->OnExpiry([mailboxes](const std::string& reason) {
    for (const auto& mailbox : mailboxes) mailbox->Abort(reason);
  });
  ledger_->Add(work);
  const auto claimed = std::make_shared<std::atomic<bool>>(false);
  std::string failure;
  size_t refused = 0;
  for (const auto& mailbox : mailboxes) {
    failure = mailbox->Post({tag, piece, work, claimed, mailboxes.size() > 1});
    if (!failure.empty()) ++refused;
  }
  if (refused == mailboxes.size()) work->Settle(work->Describe() + ": " + failure);
  return Done(work);
}

Group::Work Group::send(Tensors& tensors, int to, int tag) {
  return Mail("c4:send", true, tensors, {to}, tag);
}

Group::Work Group::recv(Tensors& tensors, int from, int tag) {
  return Mail("c4:recv", false, tensors, {from}, tag);
}

Group::Work Group::recvAnysource(Tensors& tensors, int tag) {
  TORCH_CHECK(size_ > 1, "c4:recv: there is no other rank in this group to receive from");
  std::vector<int> peers;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) peers.push_back(peer);
  }
  return Mail("c4:recvAnySource", false, tensors, peers, tag);
}

// Over the store: it has to tell who is missing where the communicator no longer works.
void Group::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  using std::chrono::steady_clock;
  const Milliseconds timeout = TimeoutOf(options.timeout);
  const Deadline deadline = steady_clock::now() + timeout;
  const std::string prefix = "c4/monitored/" + std::to_string(monitored_++) + "/";
  const auto comes = [&](const std::string& key) {
    for (auto pause = std::chrono::milliseconds(1);;
         pause = std::min(2 * pause, std::chrono::milliseconds(20))) {
      if (store_->check({prefix + key})) return true;
      if (steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(pause);
    }
  };
  const std::string passed = "passed";
  const std::vector<uint8_t> yes{1};
  const std::vector<uint8_t> no{0};
  if (rank_ != 0) {
    store_->set(prefix + std::to_string(rank_), yes);
    const std::string mine = "Rank " + std::to_string(rank_) + " successfully reached monitoredBarrier, but ";
    if (!comes(passed) || store_->get(prefix + passed) != yes) {
      C10_THROW_ERROR(DistBackendError, mine +
                                            "received errors while waiting for send/recv from rank 0: it " +
                                            "does not let this rank pass; its log says who is missing");
    }
    return;
  }
  std::string missing;
  size_t count = 0;
  for (int peer = 1; peer < size_ && (wait_all_ranks || count == 0); ++peer) {
    if (timeout.count() <= 0) {
      store_->set(prefix + passed, no);
      C10_THROW_ERROR(DistBackendError, "Rank 0 timed out in monitoredBarrier: it was given no time");
    }
    if (comes(std::to_string(peer))) continue;
    missing += (count++ == 0 ? "" : ", ") + std::to_string(peer);
  }
  store_->set(prefix + passed, count == 0 ? yes : no);
  if (count == 0) return;
  C10_THROW_ERROR(DistBackendError, (count == 1 ? "Rank " : "Ranks ") + missing +
                                        " failed to pass monitoredBarrier in " +
                                        std::to_string(timeout.count()) + " ms");
}

}  // namespace c4_torch
