// One rank's profile on its way into a KinetoReader: what its events are, then which step each belongs to,
// then the records. Only KinetoReader uses it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "traces/kineto_events.h"
#include "traces/kineto_reader.h"

namespace c4::traces {

class KinetoFile {
 public:
  KinetoFile(const std::string& name, ByteSource* source, KinetoReader* job);

  absl::Status Read();

 private:
  struct Mark {
    KinetoMatch match;
    int64_t start_ns = 0;
    int64_t end_ns = 0;
    uint64_t event = 0;
    int32_t damage = -1;  // into damages_
    uint32_t thread = 0;
    uint64_t correlation = 0;  // of a kernel, with its launch; 0: not known
    bool on_gpu = false;
  };
  struct Step {
    int32_t number = 0;
    int64_t start_ns = 0;
    int64_t end_ns = 0;
  };
  // A "B" that waits for its "E".
  struct Open {
    KinetoMatch match;
    int64_t start_ns = 0;
    uint64_t event = 0;
    uint32_t thread = 0;
    uint64_t correlation = 0;
    bool on_gpu = false;
  };

  absl::Status At(uint64_t event, const std::string& what) const;
  std::string Where(uint64_t event) const;

  absl::StatusOr<std::optional<int>> Rank(bool at_end) const;
  // Once the rank is known. False: this rank is left out.
  absl::StatusOr<bool> Settle(int rank);
  absl::Status Take(const KinetoEvent& event);
  uint32_t ThreadOf(const KinetoEvent& event);
  absl::Status TakeLaunch(const KinetoEvent& event);
  absl::Status Begin(const KinetoEvent& event);
  absl::Status End(const KinetoEvent& event);
  absl::Status Add(const Open& begun, int64_t end_ns, std::string damage);

  absl::Status FindSteps();
  // The step in which it starts, or in which the program launched it.
  std::optional<int32_t> StepOf(const Mark& mark, std::optional<int64_t> launched_ns) const;
  void Assign();
  void JoinRuns();
  void AddLaunched();
  void Prefer();
  void Join();
  void KeepLast();
  void RemoveCopies();
  absl::Status Emit();
  whatif::OperationRecord Record(const Mark& mark);
  void EmitStepBegins();

  const std::string& name_;
  KinetoReader& job_;
  std::unique_ptr<ProfileEvents> events_;
  std::optional<int> rank_;
  RankPlaces::Place place_;
  std::vector<Mark> marks_;
  std::vector<Mark> outside_;  // of every step
  std::vector<std::string> damages_;
  std::map<int32_t, Step> found_steps_[2];             // on the CPU, on the GPU
  std::vector<Step> steps_[2];                         // by start
  std::unordered_map<std::string, uint32_t> threads_;  // numbers of process and thread
  std::unordered_map<uint32_t, std::vector<Open>> open_;
  KinetoLaunches launches_;
  size_t opened_ = 0;
};

}  // namespace c4::traces
