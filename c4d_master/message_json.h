// Protobuf messages as JSON, as the master's store keeps them. Pure; any thread.
#pragma once

#include <google/protobuf/message.h>
#include <string>

#include "service/status.h"

namespace c4::c4d {

absl::StatusOr<std::string> JsonOfMessage(const google::protobuf::Message& message);
// Fields that are not known are passed over: a newer master may have written them. False, with a warning in
// the log, where it cannot be read.
bool MessageOfJson(const std::string& json, google::protobuf::Message* message);

}  // namespace c4::c4d
