// One HTTP POST of JSON, as a client: for webhooks. Plain http:// only. Blocks until it is answered or its
// time is up; any thread. Redirects are not followed.
#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "service/status.h"

namespace c4::service {

// InvalidArgument with what to give instead: anything but http://host[:port][/path].
absl::Status CheckHttpUrl(const std::string& url);

// OK: it was answered with 200 to 299. FailedPrecondition: it was refused and would be again (another 400 to
// 499). Unavailable: no connection, no answer in time, or an error of the server's.
// Cancelled: `stop`, which is asked ten times a second once there is a connection, said true.
absl::Status HttpPostJson(const std::string& url, const std::string& json, absl::Duration timeout,
                          const std::function<bool()>& stop = {});

}  // namespace c4::service
