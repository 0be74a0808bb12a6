#include "ccl/transport/verbs/rc.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fcntl.h>

#include "ccl/base/clock.h"
#include "ccl/base/kernel.h"
#include "ccl/base/log.h"
#include "ccl/transport/verbs/source_port.h"

namespace c4::verbs {
namespace {

// "for ever": a receiver whose process is stopped is no fault of the path, and its silence is judged
// elsewhere.
constexpr uint8_t kRnrRetryForEver = 7;
constexpr uint8_t kRnrTimer = 12;  // 0.64 ms between two tries
constexpr uint8_t kHopLimit = 255;
constexpr unsigned kEventsAnAcknowledgement = 64;
constexpr int kCompletionsAPoll = 16;
constexpr uint64_t kReceiveId = 1ull << 63;

Result Failed(const UsablePort& port, const char* what, int error) {
  return Fail(ncclSystemError, "a queue pair on %s %s: %s", port.name().c_str(), what,
              ErrnoText(error).c_str());
}

}  // namespace

const char* SteeringText(Steering steering) {
  switch (steering) {
    case Steering::kByPort:
      return "by its source port";
    case Steering::kByLabel:
      return "by its flow label";
    case Steering::kNone:
      break;
  }
  return "not steered";
}

RcQueuePair::RcQueuePair(const UsablePort& port, const Settings& settings, const Limits& limits)
    : port_(port), settings_(settings), limits_(limits) {}

Result RcQueuePair::Create(const UsablePort& port, const Settings& settings, const Limits& limits,
                           std::unique_ptr<RcQueuePair>* made) {
  const Library& library = port.device->library();
  std::unique_ptr<RcQueuePair> pair(new RcQueuePair(port, settings, limits));
  errno = 0;
  pair->channel_ = library.create_channel(port.device->context());
  if (pair->channel_ == nullptr) return Failed(port, "gets no completion channel", errno);
  const int flags = fcntl(pair->channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(pair->channel_->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    return Failed(port, "has a completion channel that blocks", errno);
  }
  pair->queue_ = library.create_queue(
      port.device->context(), static_cast<int>(limits.sends + limits.receives), nullptr, pair->channel_, 0);
  if (pair->queue_ == nullptr) return Failed(port, "gets no completion queue", errno);
  abi::QpInit init{};
  init.send_queue = init.receive_queue = pair->queue_;
  init.type = abi::kReliableConnection;
  init.capacity = {limits.sends, limits.receives, 1, 1, limits.inline_bytes};
  pair->queue_pair_ = library.create_queue_pair(port.device->domain(), &init);
  if (pair->queue_pair_ == nullptr && limits.inline_bytes != 0) {
    init.capacity = {limits.sends, limits.receives, 1, 1, 0};  // some devices have no inline data
    pair->queue_pair_ = library.create_queue_pair(port.device->domain(), &init);
  }
  if (pair->queue_pair_ == nullptr) {
    const int error = errno;
    if (error == ENOMEM) {
      return Failed(port, "cannot be made; the limit on locked memory (ulimit -l) may be too low", error);
    }
    return Failed(port, "cannot be made", error);
  }
  pair->inline_bytes_ = init.capacity.inline_bytes;
  if (!FillRandom(&pair->first_psn_, sizeof pair->first_psn_))
    return Failed(port, "gets no random number", errno);
  pair->first_psn_ &= kMost24;

  abi::QpAttributes attributes{};
  attributes.state = abi::kInit;
  attributes.port_number = static_cast<uint8_t>(port.port.number);
  attributes.access = abi::kLocalWrite | abi::kRemoteWrite | abi::kRemoteRead;
  C4_RETURN_IF_ERROR(pair->Modify(&attributes,
                                  abi::kMaskState | abi::kMaskPkeyIndex | abi::kMaskPort | abi::kMaskAccess,
                                  "cannot be initialized"));
  *made = std::move(pair);
  return Ok();
}

RcQueuePair::~RcQueuePair() {
  const Library& library = port_.device->library();
  if (queue_pair_ != nullptr) (void)library.destroy_queue_pair(queue_pair_);
  if (queue_ != nullptr) {
    if (events_unacknowledged_ != 0) library.ack_queue_events(queue_, events_unacknowledged_);
    (void)library.destroy_queue(queue_);
  }
  if (channel_ != nullptr) (void)library.destroy_channel(channel_);
}

End RcQueuePair::end() const {
  End end{};
  end.number = queue_pair_->number;
  end.first_psn = first_psn_;
  memcpy(end.gid, port_.gid.gid.raw, sizeof end.gid);
  end.lid = port_.port.lid;
  end.link_layer = port_.port.ethernet ? abi::kLinkEthernet : abi::kLinkInfiniBand;
  end.mtu = static_cast<uint8_t>(port_.port.mtu);
  end.flow_label = flow_label_;
  return end;
}

abi::AddressVector RcQueuePair::Address(uint32_t flow_label) const {
  abi::AddressVector address{};
  address.port_number = static_cast<uint8_t>(port_.port.number);
  address.service_level = settings_.service_level;
  if (port_.port.ethernet) {
    address.is_global = 1;
    memcpy(address.route.destination.raw, peer_.gid, sizeof peer_.gid);
    address.route.source_gid_index = static_cast<uint8_t>(port_.gid.index);
    address.route.hop_limit = kHopLimit;
    address.route.traffic_class = settings_.traffic_class;
    address.route.flow_label = flow_label;
  } else {
    address.destination_lid = peer_.lid;
  }
  return address;
}

Result RcQueuePair::Modify(abi::QpAttributes* attributes, int mask, const char* what) {
  const int error = port_.device->library().modify_queue_pair(queue_pair_, attributes, mask);
  return error == 0 ? Ok() : Failed(port_, what, error);
}

Result RcQueuePair::Connect(const End& peer) {
  const uint8_t own_layer = port_.port.ethernet ? abi::kLinkEthernet : abi::kLinkInfiniBand;
  if (const char* fault = CheckEnd(peer, own_layer)) {
    return Fail(ncclRemoteError, "the peer's end of the queue pair %s", fault);
  }
  peer_ = peer;
  // Acknowledgements, too, are packets with a source port: without a wish of its own an end takes the peer's.
  if (flow_label_ == 0 && port_.port.ethernet) flow_label_ = peer.flow_label;

  abi::QpAttributes attributes{};
  attributes.state = abi::kReadyToReceive;
  attributes.path_mtu = std::min<int>(port_.port.mtu, peer.mtu);
  attributes.peer_number = peer.number;
  attributes.receive_psn = peer.first_psn;
  attributes.peer_reads = 1;
  attributes.min_rnr_timer = kRnrTimer;
  attributes.address = Address(flow_label_);
  C4_RETURN_IF_ERROR(Modify(&attributes,
                            abi::kMaskState | abi::kMaskAddress | abi::kMaskPathMtu | abi::kMaskPeerQpNumber |
                                abi::kMaskReceivePsn | abi::kMaskPeerReads | abi::kMaskMinRnrTimer,
                            "cannot be connected"));
  attributes = {};
  attributes.state = abi::kReadyToSend;
  attributes.timeout = settings_.timeout;
  attributes.retry_count = settings_.retry_count;
  attributes.rnr_retry = kRnrRetryForEver;
  attributes.send_psn = first_psn_;
  attributes.reads = 1;
  C4_RETURN_IF_ERROR(Modify(&attributes,
                            abi::kMaskState | abi::kMaskTimeout | abi::kMaskRetryCount | abi::kMaskRnrRetry |
                                abi::kMaskSendPsn | abi::kMaskReads,
                            "cannot be made ready to send"));
  if (flow_label_ != 0)
    steering_ = SetPort(SourcePortOf(flow_label_)) ? Steering::kByPort : Steering::kByLabel;
  SpreadOverBond();
  return Ok();
}

// Last: other changes of the queue pair may undo it. Without a bond the provider refuses, and that is no
// fault.
void RcQueuePair::SpreadOverBond() {
  const Library& library = port_.device->library();
  if (bond_port_ == 0 || library.query_lag_port == nullptr || library.set_lag_port == nullptr) return;
  uint8_t configured = 0;
  uint8_t active = 0;
  if (library.query_lag_port(queue_pair_, &configured, &active) != 0) return;
  if (const int error = library.set_lag_port(queue_pair_, bond_port_); error != 0) {
    C4_INFO("queue pair %u on %s stays on the bond's port %u, which its device chose: %s", number(),
            port_.name().c_str(), active, ErrnoText(error).c_str());
    return;
  }
  on_bond_port_ = bond_port_;
}

bool RcQueuePair::SetPort(uint16_t source_port) {
  const Library& library = port_.device->library();
  return library.set_source_port != nullptr && library.set_source_port(queue_pair_, source_port) == 0;
}

Result RcQueuePair::CheckPort(uint16_t source_port) const {
  if (!port_.port.ethernet) {
    return Fail(ncclInvalidArgument, "%s is InfiniBand: its packets have no UDP port to choose a path by",
                port_.name().c_str());
  }
  if (CanBeSourcePort(source_port)) return Ok();
  return Fail(ncclInvalidArgument, "%u is no source port of RoCE: they go from %u to 65535",
              static_cast<unsigned>(source_port), static_cast<unsigned>(kLeastSourcePort));
}

Result RcQueuePair::WishPort(uint16_t source_port) {
  C4_RETURN_IF_ERROR(CheckPort(source_port));
  flow_label_ = FlowLabelOf(source_port);
  return Ok();
}

Result RcQueuePair::Steer(uint16_t source_port) {
  C4_RETURN_IF_ERROR(CheckPort(source_port));
  if (SetPort(source_port)) {
    steering_ = Steering::kByPort;
    flow_label_ = FlowLabelOf(source_port);
    return Ok();
  }
  abi::QpAttributes attributes{};
  attributes.state = abi::kSendDrained;
  if (!pausing()) C4_RETURN_IF_ERROR(Modify(&attributes, abi::kMaskState, "cannot pause to change its path"));
  if (!pausing()) paused_ns_ = MonotonicNs();
  next_label_ = FlowLabelOf(source_port);
  bool steered = false;
  return ContinueSteer(&steered);
}

// Devices take the change only when what was sent has been acknowledged, and do not all tell when that is.
Result RcQueuePair::ContinueSteer(bool* steered) {
  *steered = false;
  const Library& library = port_.device->library();
  abi::QpAttributes attributes{};
  attributes.state = abi::kSendDrained;
  attributes.address = Address(next_label_);
  if (library.modify_queue_pair(queue_pair_, &attributes, abi::kMaskState | abi::kMaskAddress) != 0) {
    abi::QpInit init{};
    const int error = library.query_queue_pair(queue_pair_, &attributes, abi::kMaskState, &init);
    if (error != 0) return Failed(port_, "cannot be asked for its state", error);
    if (attributes.state != abi::kSendDrained) return Failed(port_, "failed while its path changed", EINVAL);
    // By then all is acknowledged or given up; some devices do not notice (Soft-RoCE, where a retry was due).
    if (MonotonicNs() - paused_ns_ < settings_.retry_time_ns()) return Ok();
    return Failed(port_, "does not pause to change its path", ETIMEDOUT);
  }
  attributes = {};
  attributes.state = abi::kReadyToSend;
  C4_RETURN_IF_ERROR(Modify(&attributes, abi::kMaskState, "cannot go on after its path was changed"));
  steering_ = Steering::kByLabel;
  flow_label_ = next_label_;
  next_label_ = 0;
  *steered = true;
  return Ok();
}

uint16_t RcQueuePair::source_port() const {
  return flow_label_ == 0 ? 0 : SourcePortOf(flow_label_);
}

Result RcQueuePair::Break() {
  abi::QpAttributes attributes{};
  attributes.state = abi::kError;
  return Modify(&attributes, abi::kMaskState, "cannot be closed");
}

std::string RcQueuePair::StateText() const {
  static const char* const kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  abi::QpAttributes attributes{};
  abi::QpInit init{};
  const int error =
      port_.device->library().query_queue_pair(queue_pair_, &attributes, abi::kMaskState, &init);
  const auto state = static_cast<size_t>(attributes.state);
  return error != 0 || state >= std::size(kNames) ? "unknown" : kNames[state];
}

Result RcQueuePair::Post(abi::SendRequest* request, bool* posted) {
  *posted = false;
  if (sends_posted_ == limits_.sends) return Ok();
  request->flags |= abi::kSignaled;
  abi::SendRequest* failed = nullptr;
  const int error = queue_pair_->context->operations.post_send(queue_pair_, request, &failed);
  if (error == ENOMEM || error == EAGAIN) return Ok();  // full by the device's own count
  if (error != 0) return Failed(port_, "takes no request", error);
  ++sends_posted_;
  *posted = true;
  return Ok();
}

Result RcQueuePair::PostWrite(const Write& write, bool* posted) {
  abi::Piece piece{reinterpret_cast<uint64_t>(write.data), write.bytes, write.local_key};
  abi::SendRequest request{};
  request.id = write.id;
  request.pieces = &piece;
  request.piece_count = write.bytes == 0 ? 0 : 1;
  request.opcode = write.with_immediate ? abi::kOpWriteWithImmediate : abi::kOpWrite;
  const bool goes_inline = write.is_host && write.bytes != 0 && write.bytes <= inline_bytes_;
  request.flags = goes_inline ? unsigned{abi::kInline} : 0u;
  request.immediate = htonl(write.immediate);
  request.remote_address = write.remote_address;
  request.remote_key = write.remote_key;
  return Post(&request, posted);
}

Result RcQueuePair::PostRead(const Read& read, bool* posted) {
  abi::Piece piece{reinterpret_cast<uint64_t>(read.to), read.bytes, read.local_key};
  abi::SendRequest request{};
  request.id = read.id;
  request.pieces = &piece;
  request.piece_count = 1;
  request.opcode = abi::kOpRead;
  request.remote_address = read.remote_address;
  request.remote_key = read.remote_key;
  return Post(&request, posted);
}

Result RcQueuePair::PostSend(uint64_t id, const void* data, uint32_t bytes, uint32_t local_key,
                             bool* posted) {
  abi::Piece piece{reinterpret_cast<uint64_t>(data), bytes, local_key};
  abi::SendRequest request{};
  request.id = id;
  request.pieces = &piece;
  request.piece_count = 1;
  request.opcode = abi::kOpSend;
  request.flags = bytes <= inline_bytes_ ? unsigned{abi::kInline} : 0u;
  return Post(&request, posted);
}

Result RcQueuePair::PostReceive(uint64_t id, void* data, uint32_t bytes, uint32_t local_key) {
  abi::Piece piece{reinterpret_cast<uint64_t>(data), bytes, local_key};
  abi::ReceiveRequest request{id | kReceiveId, nullptr, &piece, 1};
  abi::ReceiveRequest* failed = nullptr;
  const int error = queue_pair_->context->operations.post_receive(queue_pair_, &request, &failed);
  if (error != 0) return Failed(port_, "takes no receive", error);
  ++receives_posted_;
  return Ok();
}

Result RcQueuePair::Poll(std::vector<Completed>* completed) {
  abi::Completion completions[kCompletionsAPoll];
  const int count = queue_->context->operations.poll_completions(queue_, kCompletionsAPoll, completions);
  if (count < 0) return Failed(port_, "has a completion queue that cannot be read", -count);
  completed->clear();
  for (int i = 0; i < count; ++i) {
    const abi::Completion& completion = completions[i];
    Completed one;
    // Of a request that failed, nothing but id and status is valid.
    one.is_receive = (completion.id & kReceiveId) != 0;
    one.id = completion.id & ~kReceiveId;
    one.status = completion.status;
    if (completion.status == abi::kSuccess && one.is_receive) {
      one.has_immediate = completion.opcode == abi::kWcReceiveWithImmediate;
      one.immediate = ntohl(completion.immediate);
      one.bytes = completion.bytes;
    }
    --(one.is_receive ? receives_posted_ : sends_posted_);
    completed->push_back(one);
  }
  if (count != 0) Disarm();
  return Ok();
}

Result RcQueuePair::Arm() {
  Disarm();
  if (armed_) return Ok();
  const int error = queue_->context->operations.request_notification(queue_, 0);
  if (error != 0) return Failed(port_, "has a completion queue that cannot wake anybody", error);
  armed_ = true;
  return Ok();
}

// Takes the event of a queue that was armed, where it has come.
void RcQueuePair::Disarm() {
  if (!armed_) return;
  abi::CompletionQueue* queue = nullptr;
  void* user = nullptr;
  const Library& library = port_.device->library();
  if (library.get_queue_event(channel_, &queue, &user) != 0) return;
  armed_ = false;
  if (++events_unacknowledged_ < kEventsAnAcknowledgement) return;
  library.ack_queue_events(queue_, events_unacknowledged_);
  events_unacknowledged_ = 0;
}

}  // namespace c4::verbs
