#include "service/log.h"

#include <atomic>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <spdlog/formatter.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "service/config.h"
#include "service/printable.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr const char* kLevelNames[] = {"debug", "info", "warning", "error"};

const char* LevelName(LogLevel level) {
  return kLevelNames[static_cast<int>(level)];
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

LogLevel FromSpdlog(spdlog::level::level_enum level) {
  if (level <= spdlog::level::debug) return LogLevel::kDebug;
  if (level == spdlog::level::info) return LogLevel::kInfo;
  return level == spdlog::level::warn ? LogLevel::kWarning : LogLevel::kError;
}

// "2026-07-01T12:00:00.123456Z": UTC, so that lines of several nodes sort together.
std::string TimeText(std::chrono::system_clock::time_point time) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(since - seconds);
  const time_t whole = seconds.count();
  tm parts{};
  gmtime_r(&whole, &parts);
  char date[32];
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  char text[48];
  snprintf(text, sizeof text, "%s.%06dZ", date, static_cast<int>(micros.count()));
  return text;
}

std::string ThreadName() {
  char name[16] = "";
  if (pthread_getname_np(pthread_self(), name, sizeof name) != 0) return "?";
  return name;
}

// Makes the whole line; spdlog contributes sinks, levels and flushing.
class LineFormatter final : public spdlog::formatter {
 public:
  LineFormatter(bool json, std::string program) : json_(json), program_(std::move(program)) {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& destination) override {
    const LogLevel level = FromSpdlog(message.level);
    const std::string time = TimeText(message.time);
    const std::string_view payload(message.payload.data(), message.payload.size());
    const std::string line =
        json_ ? JsonLogLine(time, level, program_, ThreadName(), payload)
              : Concat(time, " ", LevelName(level), " ", program_, ": ", Printable(payload));
    destination.append(line.data(), line.data() + line.size());
    destination.push_back('\n');
  }

  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<LineFormatter>(json_, program_);
  }

 private:
  const bool json_;
  const std::string program_;
};

struct LogState {
  std::mutex mutex;
  std::shared_ptr<spdlog::logger> logger;
  std::atomic<int> level{static_cast<int>(LogLevel::kInfo)};
};

std::shared_ptr<spdlog::logger> MakeLogger(spdlog::sink_ptr sink, bool json, std::string_view program) {
  auto logger = std::make_shared<spdlog::logger>(std::string(program), std::move(sink));
  logger->set_formatter(std::make_unique<LineFormatter>(json, std::string(program)));
  logger->set_level(spdlog::level::trace);  // LogEnabled decides
  logger->flush_on(spdlog::level::info);
  // A full disk: spdlog would print each failure; a daemon goes on without these lines.
  logger->set_error_handler([](const std::string&) {});
  return logger;
}

// Lives for ever: other threads may log while the process ends.
LogState& State() {
  static LogState* const state = [] {
    auto* made = new LogState;
    made->logger = MakeLogger(std::make_shared<spdlog::sinks::stderr_sink_mt>(), false, "c4");
    return made;
  }();
  return *state;
}

absl::StatusOr<LogLevel> ParseLevel(const std::string& word) {
  for (int i = 0; i < 4; ++i) {
    if (word == kLevelNames[i]) return static_cast<LogLevel>(i);
  }
  return absl::InvalidArgumentError(Concat("log level \"", word, "\": give debug, info, warning or error"));
}

void AppendJsonText(std::string* line, std::string_view text) {
  line->push_back('"');
  for (const char c : ToUtf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      line->push_back('\\');
      line->push_back(c);
    } else if (c == '\n') {
      line->append("\\n");
    } else if (byte < 0x20 || byte == 0x7f) {
      char escape[8];
      snprintf(escape, sizeof escape, "\\u%04x", byte);
      line->append(escape);
    } else {
      line->push_back(c);
    }
  }
  line->push_back('"');
}

}  // namespace

std::string JsonLogLine(std::string_view time, LogLevel level, std::string_view program,
                        std::string_view thread, std::string_view message) {
  std::string line = "{\"time\":";
  AppendJsonText(&line, time);
  line += ",\"level\":";
  AppendJsonText(&line, LevelName(level));
  line += ",\"program\":";
  AppendJsonText(&line, program);
  line += ",\"thread\":";
  AppendJsonText(&line, thread);
  line += ",\"message\":";
  AppendJsonText(&line, message);
  line += "}";
  return line;
}

absl::Status InitLog(const LogOptions& options, std::string_view program) {
  const absl::StatusOr<LogLevel> level = ParseLevel(options.level);
  if (!level.ok()) return level.status();
  if (options.format != "text" && options.format != "json") {
    return absl::InvalidArgumentError(Concat("log format \"", options.format, "\": give text or json"));
  }
  spdlog::sink_ptr sink;
  try {
    if (options.file.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file);
    }
  } catch (const spdlog::spdlog_ex& error) {
    return absl::InvalidArgumentError(Concat("cannot log to ", options.file, ": ", error.what()));
  }
  std::shared_ptr<spdlog::logger> logger = MakeLogger(std::move(sink), options.format == "json", program);
  LogState& state = State();
  const std::lock_guard lock(state.mutex);
  state.logger = std::move(logger);
  state.level = static_cast<int>(*level);
  return absl::OkStatus();
}

void FlushLog() {
  LogState& state = State();
  const std::lock_guard lock(state.mutex);
  state.logger->flush();
}

bool LogEnabled(LogLevel level) {
  return static_cast<int>(level) >= State().level.load(std::memory_order_relaxed);
}

void Log(LogLevel level, std::string_view message) {
  LogState& state = State();
  std::shared_ptr<spdlog::logger> logger;
  {
    const std::lock_guard lock(state.mutex);
    logger = state.logger;
  }
  logger->log(ToSpdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace c4::service
