// The log of the daemons: one line an event, on standard error or in a file, as text or as JSON lines
// ({"time","level","program","thread","message"}). Log once, where it is detected; say what it means and
// what to do; repeat nothing in a loop (log the change of state).
//
//   LogWarning("segment ", name, ": ", reason, "; it is skipped until it changes");
//
// Before InitLog lines go to standard error at level info. Any thread; a line is never torn. A log file
// that cannot be written never stops a daemon.
#pragma once

#include <string_view>

#include "service/status.h"
#include "service/text.h"

namespace c4::service {

struct LogOptions;  // service/config.h

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// Fails when the file cannot be opened or a word of the options is unknown; the log stays as it was.
absl::Status InitLog(const LogOptions& options, std::string_view program);

// Flushes; call at the end of main.
void FlushLog();

bool LogEnabled(LogLevel level);
void Log(LogLevel level, std::string_view message);

template <typename... Parts>
void LogDebug(const Parts&... parts) {
  if (LogEnabled(LogLevel::kDebug)) Log(LogLevel::kDebug, Concat(parts...));
}
template <typename... Parts>
void LogInfo(const Parts&... parts) {
  if (LogEnabled(LogLevel::kInfo)) Log(LogLevel::kInfo, Concat(parts...));
}
template <typename... Parts>
void LogWarning(const Parts&... parts) {
  if (LogEnabled(LogLevel::kWarning)) Log(LogLevel::kWarning, Concat(parts...));
}
template <typename... Parts>
void LogError(const Parts&... parts) {
  if (LogEnabled(LogLevel::kError)) Log(LogLevel::kError, Concat(parts...));
}

// One JSON line without its line end; for the formatter and its test.
std::string JsonLogLine(std::string_view time, LogLevel level, std::string_view program,
                        std::string_view thread, std::string_view message);

}  // namespace c4::service
