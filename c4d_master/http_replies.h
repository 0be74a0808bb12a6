// How the master's HTTP pages answer: a status as its code and a sentence, or JSON. Header only. Pure.
#pragma once

#include <string>

#include "service/http_server.h"
#include "service/status.h"
#include "service/text.h"

namespace c4::c4d {

inline service::HttpReply Refusal(const absl::Status& status) {
  int code = 500;
  if (absl::IsNotFound(status)) code = 404;
  if (absl::IsInvalidArgument(status)) code = 400;
  if (absl::IsFailedPrecondition(status)) code = 409;
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) code = 503;
  return {code, service::Concat(status.message(), "\n"), "text/plain"};
}

inline service::HttpReply JsonReply(const std::string& json, int code = 200) {
  return {code, json + "\n", "application/json"};
}

// What stands in the query under that name; empty where it is missing.
inline std::string FromQuery(const service::HttpRequest& request, const std::string& name) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? std::string() : found->second;
}

}  // namespace c4::c4d
