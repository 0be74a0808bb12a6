// The way from this agent to the master of one job: a thread of its own with one bidirectional stream. It
// writes a batch, reads its answer, then the next. Offer never waits: when the master is away, slow or
// stopped, a bounded backlog fills and the oldest batches are dropped (their operations move on into the
// next one, and they are counted). The thread reconnects for ever, with back-off, and looks the master up
// again each time, so that a restarted master may sit on another port. A batch leaves the backlog when it
// was answered: after a break it may come twice, with the same sequence number.
// Changes of state are logged once, not each attempt. Offer, and the questions, from any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "c4/v1/telemetry.pb.h"
#include "c4a/master_clock.h"
#include "service/credentials.h"
#include "service/status.h"
#include "service/wakeup.h"

namespace grpc {
class ClientContext;
}  // namespace grpc

namespace c4::agent {

struct UplinkOptions {
  std::string job;
  // Where the job's master listens now: asked before each attempt to connect, on the uplink's thread.
  std::function<absl::StatusOr<service::MasterAddress>()> find_master;
  service::Credentials credentials;
  // The master wants the job's processes to record at this level; on the uplink's thread.
  std::function<void(v1::RecordLevel)> on_level;
  size_t backlog_batches = 64;
  size_t profiled_batches = 16;  // of these, the newest, which keep the profiles of their processes
  absl::Duration first_pause = absl::Milliseconds(100);
  absl::Duration longest_pause = absl::Seconds(2);
};

class Uplink {
 public:
  explicit Uplink(UplinkOptions options);
  ~Uplink();  // ends the stream at once; what was not sent is lost
  Uplink(const Uplink&) = delete;
  Uplink& operator=(const Uplink&) = delete;

  void Offer(v1::TelemetryBatch batch) ABSL_LOCKS_EXCLUDED(mutex_);

  bool connected() const ABSL_LOCKS_EXCLUDED(mutex_);  // the last batch sent was answered
  bool idle() const ABSL_LOCKS_EXCLUDED(mutex_);       // all batches were answered
  uint64_t sent() const ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t dropped() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Until the stream breaks or the uplink ends.
  absl::Status Serve(const service::MasterAddress& master) ABSL_LOCKS_EXCLUDED(mutex_);
  bool TakeBatch(v1::TelemetryBatch* batch) ABSL_LOCKS_EXCLUDED(mutex_);
  void PutBack(v1::TelemetryBatch batch) ABSL_LOCKS_EXCLUDED(mutex_);
  // `sent_ns`, `answered_ns`: on the node's clock.
  void Heed(const v1::TelemetryReply& reply, int64_t sent_ns, int64_t answered_ns);
  void Answered(const std::string& address) ABSL_LOCKS_EXCLUDED(mutex_);
  void Trim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Disconnected(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);

  const UplinkOptions options_;
  mutable absl::Mutex mutex_;
  std::deque<v1::TelemetryBatch> backlog_ ABSL_GUARDED_BY(mutex_);
  bool in_flight_ ABSL_GUARDED_BY(mutex_) = false;  // one batch is out of the backlog, not answered yet
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  service::Wakeup end_;  // stop_ was set
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the stream under way
  MasterClock clock_;                                               // the thread's own, as what follows
  std::string told_;  // what the log says of the connection; the thread's own
  std::thread thread_;
};

}  // namespace c4::agent
