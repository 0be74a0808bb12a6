// What a run found: the table of nccl-tests for people, and JSON for programs. Used by rank 0, one thread.
// Calls nothing of the library that is measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/perf_options.h"

namespace c4::perf {

// One way (out of place or in place) of one size.
struct Measurement {
  bool measured = true;  // false: the library refuses the operation this way
  double time_us = 0;
  double algorithm_gb_per_s = 0;  // bytes over time
  double bus_gb_per_s = 0;        // what the busiest link carries, comparable between numbers of ranks
  int64_t wrong = -1;             // elements with a wrong value; -1 when nothing was checked

  void SetTime(double seconds, size_t bytes, double bus_factor);
};

struct Row {
  size_t bytes = 0;
  size_t count = 0;
  ncclDataType_t type = ncclFloat;
  std::optional<Reduction> reduction;
  int root = -1;
  Measurement out_of_place;
  Measurement in_place;
};

class Report {
 public:
  // `library` says what is measured ("NCCL interface 2.28.9"). With a quiet report nothing is printed or
  // written: that of all ranks but 0.
  Report(std::string program, std::string library, int ranks, const Options& options, bool quiet);

  void Begin() const;
  void Add(const Row& row);
  // After each cycle: writes the JSON with this cycle's rows, and begins anew.
  bool EndCycle(std::string* error);
  // Writes the JSON as it stands, where one was asked for. False with a sentence when that fails.
  bool WriteJson(std::string* error) const;
  void End() const;

  int64_t wrong() const { return wrong_; }

 private:
  double AverageBusBandwidth() const;
  std::string Json() const;

  const std::string program_;
  const std::string library_;
  const int ranks_;
  const Options options_;
  const bool quiet_;
  int64_t cycles_ = 0;
  std::vector<Row> rows_;  // of this cycle
  double bus_sum_ = 0;
  int64_t bus_count_ = 0;
  int64_t wrong_ = 0;
};

}  // namespace c4::perf
