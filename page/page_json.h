// Messages as the page gets them: Protobuf's JSON, nothing else. Pure; any thread.
#pragma once

#include <google/protobuf/message.h>
#include <string>

#include "service/http_server.h"
#include "service/status.h"

namespace c4::page {

absl::StatusOr<std::string> PageJson(const google::protobuf::Message& message);

// A sentence as text with the status that fits.
service::HttpReply PageRefusal(const absl::Status& status);

}  // namespace c4::page
