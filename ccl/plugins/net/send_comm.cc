#include "ccl/plugins/net/send_comm.h"

#include <algorithm>
#include <utility>

#include "ccl/base/clock.h"

namespace c4::net {
namespace {

// A caller that still wants its comm asks again within microseconds.
constexpr uint64_t kAbandonedNs = 60000000000u;
constexpr size_t kMostWaiting = abi::kMaxRequests * kMostReceives / 2;

Contact ContactOf(const ListenerInfo& listener) {
  Contact contact;
  contact.rank = listener.rank;
  contact.listeners = listener.addresses;
  contact.takes = listener.takes;
  return contact;
}

}  // namespace

SendComm::SendComm(const Identity& identity, uint16_t channel, const ListenerInfo& listener,
                   const Backends& backends, std::vector<SocketAddress> own, bool bind,
                   PathSelector* selector, int wake_fd)
    : Comm(identity, listener.rank, channel, listener.number, abi::kMaxRequests * kMostReceives),
      contact_(ContactOf(listener)),
      backend_(backends.To(contact_)),
      asked_for_ns_(MonotonicNs()) {
  if (!backend_->has_paths()) return;
  paths_ = PathsOverPlanes(own, listener.addresses, KnobShape().queue_pairs);
  for (size_t i = 0; bind && i < paths_.size(); ++i) paths_[i].source = own[i % own.size()];
  if (selector == nullptr) return;
  PathQuestion question;
  question.communicator_id = identity.communicator->slot().communicator_id;
  question.from_rank = identity.rank;
  question.to_rank = listener.rank;
  question.channel = channel;
  question.protocol = backend_->protocol();
  question.queue_pairs = static_cast<uint32_t>(paths_.size());
  if (question.protocol == IPPROTO_UDP) {
    selected_.BeginConnected(selector, std::move(question), wake_fd);
    return;
  }
  selected_.Begin(selector, std::move(question), own, listener.addresses, wake_fd);
}

ncclResult_t SendComm::Connect(bool* ready) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++drives_;
  asked_for_ns_ = MonotonicNs();
  if (const ncclResult_t result = Drive(); result != ncclSuccess) return result;
  *ready = handed_over_ = connection_ != nullptr && connection_->connected();
  return ncclSuccess;
}

Result SendComm::Progress(bool* moved) {
  if (connection_ == nullptr) {
    if (!selected_.Answered(&paths_)) return Ok();
    C4_RETURN_IF_ERROR(backend_->Dial(recording(), contact_, paths_, KnobShape(), &connection_));
    connection_->UseTags();
  }
  C4_RETURN_IF_ERROR(connection_->Progress(moved));
  return Match() ? connection_->Dispatch(moved) : Ok();
}

// Each tag's messages go in order; those of different tags may overtake each other, as receives are posted.
bool SendComm::Match() {
  if (waiting_.empty() || !connection_->offers()) return false;
  return std::erase_if(waiting_, [this](const Waiting& send) {
           if (!connection_->PostTagged(send.from, send.request->bytes[0], send.tag)) return false;
           send.request->done_at = connection_->posted();
           return true;
         }) > 0;
}

// Early sends are taken too, so that it shows who waits for whom; but not so many that they keep those from
// being taken that there is a receive for.
ncclResult_t SendComm::Send(const Buffer& from, size_t bytes, int tag, void** request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++drives_;
  if (!failed_.ok()) return failed_.code();
  const bool early = waiting_.size() < kMostWaiting;
  Request* const made = early || connection_->offers(tag) ? TakeRequest() : nullptr;
  if (made == nullptr) return Drive();
  made->done_at = UINT64_MAX;
  made->count = 1;
  made->bytes[0] = bytes;
  waiting_.push_back({made, from, tag});
  connection_->Want(bytes);
  (void)Match();
  *request = made;
  return Drive();
}

void SendComm::LoseAddress(const SocketAddress& address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!closed_ && connection_ != nullptr) connection_->LoseAddress(address);
}

bool SendComm::abandoned(uint64_t now_ns) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !handed_over_ && now_ns > asked_for_ns_ + kAbandonedNs;
}

void SendComm::AppendDataPolls(std::vector<pollfd>* polls) const {
  if (connection_ != nullptr) connection_->AppendDataPolls(polls);
}

void SendComm::AppendFencePolls(std::vector<pollfd>* polls) const {
  if (connection_ != nullptr) connection_->AppendFencePolls(polls);
}

void SendComm::LookAtPaths(bool news) {
  if (connection_ != nullptr) selected_.Follow(news, connection_.get());
}

void SendComm::Leave() {
  if (connection_ != nullptr && failed_.ok()) connection_->SayGoodbye();
  selected_.Close();
  connection_.reset();
}

}  // namespace c4::net
