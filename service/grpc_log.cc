#include "service/grpc_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <string>
#include <string_view>

#include "service/log.h"

namespace c4::service {
namespace {

thread_local std::string* captured = nullptr;

void TakeLine(gpr_log_func_args* line) {
  if (captured != nullptr) {
    captured->append(line->message);
    captured->push_back('\n');
  }
  LogDebug("gRPC: ", line->message);
}

void TakeProtobufLine(google::protobuf::LogLevel /*level*/, const char* /*file*/, int /*line*/,
                      const std::string& message) {
  LogDebug("protobuf: ", message);
}

}  // namespace

void RouteGrpcLog() {
  static const bool once = [] {
    gpr_set_log_function(TakeLine);
    google::protobuf::SetLogHandler(TakeProtobufLine);
    return true;
  }();
  (void)once;
}

GrpcLogCapture::GrpcLogCapture() {
  RouteGrpcLog();
  captured = new std::string;
}

GrpcLogCapture::~GrpcLogCapture() {
  delete captured;
  captured = nullptr;
}

std::string GrpcLogCapture::Reason() const {
  constexpr std::string_view kMark = "os_error:\"";
  const std::string& text = *captured;
  if (const size_t mark = text.find(kMark); mark != std::string::npos) {
    const size_t from = mark + kMark.size();
    return text.substr(from, text.find('"', from) - from);
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace c4::service
