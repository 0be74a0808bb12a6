#include "c4d_master/recording.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <map>
#include <set>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>

#include "c4d_master/c4d_handler.h"
#include "c4d_master/recording_format.h"
#include "c4d_master/telemetry_decode.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/gzip_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl.h"
#include "google/protobuf/util/delimited_message_util.h"
#include "service/printable.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

namespace io = google::protobuf::io;
using service::Concat;

constexpr char kMagic[] = "C4RECORD";  // and one byte of version, then gzip
constexpr size_t kMagicBytes = 8;
constexpr uint32_t kMaxMessageBytes = 64U << 20;
constexpr int64_t kTickNs = kSecondNs / 10;
constexpr int64_t kMaxGapNs = 600 * kSecondNs;
constexpr int64_t kMaxClockNs = int64_t{1} << 62;  // of either clock; later ones are damage

absl::Status ReadStream(io::ZeroCopyInputStream* file, const std::string& path,
                        const std::function<void(const v1::RecordedBatch&)>& on_batch) {
  char header[kMagicBytes + 1] = {};
  {
    io::CodedInputStream coded(file);
    if (!coded.ReadRaw(header, sizeof(header)) || !std::equal(kMagic, kMagic + kMagicBytes, header)) {
      return absl::InvalidArgumentError(Concat(path, " is no recording of `c4 record`"));
    }
  }
  if (static_cast<uint8_t>(header[kMagicBytes]) != kRecordingVersion) {
    return absl::InvalidArgumentError(
        Concat(path, " has version ", static_cast<int>(static_cast<uint8_t>(header[kMagicBytes])),
               " of the format; this program reads version ", static_cast<int>(kRecordingVersion)));
  }
  io::GzipInputStream gzip(file, io::GzipInputStream::GZIP);
  uint64_t batches = 0;
  for (;;) {
    const auto broken = [&](const char* what) {
      return absl::DataLossError(Concat(path, what, " after ", batches, " batches; they were used"));
    };
    io::CodedInputStream coded(&gzip);
    uint32_t bytes = 0;
    const void* data = nullptr;
    int available = 0;
    if (!coded.GetDirectBufferPointer(&data, &available)) {
      // zlib says Z_STREAM_END (1) where the writer closed the stream.
      return gzip.ZlibErrorCode() == 1 ? absl::OkStatus() : broken(" breaks off or is damaged");
    }
    if (!coded.ReadVarint32(&bytes)) return broken(" breaks off");
    if (bytes > kMaxMessageBytes) return broken(" is damaged");
    v1::RecordedBatch batch;
    const io::CodedInputStream::Limit limit = coded.PushLimit(static_cast<int>(bytes));
    if (!batch.MergeFromCodedStream(&coded) || coded.BytesUntilLimit() != 0) {
      return broken(" breaks off or is damaged");
    }
    coded.PopLimit(limit);
    service::MakePrintable(&batch);  // a file of somebody's; what comes of it is read on a terminal
    ++batches;
    on_batch(batch);
  }
}

}  // namespace

struct RecordingWriter::Parts {
  int fd = -1;
  std::string path;
  std::unique_ptr<io::FileOutputStream> file;
  std::unique_ptr<io::GzipOutputStream> gzip;
  uint64_t written = 0;
};

RecordingWriter::RecordingWriter(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

RecordingWriter::~RecordingWriter() {
  (void)Close();
}

absl::StatusOr<std::unique_ptr<RecordingWriter>> RecordingWriter::Create(const std::string& path) {
  auto parts = std::make_unique<Parts>();
  parts->path = path;
  parts->fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (parts->fd < 0) return service::ErrnoStatus(errno, Concat("open ", path));
  char header[kMagicBytes + 1];
  std::copy_n(kMagic, kMagicBytes, header);
  header[kMagicBytes] = static_cast<char>(kRecordingVersion);
  if (write(parts->fd, header, sizeof(header)) != static_cast<ssize_t>(sizeof(header))) {
    const absl::Status status = service::ErrnoStatus(errno, Concat("write ", path));
    close(parts->fd);
    return status;
  }
  parts->file = std::make_unique<io::FileOutputStream>(parts->fd);
  parts->gzip = std::make_unique<io::GzipOutputStream>(parts->file.get());
  return std::unique_ptr<RecordingWriter>(new RecordingWriter(std::move(parts)));
}

absl::Status RecordingWriter::Write(const v1::RecordedBatch& batch) {
  bool good = google::protobuf::util::SerializeDelimitedToZeroCopyStream(batch, parts_->gzip.get());
  constexpr uint64_t kFlushEvery = 256;
  if (good && ++parts_->written % kFlushEvery == 0) return Flush();
  return good ? absl::OkStatus()
              : service::ErrnoStatus(parts_->file->GetErrno(), Concat("write ", parts_->path));
}

absl::Status RecordingWriter::Flush() {
  if (parts_->gzip->Flush() && parts_->file->Flush()) return absl::OkStatus();
  return service::ErrnoStatus(parts_->file->GetErrno(), Concat("write ", parts_->path));
}

absl::Status RecordingWriter::Close() {
  if (parts_->fd < 0) return absl::OkStatus();
  const bool good = parts_->gzip->Close() && parts_->file->Flush();
  const int error = parts_->file->GetErrno();
  parts_->gzip.reset();
  parts_->file.reset();
  close(parts_->fd);
  parts_->fd = -1;
  return good ? absl::OkStatus() : service::ErrnoStatus(error, Concat("write ", parts_->path));
}

bool IsRecording(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  char magic[kMagicBytes] = {};
  struct stat found {};
  const bool is = fstat(fd, &found) == 0 && S_ISREG(found.st_mode) &&
                  read(fd, magic, sizeof magic) == static_cast<ssize_t>(sizeof magic) &&
                  std::equal(kMagic, kMagic + kMagicBytes, magic);
  close(fd);
  return is;
}

absl::Status ReadRecording(const std::string& path,
                           const std::function<void(const v1::RecordedBatch&)>& on_batch) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return service::ErrnoStatus(errno, Concat("open ", path));
  io::FileInputStream file(fd);
  file.SetCloseOnDelete(true);
  return ReadStream(&file, path, on_batch);
}

absl::Status ReadRecordingBytes(std::string_view bytes, const std::string& name,
                                const std::function<void(const v1::RecordedBatch&)>& on_batch) {
  io::ArrayInputStream array(bytes.data(), static_cast<int>(std::min<size_t>(bytes.size(), INT32_MAX)));
  return ReadStream(&array, name, on_batch);
}

namespace {

// Where everybody stands, as their agents told it last.
std::vector<ReplayPlace> PlacesOf(const std::map<std::string, Host>& hosts) {
  std::vector<ReplayPlace> places;
  std::set<uint64_t> waited_in;
  for (const auto& [name, host] : hosts) {
    for (const Process& process : host.processes) {
      for (const Membership& membership : process.communicators) {
        const bool collective = membership.started.count > membership.finished.count;
        const bool waits = collective || membership.p2p_started.count > membership.p2p_finished.count;
        const uint64_t operation =
            collective || !waits ? membership.finished.count : membership.p2p_finished.count;
        places.push_back({membership.communicator_id, process.rank, waits, operation});
        if (waits) waited_in.insert(membership.communicator_id);
      }
    }
  }
  std::erase_if(places, [&](const ReplayPlace& p) { return waited_in.count(p.communicator_id) == 0; });
  std::sort(places.begin(), places.end(), [](const ReplayPlace& a, const ReplayPlace& b) {
    return std::tie(a.communicator_id, a.rank) < std::tie(b.communicator_id, b.rank);
  });
  return places;
}

}  // namespace

absl::StatusOr<Replay> ReplayRecording(const std::string& path, const Policy& policy,
                                       const OnReplayed& on_replayed, const OnReplayTick& on_tick) {
  return ReplayRecordings({path}, policy, on_replayed, on_tick);
}

absl::StatusOr<Replay> ReplayRecordings(const std::vector<std::string>& paths, const Policy& policy,
                                        const OnReplayed& on_replayed, const OnReplayTick& on_tick) {
  Replay replay;
  service::Metrics metrics;
  VerdictStore store(":memory:");
  std::unique_ptr<C4dHandler> handler;
  Now now;
  int64_t begin_ns = 0;
  int64_t next_tick_ns = 0;
  Now tick_at;
  std::set<std::string> confirmed;
  const auto tick = [&](int64_t at_ns) {
    const Now moment{at_ns, now.UnixOf(at_ns)};
    const size_t before = replay.changes.size();
    tick_at = moment;
    handler->Tick(moment);
    if (on_tick) on_tick(handler.get(), moment);
    if (replay.changes.size() == before) return;
    replay.matrix = handler->GetMatrix(moment);
    for (size_t i = before; i < replay.changes.size(); ++i) {
      const v1::Verdict& verdict = replay.changes[i].verdict;
      if (verdict.state() != v1::VERDICT_STATE_CONFIRMED || !confirmed.insert(verdict.id()).second) continue;
      v1::GetStatusReply status = handler->GetStatus(moment);
      std::vector<ReplayPlace> places = PlacesOf(handler->hosts());
      replay.scenes.push_back({replay.changes[i], std::move(places), replay.matrix, std::move(status)});
    }
  };
  const auto take = [&](const v1::RecordedBatch& recorded) {
    if (recorded.arrival_monotonic_ns() < 0 || recorded.arrival_monotonic_ns() > kMaxClockNs ||
        recorded.arrival_unix_ns() < 0 || recorded.arrival_unix_ns() > kMaxClockNs) {
      ++replay.refused;
      return;
    }
    if (handler == nullptr) {
      HandlerOptions options;
      options.job = recorded.job();
      for (const v1::ProcessReport& report : recorded.batch().processes()) {
        if (options.job.empty()) options.job = report.job();
      }
      if (options.job.empty()) return;  // a node without processes; the next one tells
      options.master_epoch = 1;
      options.log_verdicts = false;
      options.policy = policy;
      handler = std::make_unique<C4dHandler>(options, &store, &metrics);
      replay.job = options.job;
      handler->Subscribe([&](const v1::Verdict& verdict) {
        replay.changes.push_back({tick_at.monotonic_ns - begin_ns, tick_at.unix_ns, verdict});
      });
      begin_ns = next_tick_ns = recorded.arrival_monotonic_ns();
    }
    const int64_t arrival_ns = recorded.arrival_monotonic_ns();
    // A clock that jumps is damage or another machine's; it is not waited for.
    if (arrival_ns - next_tick_ns > kMaxGapNs) next_tick_ns = arrival_ns;
    now = {arrival_ns, recorded.arrival_unix_ns()};
    for (; next_tick_ns <= arrival_ns; next_tick_ns += kTickNs) tick(next_tick_ns);
    ++replay.batches;
    const std::string& judged_by = recorded.policy_version();
    std::vector<std::string>& policies = replay.recorded_policies;
    if (!judged_by.empty() && (policies.empty() || policies.back() != judged_by)) {
      policies.push_back(judged_by);
    }
    replay.dropped = std::max(replay.dropped, recorded.dropped());
    if (!handler->Ingest(recorded.batch(), now).ok()) {
      ++replay.refused;
      return;
    }
    if (on_replayed == nullptr) return;
    const auto host = handler->hosts().find(CutText(recorded.batch().host()));
    if (host != handler->hosts().end()) on_replayed(recorded, host->second, now);
  };
  for (const std::string& path : paths) {
    replay.end = ReadRecording(path, take);
    if (!replay.end.ok() && !absl::IsDataLoss(replay.end)) return replay.end;
  }
  if (handler == nullptr) {
    return replay.end.ok() ? absl::InvalidArgumentError(Concat(paths.back(), " holds no telemetry of a job"))
                           : replay.end;
  }
  tick(now.monotonic_ns);
  if (replay.matrix.cells().empty()) replay.matrix = handler->GetMatrix(now);
  replay.verdicts = handler->ListVerdicts(/*include_cleared=*/true);
  replay.status = handler->GetStatus(now);
  replay.iterations = handler->GetIterations(0, now);
  replay.begin_ns = begin_ns;
  replay.length_ns = now.monotonic_ns - begin_ns;
  replay.end_unix_ns = now.unix_ns;
  return replay;
}

}  // namespace c4::c4d
