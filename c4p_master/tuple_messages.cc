#include "c4p_master/tuple_messages.h"

#include "service/ip_address.h"

namespace c4::c4p {

std::optional<service::IpTuple> TupleOf(const v1::FiveTuple& tuple) {
  const auto source = service::ParseIp(tuple.source());
  const auto destination = service::ParseIp(tuple.destination());
  if (!source || !destination || tuple.source_port() > UINT16_MAX || tuple.destination_port() > UINT16_MAX) {
    return std::nullopt;
  }
  return service::IpTuple{
      tuple.protocol() == v1::IP_PROTOCOL_UDP ? service::IpProtocol::kUdp : service::IpProtocol::kTcp,
      *source, static_cast<uint16_t>(tuple.source_port()), *destination,
      static_cast<uint16_t>(tuple.destination_port())};
}

void SetTuple(const service::IpTuple& tuple, v1::FiveTuple* to) {
  to->set_protocol(tuple.protocol == service::IpProtocol::kUdp ? v1::IP_PROTOCOL_UDP : v1::IP_PROTOCOL_TCP);
  to->set_source(service::IpText(tuple.source));
  to->set_source_port(tuple.source_port);
  to->set_destination(service::IpText(tuple.destination));
  to->set_destination_port(tuple.destination_port);
}

}  // namespace c4::c4p
