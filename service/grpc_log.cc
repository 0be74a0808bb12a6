#include "service/grpc_log.h"

#include <atomic>
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <string>
#include <string_view>

#include "service/clock.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::service {
namespace {

thread_local std::string* captured = nullptr;

std::atomic<bool> handshakes_told{false};

void TellHandshake(const char* message) {
  constexpr int64_t kQuietNs = 10'000'000'000;
  static std::atomic<int64_t> told_at_ns{-kQuietNs};
  static std::atomic<uint64_t> untold{0};
  const int64_t now_ns = SystemClock().MonotonicNs();
  int64_t last_ns = told_at_ns.load();
  if (now_ns - last_ns < kQuietNs || !told_at_ns.compare_exchange_strong(last_ns, now_ns)) {
    ++untold;
    return;
  }
  const uint64_t more = untold.exchange(0);
  LogWarning("a TLS connection was refused (is its certificate of another authority, or out of its time?): ",
             message, more == 0 ? "" : Concat("; and ", more, " more before it"));
}

void TakeLine(gpr_log_func_args* line) {
  if (handshakes_told && std::string_view(line->message).starts_with("Handshake failed")) {
    TellHandshake(line->message);
    return;
  }
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

void WarnOfFailedHandshakes() {
  RouteGrpcLog();
  handshakes_told = true;
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
