// Tuples as messages say them. Pure; any thread.
#pragma once

#include <optional>

#include "c4/v1/c4p.pb.h"
#include "service/ip_tuple.h"

namespace c4::c4p {

// None: an address or a port of it is none.
std::optional<service::IpTuple> TupleOf(const v1::FiveTuple& tuple);
void SetTuple(const service::IpTuple& tuple, v1::FiveTuple* to);

}  // namespace c4::c4p
