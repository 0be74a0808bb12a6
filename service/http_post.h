// One HTTP request, as a client: POSTs for webhooks, any method for other programs' APIs. http:// and
// https://. Blocks until it is answered or its time is up; any thread. Redirects are not followed.
//
// Where it may go is decided when the name has been resolved, and the connection is made to the very address
// that was judged: a name that first resolves to an address outside and then to one inside gains nothing.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "service/status.h"

namespace c4::service {

// An answer's body is cut off here, unless the request says otherwise.
inline constexpr size_t kMaxAnswerBytes = size_t{1} << 20;

struct HttpPostRequest {
  std::string url;
  std::string body;
  std::string content_type = "application/json";
  std::map<std::string, std::string> headers;
  absl::Duration timeout = absl::Seconds(10);  // of all of it
  // Whether it may go to an address inside (inside_address.h), and without TLS; to one outside only
  // https:// goes.
  bool allow_inside = false;
  std::string ca_file;  // PEM; empty: the system's authorities
  // Of HttpCall.
  std::string method = "POST";
  size_t max_answer_bytes = kMaxAnswerBytes;
};

struct HttpAnswer {
  int status = 0;
  std::string reason;  // "Not Found"
  std::string body;
  absl::Duration retry_after = absl::ZeroDuration();  // as the server asks; zero: it does not
};

// InvalidArgument with what to give instead: anything but http[s]://host[:port][/path], and what can be told
// without resolving a name to be no place to send to.
absl::Status CheckHttpUrl(const std::string& url, bool allow_inside);

// Whatever is answered, of whatever status. FailedPrecondition: it may not go there. Unavailable: no
// connection, a certificate that does not hold, no answer in time or half of one, or one that is too long.
// Cancelled: `stop`, which is asked ten times a second, said true. The body of an error (400 and above) that
// announces a trailer may be cut.
absl::StatusOr<HttpAnswer> HttpCall(const HttpPostRequest& request, const std::function<bool()>& stop = {});

// The body of an answer with 200 to 299. FailedPrecondition: it was refused and would be again (300 to 499
// but for 408 and 429, or an address inside). Unavailable: no connection, a certificate that does not hold,
// no answer in time, or an error of the server's. Cancelled: `stop`, which is asked ten times a second, said
// true.
absl::StatusOr<std::string> HttpPost(const HttpPostRequest& request, const std::function<bool()>& stop = {});

}  // namespace c4::service
