#include "page/page_json.h"

#include <google/protobuf/util/json_util.h>

#include "service/text.h"

namespace c4::page {
namespace {

int CodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kInternal:
      return 500;
    default:
      return 502;  // a master refused, or did not answer
  }
}

}  // namespace

absl::StatusOr<std::string> PageJson(const google::protobuf::Message& message) {
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json);
  if (status.ok()) return json;
  return absl::InternalError(
      service::Concat(message.GetTypeName(), " cannot be written as JSON: ", std::string(status.ToString())));
}

service::HttpReply PageRefusal(const absl::Status& status) {
  return {CodeOf(status), service::Concat(status.message(), "\n"), "text/plain; charset=utf-8"};
}

}  // namespace c4::page
