// The way from this agent to the master of one job: a thread of its own with one bidirectional stream. It
// writes a batch, reads its answer, then writes the newest that there is by then. A batch that is offered is
// whole: one that had to wait is superseded by the next, which takes over what it counts and profiles; so a
// master that is slow hears seldom, and never of the past. What is written is what has changed since the
// batch that the master took in last (batch_changes.h), where it says that it holds that, and all of it now
// and then. Offer never waits. The thread reconnects for ever, with back-off, and looks the master up again
// each time, so that a restarted master may sit on another port. A batch that was not answered comes again
// after a break, with the same sequence number. Changes of state are logged once, not each attempt. Offer,
// and the questions, from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
class Channel;
class ClientContext;
}  // namespace grpc

namespace c4::agent {

struct UplinkOptions {
  std::string job;
  // Where the job's master listens now: asked before each attempt to connect, on the uplink's thread.
  std::function<absl::StatusOr<service::MasterAddress>()> find_master;
  service::Credentials credentials;
  // The master wants the job's processes to record at this level, or (unspecified) no longer says; on the
  // uplink's thread. A wish ends with its master: with the first answer of another one that says nothing, or
  // `level_patience` after the last answer of any.
  std::function<void(v1::RecordLevel)> on_level;
  // A master has answered over this channel; and it no longer does. On the uplink's thread.
  std::function<void(const std::shared_ptr<grpc::Channel>&, const service::MasterAddress&)> on_connected;
  std::function<void()> on_lost;
  absl::Duration level_patience = absl::Seconds(10);
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
  uint64_t dropped() const ABSL_LOCKS_EXCLUDED(mutex_);  // superseded before they were sent

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // What is written of a whole batch.
  v1::TelemetryBatch ToWrite(v1::TelemetryBatch* batch);
  void Remember(v1::TelemetryBatch batch, uint64_t base);
  // Until the stream breaks or the uplink ends.
  absl::Status Serve(const service::MasterAddress& master) ABSL_LOCKS_EXCLUDED(mutex_);
  bool TakeBatch(v1::TelemetryBatch* batch) ABSL_LOCKS_EXCLUDED(mutex_);
  void PutBack(v1::TelemetryBatch batch) ABSL_LOCKS_EXCLUDED(mutex_);
  // `sent_ns`, `answered_ns`: on the node's clock.
  void Heed(const v1::TelemetryReply& reply, int64_t sent_ns, int64_t answered_ns);
  void Want(v1::RecordLevel level);
  void Answered(const std::string& address) ABSL_LOCKS_EXCLUDED(mutex_);
  // True when there is something to send, or the uplink ends.
  bool IsAwake() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void Disconnected(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);

  const UplinkOptions options_;
  mutable absl::Mutex mutex_;
  std::optional<v1::TelemetryBatch> waiting_ ABSL_GUARDED_BY(mutex_);  // the newest
  std::optional<v1::TelemetryBatch> again_ ABSL_GUARDED_BY(mutex_);    // was sent and not answered
  bool in_flight_ ABSL_GUARDED_BY(mutex_) = false;                     // one is out, not answered yet
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  service::Wakeup end_;  // stop_ was set
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the stream under way
  std::optional<v1::TelemetryBatch> base_;  // what the master holds, whole; the thread's own, as what follows
  int64_t whole_ns_ = 0;                    // when it was last told all, by the node's clock
  MasterClock clock_;                       // the thread's own, as what follows
  std::string told_;                        // what the log says of the connection; the thread's own
  v1::RecordLevel wanted_ = v1::RECORD_LEVEL_UNSPECIFIED;
  absl::Time answered_at_;  // when a master last did
  std::thread thread_;
};

}  // namespace c4::agent
