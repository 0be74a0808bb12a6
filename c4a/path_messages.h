// Between what the agent's parts say and the path master's protocol: pure translations.
#pragma once

#include <string>

#include "c4/v1/c4p.pb.h"
#include "c4a/prober.h"
#include "service/status.h"
#include "wire/control.h"

namespace c4::agent {

v1::PathRequest RequestOf(const std::string& connection, const wire::ControlPathAsk& ask);
// What the connection of `request` uses.
v1::PathUse UseOf(const v1::PathRequest& request, const wire::ControlPathUse& use);
wire::ControlPathAnswer AnswerOf(uint64_t connection, const v1::PathAnswer& answer);

// InvalidArgument: a tuple that is none of IPv4, or impossible TTLs.
absl::StatusOr<ProbeOrder> OrderOf(const v1::ProbeOrder& order);
v1::ProbeResult ResultOf(const ProbeResult& result);

}  // namespace c4::agent
