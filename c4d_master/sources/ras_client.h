// One question to NCCL's RAS port and its whole answer, over TCP. Any thread.
#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "service/address.h"
#include "service/status.h"

namespace c4::c4d {

// Connects, sends `request`, and reads until the other side closes, at most kMostRasBytes. Blocks until then,
// until `timeout` has gone by in all, or until `stop` says true; it is asked some ten times a second.
// Unavailable: nobody listens there. DeadlineExceeded: the answer was slow; what had come by then is dropped.
// Cancelled: stopped. A name is looked up by the system's resolver, which knows no time limit.
absl::StatusOr<std::string> AskRas(const service::HostPort& address, const std::string& request,
                                   absl::Duration timeout, const std::function<bool()>& stop);

}  // namespace c4::c4d
