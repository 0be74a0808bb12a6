#include "c4d_master/message_json.h"

#include <google/protobuf/util/json_util.h>

#include "service/log.h"
#include "service/text.h"

namespace c4::c4d {

absl::StatusOr<std::string> JsonOfMessage(const google::protobuf::Message& message) {
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json);
  if (status.ok()) return json;
  return absl::InternalError(
      service::Concat("a ", message.GetTypeName(), " cannot be written as JSON: ", status.ToString()));
}

bool MessageOfJson(const std::string& json, google::protobuf::Message* message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  if (google::protobuf::util::JsonStringToMessage(json, message, options).ok()) return true;
  service::LogWarning("a stored ", message->GetTypeName(),
                      " cannot be read and is left out: ", service::ToUtf8(json.substr(0, 200)));
  return false;
}

}  // namespace c4::c4d
