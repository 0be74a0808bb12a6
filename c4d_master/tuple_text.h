// "address:port" texts of a connection's ends, as telemetry tells them, and the tuples that C4P speaks of.
// Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "c4/v1/c4p.pb.h"

namespace c4::c4d {

// Of what `source` sends to `destination`. False: one of them is no address with a port.
bool FillTuple(std::string_view source, std::string_view destination, v1::FiveTuple* tuple);
std::string SourceText(const v1::FiveTuple& tuple);
std::string DestinationText(const v1::FiveTuple& tuple);

}  // namespace c4::c4d
