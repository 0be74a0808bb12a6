#include "c4a/path_messages.h"

#include <algorithm>

#include "service/ip_address.h"
#include "service/text.h"

namespace c4::agent {
namespace {

std::string AddressText(const wire::Endpoint& endpoint) {
  return service::IpText(service::IpAddress::FromBytes(endpoint.address));
}

v1::HopStatus StatusOf(HopStatus status) {
  switch (status) {
    case HopStatus::kAnswered:
      return v1::HOP_STATUS_ANSWERED;
    case HopStatus::kSilent:
      return v1::HOP_STATUS_SILENT;
    case HopStatus::kReached:
      return v1::HOP_STATUS_REACHED;
    case HopStatus::kUnreachable:
      return v1::HOP_STATUS_UNREACHABLE;
  }
  return v1::HOP_STATUS_UNSPECIFIED;
}

}  // namespace

v1::PathRequest RequestOf(const std::string& connection, const wire::ControlPathAsk& ask) {
  v1::PathRequest request;
  request.set_connection(connection);
  request.set_job(service::ToUtf8(service::FieldText(ask.job, sizeof ask.job)));
  request.set_communicator_id(ask.communicator_id);
  request.set_from_rank(ask.from_rank);
  request.set_to_rank(ask.to_rank);
  request.set_channel(ask.channel);
  request.set_protocol(ask.protocol == IPPROTO_UDP ? v1::IP_PROTOCOL_UDP : v1::IP_PROTOCOL_TCP);
  request.set_queue_pairs(ask.queue_pairs);
  for (size_t i = 0; i < ask.planes; ++i) {
    v1::PathEnds* const ends = request.add_ends();
    ends->set_source(AddressText(ask.ends[i].source));
    ends->set_destination(AddressText(ask.ends[i].destination));
    request.set_destination_port(ask.ends[i].destination.port);
  }
  return request;
}

v1::PathUse UseOf(const v1::PathRequest& request, const wire::ControlPathUse& use) {
  v1::PathUse message;
  message.set_connection(request.connection());
  message.set_epoch(use.epoch);
  for (uint32_t i = 0; i < use.queue_pairs; ++i) {
    const wire::ControlPathInUse& path = use.paths[i];
    v1::QueuePairInUse* const pair = message.add_queue_pairs();
    pair->set_index(i);
    pair->set_use(path.state == wire::kPathDead ? v1::QUEUE_PAIR_USE_DEAD : v1::QUEUE_PAIR_USE_LIVE);
    pair->set_fences(path.fences);
    v1::FiveTuple* const tuple = pair->mutable_tuple();
    tuple->set_protocol(request.protocol());
    tuple->set_source(AddressText(path.source));
    tuple->set_source_port(path.source.port);
    tuple->set_destination(AddressText(path.destination));
    tuple->set_destination_port(path.destination.port);
  }
  return message;
}

wire::ControlPathAnswer AnswerOf(uint64_t connection, const v1::PathAnswer& answer) {
  wire::ControlPathAnswer frame{};
  frame.connection = connection;
  frame.epoch = answer.epoch();
  for (const v1::QueuePairPath& path : answer.paths()) {
    if (path.index() >= wire::kControlMostQueuePairs || path.source_port() > UINT16_MAX) continue;
    frame.queue_pairs = std::max(frame.queue_pairs, path.index() + 1);
    frame.paths[path.index()] = {static_cast<uint16_t>(path.source_port()),
                                 static_cast<uint16_t>(std::min<uint32_t>(path.plane(), UINT16_MAX))};
  }
  return frame;
}

absl::StatusOr<ProbeOrder> OrderOf(const v1::ProbeOrder& order) {
  ProbeOrder result;
  result.order = order.order();
  result.first_ttl = static_cast<int>(std::min<uint32_t>(order.first_ttl(), 256));
  result.last_ttl = static_cast<int>(std::min<uint32_t>(order.last_ttl(), 256));
  for (const v1::FiveTuple& tuple : order.tuples()) {
    const auto source = service::ParseIp(tuple.source());
    const auto destination = service::ParseIp(tuple.destination());
    const bool tcp = tuple.protocol() == v1::IP_PROTOCOL_TCP;
    if (!source || !destination || (!tcp && tuple.protocol() != v1::IP_PROTOCOL_UDP) ||
        tuple.source_port() > UINT16_MAX || tuple.destination_port() > UINT16_MAX) {
      return absl::InvalidArgumentError(service::Concat("no tuple that can be probed: ", tuple.source(), ":",
                                                        tuple.source_port(), " > ", tuple.destination(), ":",
                                                        tuple.destination_port()));
    }
    result.tuples.push_back({tcp ? service::IpProtocol::kTcp : service::IpProtocol::kUdp, *source,
                             static_cast<uint16_t>(tuple.source_port()), *destination,
                             static_cast<uint16_t>(tuple.destination_port())});
  }
  return result;
}

v1::ProbeResult ResultOf(const ProbeResult& result) {
  v1::ProbeResult message;
  v1::FiveTuple* const tuple = message.mutable_tuple();
  tuple->set_protocol(result.tuple.protocol == service::IpProtocol::kTcp ? v1::IP_PROTOCOL_TCP
                                                                         : v1::IP_PROTOCOL_UDP);
  tuple->set_source(service::IpText(result.tuple.source));
  tuple->set_source_port(result.tuple.source_port);
  tuple->set_destination(service::IpText(result.tuple.destination));
  tuple->set_destination_port(result.tuple.destination_port);
  for (const ProbedHop& hop : result.hops) {
    v1::Hop* const to = message.add_hops();
    to->set_ttl(static_cast<uint32_t>(hop.ttl));
    to->set_status(StatusOf(hop.status));
    if (hop.address.known()) to->set_address(service::IpText(hop.address));
    to->set_rtt_ns(hop.rtt_ns);
    to->set_tries(static_cast<uint32_t>(hop.tries));
  }
  if (result.fault != ProbeFault::kNone) {
    message.set_fault(result.fault == ProbeFault::kPortInUse ? v1::PROBE_FAULT_PORT_IN_USE
                                                             : v1::PROBE_FAULT_OTHER);
    message.set_error(result.error);
  }
  return message;
}

}  // namespace c4::agent
