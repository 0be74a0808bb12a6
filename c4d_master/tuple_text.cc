#include "c4d_master/tuple_text.h"

#include "service/address.h"

namespace c4::c4d {
namespace {

constexpr uint16_t kRocePort = 4791;

}  // namespace

bool FillTuple(std::string_view source, std::string_view destination, v1::FiveTuple* tuple) {
  const absl::StatusOr<service::HostPort> from = service::ParseHostPort(source);
  const absl::StatusOr<service::HostPort> to = service::ParseHostPort(destination);
  if (!from.ok() || !to.ok()) return false;
  // RoCE v2: packets of both directions go to its port, and acknowledgements leave from the sender's.
  const bool roce = from->port == kRocePort || to->port == kRocePort;
  const bool acknowledges = roce && from->port == kRocePort;
  tuple->set_protocol(roce ? v1::IP_PROTOCOL_UDP : v1::IP_PROTOCOL_TCP);
  tuple->set_source(from->host);
  tuple->set_source_port(acknowledges ? to->port : from->port);
  tuple->set_destination(to->host);
  tuple->set_destination_port(roce ? kRocePort : to->port);
  return true;
}

std::string SourceText(const v1::FiveTuple& tuple) {
  return service::JoinHostPort(tuple.source(), static_cast<uint16_t>(tuple.source_port()));
}

std::string DestinationText(const v1::FiveTuple& tuple) {
  return service::JoinHostPort(tuple.destination(), static_cast<uint16_t>(tuple.destination_port()));
}

}  // namespace c4::c4d
