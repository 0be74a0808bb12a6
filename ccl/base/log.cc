#include "ccl/base/log.h"

#include <atomic>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <fcntl.h>
#include <mutex>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "ccl/base/caught.h"
#include "ccl/base/clock.h"
#include "ccl/base/identity.h"
#include "ccl/base/knobs.h"

namespace c4 {
namespace {

std::atomic<int> current_level{-1};
std::atomic<int> log_fd{STDERR_FILENO};
std::mutex open_mutex;

const char* Word(LogLevel level) {
  switch (level) {
    case LogLevel::kWarn:
      return "WARN";
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kTrace:
      return "TRACE";
    default:
      return "NOTE";
  }
}

std::string ExpandFileName(const std::string& pattern) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '%' && i + 1 < pattern.size() && (pattern[i + 1] == 'h' || pattern[i + 1] == 'p')) {
      name += pattern[++i] == 'h' ? HostName() : std::to_string(getpid());
    } else {
      name += pattern[i];
    }
  }
  return name;
}

// "[job night, rank 3] "; of many ranks' lines in one file, which are whose. A job's name comes from
// anywhere: nothing of it may steer a terminal, or take the room that the sentence needs.
std::string WhoText() {
  constexpr size_t kMostBytes = 64;
  const JobIdentity job = ReadJobIdentity();
  std::string text;
  if (!job.name.empty()) {
    text = "job " + job.name.substr(0, kMostBytes) + (job.name.size() > kMostBytes ? "..." : "");
    for (char& c : text) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    }
  }
  if (job.rank >= 0) text += (text.empty() ? "rank " : ", rank ") + std::to_string(job.rank);
  return text.empty() ? text : "[" + text + "] ";
}

int ReadLevel() {
  const std::string word = KnobText(Knob::NCCL_DEBUG);
  const char* const words[] = {"NONE", "VERSION", "WARN", "INFO", "TRACE"};
  for (int i = 0; i < 5; ++i) {
    if (word == words[i]) return i;
  }
  return static_cast<int>(LogLevel::kWarn);
}

void Open() {
  const std::lock_guard<std::mutex> lock(open_mutex);
  if (current_level.load(std::memory_order_acquire) >= 0) return;
  const std::string pattern = KnobText(Knob::NCCL_DEBUG_FILE);
  if (!pattern.empty() && log_fd.load() == STDERR_FILENO) {
    const int fd = open(ExpandFileName(pattern).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0) log_fd.store(fd);  // never closed: a logging thread may hold it at any time
  }
  current_level.store(ReadLevel(), std::memory_order_release);
}

}  // namespace

LogLevel CurrentLogLevel() {
  if (current_level.load(std::memory_order_acquire) < 0) Open();
  return static_cast<LogLevel>(current_level.load(std::memory_order_relaxed));
}

void ResetLog() {
  current_level.store(-1, std::memory_order_release);
}

void Log(LogLevel level, const char* format, ...) {
  char line[1024];
  std::string who;
  if (level == LogLevel::kWarn) {
    (void)Caught([&who] {
      who = WhoText();
      return Ok();
    });
  }
  int used = snprintf(line, sizeof line, "%s:%d:%ld %sC4 %s ", HostName().c_str(), static_cast<int>(getpid()),
                      syscall(SYS_gettid), who.c_str(), Word(level));
  if (used < 0) return;
  va_list arguments;
  va_start(arguments, format);
  const int text = vsnprintf(line + used, sizeof line - static_cast<size_t>(used), format, arguments);
  va_end(arguments);
  if (text < 0) return;
  used += text;
  if (used > static_cast<int>(sizeof line) - 1) used = static_cast<int>(sizeof line) - 1;
  line[used++] = '\n';
  ssize_t ignored = write(log_fd.load(), line, static_cast<size_t>(used));
  (void)ignored;  // a log that cannot be written is no reason to disturb the job
}

LogLevel FailureLevel::Next(uint64_t now_ns) {
  constexpr uint64_t kEchoNs = 10000000000u;
  uint64_t warned_ns = warned_ns_.load(std::memory_order_relaxed);
  if (warned_ns != 0 && now_ns - warned_ns < kEchoNs) return LogLevel::kInfo;
  // Of two that come at once, one is first.
  return warned_ns_.compare_exchange_strong(warned_ns, now_ns) ? LogLevel::kWarn : LogLevel::kInfo;
}

LogLevel LevelOfFailure() {
  static auto* const level = new FailureLevel();
  return level->Next(MonotonicNs());
}

bool LogLimit::Pass(uint64_t now_ns, uint64_t* kept_back) {
  constexpr uint64_t kMinuteNs = 60000000000u;
  constexpr uint32_t kMostLines = 10;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (minute_ns_ == 0 || now_ns - minute_ns_ >= kMinuteNs) {
    minute_ns_ = now_ns;
    passed_ = 0;
  }
  if (passed_ >= kMostLines) {
    ++kept_back_;
    return false;
  }
  ++passed_;
  *kept_back = std::exchange(kept_back_, 0);
  return true;
}

void WarnTurnedAway(const char* who, const char* what, const char* why) {
  static auto* const limit = new LogLimit();
  uint64_t kept_back = 0;
  if (!limit->Pass(MonotonicNs(), &kept_back)) return;
  if (kept_back > 0) C4_WARN("turned %" PRIu64 " others away since the last such line", kept_back);
  C4_WARN("turned %s away from %s: %s", who, what, why);
}

}  // namespace c4
