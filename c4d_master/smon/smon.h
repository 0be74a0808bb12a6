// SMon: profiles the job from time to time or when asked, and keeps what its stragglers cost
// (docs/whatif.md). What of it is worth an alert is decided elsewhere (alerts/). No transport and no clock:
// gRPC's servicer, the HTTP pages and main are skins over it; tests call it directly, in simulated time.
//
// One thread, the state thread. Everything that it is given belongs to the caller and outlives it. A store
// that fails is logged and counted; everything is there in memory all the same.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "c4/v1/smon.pb.h"
#include "c4d_master/smon/profile_source.h"
#include "c4d_master/smon/retention.h"
#include "c4d_master/smon/schedule.h"
#include "c4d_master/smon/smon_store.h"
#include "c4d_master/smon/smon_work.h"
#include "service/metrics.h"

namespace c4::c4d {

inline constexpr int kMaxSessionSteps = 10'000;
inline constexpr double kMaxSessionSeconds = 86'400;

struct SmonOptions {
  std::string job;
  int64_t every_ns = 0;  // 0: only when asked
  SessionLimits limits;
  Retention retention;
  // Gets every session that is over; may be empty.
  std::function<void(const v1::ProfilingSession&, Now)> on_session;
};

class Smon {
 public:
  // `source`: nullptr where no profile can be had; what earlier sessions left is shown all the same.
  Smon(const SmonOptions& options, ProfileSource* source, SmonWork* work, SmonStore* store,
       service::Metrics* metrics, Now now);

  // To be called a few times a second.
  void Tick(Now now);
  // Takes what the work has done and begins nothing: Tick's last call.
  void TakeResults(Now now);
  // A session that is being collected ends as failed: the master is about to end.
  void End(Now now);

  // Limits of 0 are those of the options. InvalidArgument: they are out of range. FailedPrecondition: none
  // can be had here, or one is running.
  absl::StatusOr<v1::ProfilingSession> Run(uint32_t steps, double at_most_s, Now now);

  // The newest `limit` ones, 0: 100.
  v1::ListSessionsReply List(uint32_t limit) const;
  // A session with its report. NotFound: no such session. 0: the newest.
  struct Found {
    v1::ProfilingSession session;
    std::shared_ptr<const std::string> report;  // empty where there is none; never nullptr
    std::shared_ptr<const std::string> text;
  };
  absl::StatusOr<Found> Find(uint64_t number) const;
  // All analysed ones, oldest first, without their texts.
  std::vector<v1::ProfilingSession> History() const;

  // The newest one with figures, its texts left out; nullptr: there is none.
  const v1::ProfilingSession* Newest() const;

  const std::string& job() const { return options_.job; }

 private:
  using Entry = Found;

  absl::StatusOr<v1::ProfilingSession> Begin(SessionLimits limits, bool requested, Now now);
  void FinishCollecting(Now now);
  void Conclude(Entry* entry, Now now);
  void Load(Now now);
  void Save(const Entry& entry);
  void PruneOld(Now now);
  void Note(const absl::Status& status);
  void UpdateGauges();
  Entry* Running();
  const Entry* NewestAnalysed() const;

  const SmonOptions options_;
  ProfileSource* const source_;
  SmonWork* const work_;
  SmonStore* const store_;
  Schedule schedule_;

  std::vector<Entry> sessions_;  // by number
  uint64_t next_number_ = 1;
  bool running_ = false;  // the last of sessions_ is being collected or analysed
  SessionLimits running_limits_;
  int64_t running_begun_at_ns_ = 0;

  struct {
    service::MetricGauge slowdown;
    service::MetricGauge waste;
    service::MetricGauge running;
    service::MetricCounter analysed;
    service::MetricCounter nothing;
    service::MetricCounter failed;
    service::MetricCounter store_errors;
  } metrics_;
};

}  // namespace c4::c4d
