// c4 trace: the timeline of a job, for Perfetto.
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "c4d_master/recording.h"
#include "cli/exit_codes.h"
#include "cli/launch/job_log.h"
#include "cli/options.h"
#include "cli/trace/job_recordings.h"
#include "cli/trace/job_trace.h"
#include "cli/trace/perfetto_file.h"
#include "cli/trace/trace_moment.h"
#include "cli/verb.h"
#include "service/printable.h"
#include "service/status.h"
#include "service/text.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kSummary[] = "the timeline of a job, for Perfetto";

struct Asked {
  std::string what;
  std::string output;
  std::string from;
  std::string to;
  std::string by = "host";
  std::string log_dir;
  bool json = false;
};

int Fail(const absl::Status& status, int exit_code) {
  fprintf(stderr, "c4 trace: %s\n", std::string(status.message()).c_str());
  return exit_code;
}

// The files of what is asked for, oldest first.
absl::StatusOr<std::vector<std::string>> Recordings(const Asked& asked) {
  std::error_code error;
  if (fs::exists(asked.what, error)) return std::vector<std::string>{asked.what};
  const std::string root = asked.log_dir.empty() ? DefaultLogDir() : asked.log_dir;
  for (const JobRecord& record : ListJobRecords(root)) {
    if (!asked.what.empty() && record.job != asked.what) continue;
    std::vector<std::string> files = RecordingsIn(record.directory);
    if (files.empty()) {
      return absl::NotFoundError(service::Concat("nothing of the last minutes of job ",
                                                 service::Printable(record.job), " was recorded (",
                                                 record.directory, ")"));
    }
    return files;
  }
  return absl::NotFoundError(
      service::Concat("no file and no job of `c4 run` here ", asked.what.empty() ? "" : "has the name ",
                      asked.what.empty() ? "has left anything" : service::Printable(asked.what),
                      "; of a job that runs elsewhere: `c4 record --fine -o FILE`, then `c4 trace FILE`"));
}

absl::Status SetWindow(const Asked& asked, const std::vector<std::string>& files, TraceOptions* options) {
  if (asked.from.empty() && asked.to.empty()) return absl::OkStatus();
  const absl::StatusOr<RecordedTime> time = TimeOfRecordings(files);
  if (!time.ok()) return time.status();
  for (const auto& [text, target] : {std::pair(asked.from, &options->from_ns), {asked.to, &options->to_ns}}) {
    if (text.empty()) continue;
    const absl::StatusOr<int64_t> moment = ParseMoment(text, *time);
    if (!moment.ok()) return moment.status();
    *target = *moment;
  }
  if (options->from_ns > options->to_ns) {
    return absl::InvalidArgumentError("--from is later than --to");
  }
  return absl::OkStatus();
}

struct CloseFile {
  void operator()(FILE* file) const { (void)fclose(file); }
};

int Write(const Asked& asked, const Timeline& timeline) {
  const std::unique_ptr<FILE, CloseFile> file(fopen(asked.output.c_str(), "wbe"));
  if (file == nullptr) {
    return Fail(service::ErrnoStatus(errno, service::Concat("open ", asked.output)), kExitNoInput);
  }
  const PerfettoCounts counts = WritePerfetto(timeline, [&](std::string_view bytes) {
    return fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  });
  if (!counts.written || fflush(file.get()) != 0) {
    return Fail(service::ErrnoStatus(errno, service::Concat("write ", asked.output)), kExitNoInput);
  }
  if (asked.json) {
    printf("{\"rows\":%llu,\"events\":%llu,\"left_out\":%llu}\n",
           static_cast<unsigned long long>(counts.rows), static_cast<unsigned long long>(counts.events),
           static_cast<unsigned long long>(timeline.left_out));
    return kExitOk;
  }
  printf("%llu events in %llu rows in %s: open it at https://ui.perfetto.dev (nothing is sent there)\n",
         static_cast<unsigned long long>(counts.events), static_cast<unsigned long long>(counts.rows),
         asked.output.c_str());
  if (counts.events == 0) printf("nothing happened within --from and --to\n");
  if (timeline.left_out > 0) {
    printf("%llu events more were left out: give --from and --to\n",
           static_cast<unsigned long long>(timeline.left_out));
  }
  return kExitOk;
}

int RunTrace(const Arguments& arguments) {
  Asked asked;
  Options options("trace", kSummary);
  options.Text(
      "WHAT", &asked.what, "",
      "a recording (c4 record), or a job of `c4 run`, of whose last minutes it is; none: the newest job");
  options.Text("-o,--output", &asked.output, "FILE", "where the timeline is written");
  options.Text(
      "--from", &asked.from, "MOMENT",
      "12.5: seconds since the recording began; -30: before its end; 03:12:07; 2026-01-31T03:12:07Z");
  options.Text("--to", &asked.to, "MOMENT", "likewise; default: the end");
  options.Text("--by", &asked.by, "host|group",
               "operations below their host and rank, or their communicator");
  options.Flag("--json", &asked.json, R"(at the end one JSON document: {"rows","events","left_out"})");
  DeclareLogDir(&options, &asked.log_dir);
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (asked.output.empty()) return UsageError("trace", "say where to with -o FILE");
  if (asked.by != "host" && asked.by != "group") return UsageError("trace", "--by is host or group");
  const absl::StatusOr<std::vector<std::string>> files = Recordings(asked);
  if (!files.ok()) return Fail(files.status(), kExitNoInput);
  TraceOptions wanted;
  wanted.by = asked.by == "group" ? TraceBy::kGroup : TraceBy::kHost;
  if (const absl::Status window = SetWindow(asked, *files, &wanted); !window.ok()) {
    return Fail(window, kExitUsage);
  }
  JobTrace trace(wanted);
  const absl::StatusOr<c4d::Replay> replay = c4d::ReplayRecordings(
      *files, {}, [&](const v1::RecordedBatch& recorded, const c4d::Host& host, c4d::Now now) {
        trace.Observe(recorded, host, now);
      });
  if (!replay.ok()) return Fail(replay.status(), kExitUsage);
  if (!replay->end.ok()) fprintf(stderr, "c4 trace: %s\n", std::string(replay->end.message()).c_str());
  return Write(asked, trace.Finish(*replay));
}

}  // namespace

constinit const Verb kTraceVerb = {"trace", kSummary, RunTrace};

}  // namespace c4::cli
