// The library's log, under NCCL's own switches NCCL_DEBUG and NCCL_DEBUG_FILE. One line is one write, so
// that lines of many ranks do not mix; it names host, process and thread, and a warning also the job and the
// rank in it, where the environment tells them. Any thread may log; nothing is logged in a hot path. Unlike
// NCCL, warnings are shown when NCCL_DEBUG is not set: a monitor that is silently inactive helps nobody.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace c4 {

enum class LogLevel { kNone = 0, kVersion = 1, kWarn = 2, kInfo = 3, kTrace = 4 };

LogLevel CurrentLogLevel();
// Reads NCCL_DEBUG and NCCL_DEBUG_FILE again (ncclResetDebugInit).
void ResetLog();
void Log(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// A peer that is lost fails every communicator of the process with it, and each call on them that comes
// later: of that the first line within ten seconds is a warning, the others are for NCCL_DEBUG=INFO. Any
// thread.
class FailureLevel {
 public:
  LogLevel Next(uint64_t now_ns);

 private:
  std::atomic<uint64_t> warned_ns_{0};  // 0: never
};

// For the failures of this process's communicators, now.
LogLevel LevelOfFailure();

// For lines that strangers can cause as often as they like: ten a minute go through, the others are counted.
// Any thread.
class LogLimit {
 public:
  // Whether a line may be written now; *kept_back: how many were not since the last one that was.
  bool Pass(uint64_t now_ns, uint64_t* kept_back);

 private:
  std::mutex mutex_;
  uint64_t minute_ns_ = 0;  // when the present minute began
  uint32_t passed_ = 0;     // in it
  uint64_t kept_back_ = 0;
};

// Of everybody who is turned away from this process's ports: one budget for all. Warns that `who` is turned
// away from `what`, and why.
void WarnTurnedAway(const char* who, const char* what, const char* why);

}  // namespace c4

#define C4_LOG_AT(level, ...)                                                \
  do {                                                                       \
    if (::c4::CurrentLogLevel() >= (level)) ::c4::Log((level), __VA_ARGS__); \
  } while (0)
#define C4_WARN(...) C4_LOG_AT(::c4::LogLevel::kWarn, __VA_ARGS__)
#define C4_INFO(...) C4_LOG_AT(::c4::LogLevel::kInfo, __VA_ARGS__)
