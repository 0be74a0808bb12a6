// The library's log, under NCCL's own switches NCCL_DEBUG and NCCL_DEBUG_FILE. One line is one write, so
// that lines of many ranks do not mix. Any thread may log; nothing is logged in a hot path. Unlike NCCL,
// warnings are shown when NCCL_DEBUG is not set: a monitor that is silently inactive helps nobody.
#pragma once

namespace c4 {

enum class LogLevel { kNone = 0, kVersion = 1, kWarn = 2, kInfo = 3, kTrace = 4 };

LogLevel CurrentLogLevel();
// Reads NCCL_DEBUG and NCCL_DEBUG_FILE again (ncclResetDebugInit).
void ResetLog();
void Log(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace c4

#define C4_LOG_AT(level, ...)                                                \
  do {                                                                       \
    if (::c4::CurrentLogLevel() >= (level)) ::c4::Log((level), __VA_ARGS__); \
  } while (0)
#define C4_WARN(...) C4_LOG_AT(::c4::LogLevel::kWarn, __VA_ARGS__)
#define C4_INFO(...) C4_LOG_AT(::c4::LogLevel::kInfo, __VA_ARGS__)
