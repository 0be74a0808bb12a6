// The part of a master that tells: takes verdicts and SMon's sessions, keeps alerts (alerts.h) and what is
// not delivered yet (outbox.h) in the store, and has it sent (alert_work.h). No transport and no clock:
// gRPC's servicer, the HTTP pages and main are skins over it; tests call it directly, in simulated time.
//
// One thread, the state thread. Everything that it is given belongs to the caller and outlives it. A store
// that fails is logged and counted; everything is there in memory all the same.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "c4/v1/alerts.pb.h"
#include "c4d_master/alerts/alert_store.h"
#include "c4d_master/alerts/alert_work.h"
#include "c4d_master/alerts/alerts.h"
#include "c4d_master/alerts/outbox.h"
#include "service/metrics.h"

namespace c4::c4d {

class AlertCenter {
 public:
  // Loads what an earlier master left.
  AlertCenter(std::string job, AlertConfig config, AlertWork* work, AlertStore* store,
              service::Metrics* metrics, Now now);

  // Where to ask for SMon's newest session with figures, for what notifications say; nullptr: there is none.
  using NewestSession = std::function<const v1::ProfilingSession*()>;
  void SetNewestSession(NewestSession newest_session) { newest_session_ = std::move(newest_session); }

  // From now on the file says this. What waits for a target that is no more is given up.
  void SetConfig(AlertConfig config, Now now);
  // There was to be another one, which cannot be used; the one that is in force stays.
  void RefuseConfig(const absl::Status& why);

  void OnVerdict(const v1::Verdict& verdict, Now now);
  // All verdicts that are open have been told of by OnVerdict: others, of which an earlier master told, are
  // over.
  void OnAllOpen(const std::set<std::string>& verdicts, Now now);
  void OnSession(const v1::ProfilingSession& session, Now now);

  // To be called a few times a second.
  void Tick(Now now);

  v1::ListAlertsReply List(bool include_resolved, Now now) const;
  absl::StatusOr<v1::AcknowledgeAlertReply> Acknowledge(const v1::AcknowledgeAlertRequest& request, Now now);
  absl::StatusOr<v1::AddSilenceReply> AddSilence(const v1::AddSilenceRequest& request, Now now);
  absl::StatusOr<v1::EndSilenceReply> EndSilence(uint64_t number, Now now);
  // `target`: a target, or a rule: all of its targets. NotFound: neither.
  absl::StatusOr<v1::TestAlertReply> Test(const std::string& target, Now now);

 private:
  struct TargetState {
    v1::AlertDelivery last;
    v1::AlertDelivery last_test;
    std::string trouble;
    int64_t refreshed_unix_ns = 0;
  };

  const AlertTarget* FindTarget(const std::string& name) const;
  std::string BodyFor(const AlertTarget& target, const Notification& notification, uint64_t number,
                      Now now) const;
  void HandOn(const Notification& notification, const std::vector<std::string>& targets, Now now);
  void Refresh(Now now);
  void TakeResults(Now now);
  void TakeResult(const AlertAttempted& result, Now now);
  void GiveUp(const WaitingNotification& notification, const std::string& why, Now now);
  void RememberEnd(const WaitingNotification& notification, bool delivered, const std::string& text, Now now);
  void Save();
  void UpdateGauges();

  const std::string job_;
  AlertWork* const work_;
  AlertStore* const store_;
  service::Metrics* const all_metrics_;
  NewestSession newest_session_;
  Alerts alerts_;
  Outbox outbox_;
  std::map<std::string, TargetState> targets_;
  uint64_t next_number_ = 1;
  int64_t ticked_at_ns_ = kNever;
  AlertStore::Change unsaved_;
  std::string config_fault_;
  std::set<std::string> gauged_;  // targets

  struct {
    service::MetricGauge firing;
    service::MetricGauge muted;
    service::MetricGauge config_refused;
    service::MetricCounter delivered;
    service::MetricCounter failed;
    service::MetricCounter given_up;
    service::MetricCounter store_errors;
  } metrics_;
};

}  // namespace c4::c4d
