// A training job on an emulated fabric that faults are put into, and what it does then: with C4D (`c4 run
// --elastic`, its master decides) or without any monitor (`--restarts`). It is watched as its user would: by
// the lines that the trainer prints. Benchmarks of recovery run on it.
//
// One thread, the main one, as the Launcher wants it. Root. Everything is ended and removed when it goes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/clients/master_client.h"
#include "cli/launch/launcher.h"
#include "fabric/emulator/spec.h"
#include "fabric/inject/injector.h"

namespace c4::benchmarks {

struct ElasticRangeOptions {
  bool with_c4d = true;
  fabric::FabricSpec spec;  // its name has to be free
  int ranks = 8;            // one a host, the other hosts are spare ones
  std::vector<std::string> command;
  std::string job;
  std::string checkpoint;     // the trainer's LATEST
  std::string recovery_file;  // path; "" where there is no C4D
  std::string log_dir;        // what the daemons say is kept in here; empty: nothing is
  unsigned seed = 1;
};

// One line of the trainer, and when it was seen.
struct Iteration {
  int number = 0;
  std::string loss;
  double unix_s = 0;
};

class ElasticRange {
 public:
  using Say = std::function<void(const std::string& text)>;

  ElasticRange(ElasticRangeOptions options, Say say);
  ~ElasticRange();
  ElasticRange(const ElasticRange&) = delete;
  ElasticRange& operator=(const ElasticRange&) = delete;

  absl::Status Start();
  // Lets the time pass; true as soon as `done` holds. Aborted: the job has ended.
  absl::StatusOr<bool> Watch(double seconds, const std::function<bool()>& done = nullptr);
  // As often as it was begun, from a checkpoint or anew, and what has been done since.
  int begun() const { return begun_; }
  const std::vector<Iteration>& since_begun() const { return since_begun_; }
  // When the newest line was seen; the longest time between two since ForgetGap.
  double last_iteration_s() const { return last_iteration_s_; }
  double longest_gap_s() const { return longest_gap_s_; }
  void ForgetGap() { longest_gap_s_ = 0; }
  // When the ranks that run now were started.
  double restarted_s() const { return restarted_s_; }
  // Every loss that was ever printed for an iteration, and those that were not what they were before.
  const std::map<int, std::string>& losses() const { return losses_; }
  const std::vector<std::string>& contradictions() const { return contradictions_; }

  absl::StatusOr<fabric::Applied> Inject(const fabric::Injection& injection);
  absl::Status Heal();
  // With C4D.
  absl::StatusOr<v1::GetRecoveryReply> Recovery(uint32_t notes = 0) const;
  absl::Status Release(const std::string& host) const;

  const cli::Launcher& launcher() const { return *launcher_; }
  std::string HostOfRank(int rank) const;
  // Ends all ranks, as the time limit of a framework, or a person, does.
  absl::Status KillRanks();
  void End();

 private:
  void ReadLog();
  void TakeLine(const std::string& line);

  const ElasticRangeOptions options_;
  const Say say_;
  bool fabric_up_ = false;
  std::unique_ptr<cli::Launcher> launcher_;
  std::unique_ptr<cli::MasterClient> client_;
  std::unique_ptr<fabric::Injector> injector_;
  size_t log_at_ = 0;
  std::string rest_;  // of a line
  int begun_ = 0;
  int incarnation_ = 0;
  double restarted_s_ = 0;
  double last_iteration_s_ = 0;
  double longest_gap_s_ = 0;
  std::vector<Iteration> since_begun_;
  std::map<int, std::string> losses_;
  std::vector<std::string> contradictions_;
};

double UnixNowS();

}  // namespace c4::benchmarks
