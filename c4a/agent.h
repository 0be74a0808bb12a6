// The agent: scanner, reporter, uplinks, control socket, hardware, health and metrics put together. One
// thread scans and reports (c4-scan); each job's uplink, each source of the hardware, the control socket and
// HTTP have their own, so that a master that stands still, or a client of the socket, never delays a scan.
// Start and Stop by one thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "c4a/control_server.h"
#include "c4a/health/monitor.h"
#include "c4a/options.h"
#include "c4a/path_relay.h"
#include "c4a/reporter.h"
#include "c4a/scanner.h"
#include "c4a/uplink.h"
#include "c4a/validation_relay.h"
#include "service/clock.h"
#include "service/credentials.h"
#include "service/directory.h"
#include "service/http_server.h"
#include "service/metrics.h"
#include "service/status.h"
#include "service/wakeup.h"

namespace c4::agent {

class Agent {
 public:
  Agent(AgentOptions options, service::Credentials credentials);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  absl::Status Start();
  void Stop();

  const std::string& http_address() const { return http_.address(); }

 private:
  void WantLevel(const std::string& job, v1::RecordLevel level) ABSL_LOCKS_EXCLUDED(level_mutex_);
  void ForgetLevel(const std::string& job) ABSL_LOCKS_EXCLUDED(level_mutex_);
  void ApplyLevel() ABSL_EXCLUSIVE_LOCKS_REQUIRED(level_mutex_);
  // A job's way to its master, and what its metrics have been told.
  struct Job {
    std::shared_ptr<ValidationRelay> validations;  // outlives the uplink, which tells it of masters
    std::unique_ptr<Uplink> uplink;
    uint64_t sent = 0;
    uint64_t dropped = 0;
    size_t processes = 0;
    // Of the node's processes of the job: whose master is believed. Read by the uplink's thread.
    std::shared_ptr<std::atomic<int64_t>> owner_uid = std::make_shared<std::atomic<int64_t>>(-1);
    int64_t left_ns = 0;  // when its last process left this node; 0 while there are some
  };

  void Run();
  void ScanOnce();
  void ReportOnce();
  void StartHealth();
  void UpdateHealthMetrics();
  void LetGo(int64_t now_ns);
  void UpdateMetrics();
  Job& JobOf(const std::string& name);
  // The libraries' answers go to the jobs' relays; on the control server's thread.
  void ForEachRelay(const std::function<void(ValidationRelay&)>& what) ABSL_LOCKS_EXCLUDED(relays_mutex_);
  void FindMastersOfTheUnread(int64_t now_ns);
  void RemoveJobMetrics(const std::string& name);
  absl::Status StartPaths(uint64_t epoch);
  std::string DirectoryOfMasters() const;
  absl::StatusOr<service::MasterAddress> FindMaster(const std::string& job, int64_t owner_uid) const;
  // In the directory, of those who are believed.
  absl::StatusOr<service::MasterAddress> LookUp(const std::string& name,
                                                const service::Believed& believed) const;
  absl::Status Health() const;
  std::string MetricsText();

  const AgentOptions options_;
  const service::Credentials credentials_;
  const service::Clock& clock_;
  const int64_t started_ns_;
  service::Metrics metrics_;
  service::HttpServer http_;
  unsigned run_dir_mode_ = 0;  // as found at the start
  std::unique_ptr<Scanner> scanner_;
  std::unique_ptr<Reporter> reporter_;
  std::unique_ptr<HealthMonitor> hardware_;      // nullptr: not watched
  std::map<std::string, uint64_t> told_events_;  // by kind; what the counters have been told
  uint64_t told_left_out_ = 0;
  std::unique_ptr<PathRelay> paths_;
  absl::Mutex control_mutex_;  // held while the relay's threads use it, and while it goes
  std::unique_ptr<ControlServer> control_;
  std::map<std::string, Job> jobs_;  // the scanning thread's
  ScanFigures told_;                 // what the counters have been told
  ProberCounts told_probes_;
  bool scan_failed_ = false;
  // Jobs of users of whom there are segments that cannot be read, with these users.
  std::map<std::string, int64_t> unread_;
  int64_t unread_at_ns_ = 0;
  std::atomic<int64_t> last_scan_ns_ = 0;
  absl::Mutex relays_mutex_;
  std::vector<std::weak_ptr<ValidationRelay>> relays_ ABSL_GUARDED_BY(relays_mutex_);
  absl::Mutex level_mutex_;
  std::map<std::string, v1::RecordLevel> wanted_levels_ ABSL_GUARDED_BY(level_mutex_);  // by job

  absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool hurry_ ABSL_GUARDED_BY(mutex_) = false;  // a new process said hello: scan now
  service::Wakeup wake_;                        // for either
  std::thread thread_;
};

}  // namespace c4::agent
