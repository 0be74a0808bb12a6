// c4 record: writes what the agents tell a job's master to a file.
#include <atomic>
#include <cstdio>
#include <thread>

#include "absl/time/clock.h"
#include "c4d_master/recording.h"
#include "cli/clients/master_client.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/verb.h"
#include "service/signals.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "record the telemetry of a job to a file";
constexpr absl::Duration kCallLimit = absl::Seconds(5);

int Fail(const absl::Status& status, int exit_code) {
  fprintf(stderr, "c4 record: %s\n", std::string(status.message()).c_str());
  return exit_code;
}

// Ctrl-C ends a recording as the end of its time does: what has come is written, and the level set back.
class Interruptible {
 public:
  explicit Interruptible(const MasterClient* client)
      : waiter_([this, client] {
          while (!done_) {
            if (!service::WaitForSignal(kSignalLook).has_value()) continue;
            interrupted_ = true;
            client->StopWatching();
            return;
          }
        }) {}
  ~Interruptible() {
    done_ = true;
    waiter_.join();
  }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  bool interrupted() const { return interrupted_; }

 private:
  static constexpr absl::Duration kSignalLook = absl::Milliseconds(100);

  std::atomic<bool> done_ = false;
  std::atomic<bool> interrupted_ = false;
  std::thread waiter_;
};

int RunRecord(const Arguments& arguments) {
  MasterOptions master;
  std::string file;
  double seconds = 60;
  bool fine = false;
  bool json = false;
  Options options("record", kSummary);
  master.Declare(&options);
  options.Text("-o,--output", &file, "FILE", "the recording (docs/formats/recording.md)");
  options.Seconds("--seconds", &seconds, 1, 86400,
                  "for how long; the end of the job ends it, too, and Ctrl-C");
  options.Flag("--fine", &fine,
               "meanwhile let the job record each operation and mark, as `c4 whatif` needs it");
  options.Flag("--json", &json, "at the end one JSON document: {\"batches\",\"dropped\"}");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (file.empty()) return UsageError("record", "say where to with -o FILE");
  service::BlockSignals();
  const absl::StatusOr<FoundMaster> found = FindMaster(master);
  if (!found.ok()) return Fail(found.status(), kExitUnreachable);
  const absl::StatusOr<std::unique_ptr<MasterClient>> client = MasterClient::Open(found->master, master);
  if (!client.ok()) return Fail(client.status(), kExitUnreachable);
  absl::StatusOr<std::unique_ptr<c4d::RecordingWriter>> writer = c4d::RecordingWriter::Create(file);
  if (!writer.ok()) return Fail(writer.status(), kExitUsage);
  v1::RecordLevel former = v1::RECORD_LEVEL_UNSPECIFIED;
  if (fine) {
    const absl::StatusOr<v1::SetLevelReply> asked = (*client)->SetLevel(v1::RECORD_LEVEL_FINE, kCallLimit);
    if (!asked.ok()) return Fail(asked.status(), kExitUnreachable);
    former = asked->former();
  }
  uint64_t batches = 0;
  uint64_t dropped = 0;
  absl::Status written;
  const Interruptible interruptible(client->get());
  const absl::Status ended =
      (*client)->Record(absl::Seconds(seconds), [&](const v1::RecordedBatch& received) {
        v1::RecordedBatch batch = received;
        if (batches == 0) batch.set_job(found->job);
        ++batches;
        dropped = std::max(dropped, batch.dropped());
        written = (*writer)->Write(batch);
        return written.ok();
      });
  // The usual level again, where the master never asked for one; a job that is over needs none.
  if (former == v1::RECORD_LEVEL_UNSPECIFIED) former = v1::RECORD_LEVEL_COARSE;
  if (fine) (void)(*client)->SetLevel(former, kCallLimit);
  if (written.ok()) written = (*writer)->Close();
  if (!written.ok()) return Fail(written, kExitUsage);
  if (batches == 0 && !absl::IsDeadlineExceeded(ended) && !interruptible.interrupted())
    return Fail(ended, kExitUnreachable);
  if (json) {
    printf("{\"batches\":%llu,\"dropped\":%llu}\n", static_cast<unsigned long long>(batches),
           static_cast<unsigned long long>(dropped));
    return kExitOk;
  }
  printf("%llu batches in %s%s\n", static_cast<unsigned long long>(batches), file.c_str(),
         dropped == 0 ? "" : "; some were lost because this reader was too slow");
  return kExitOk;
}

}  // namespace

constinit const Verb kRecordVerb = {"record", kSummary, RunRecord};

}  // namespace c4::cli
