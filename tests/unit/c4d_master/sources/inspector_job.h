// A simulated job whose processes write logs of NCCL's Inspector: tensor-parallel groups of a host's ranks
// and one communicator of all, in steps. What a collective takes follows from who comes to it when: it ends a
// while after the last one has come, and each rank's time in it begins when it comes. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "c4d_master/sources/inspector_record.h"

namespace c4::c4d {

struct InspectorJobOptions {
  uint32_t ranks = 16;
  uint32_t ranks_per_host = 4;
  double compute_s = 0.05;     // between two collectives
  double collective_s = 0.01;  // once all have come
  int64_t interval_us = 500;   // at which Inspector writes
  bool verbose = false;
  uint64_t seed = 1;
  int64_t begin_unix_us = 1'700'000'000'000'000;
};

class InspectorJob {
 public:
  explicit InspectorJob(InspectorJobOptions options)
      : options_(options), random_(options.seed), at_s_(options.ranks, 0.0), lines_(options.ranks) {}

  // What a rank computes between two collectives takes so many times as long.
  std::function<double(uint32_t rank)> slower = [](uint32_t /*rank*/) { return 1.0; };
  // The same of what a host's collectives take.
  std::function<double(uint32_t host)> slower_inside = [](uint32_t /*host*/) { return 1.0; };
  // A clock that is ahead by so much.
  std::function<int64_t(uint32_t host)> ahead_us = [](uint32_t /*host*/) { return int64_t{0}; };

  // Goes on until all ranks have come that far.
  void RunUntil(double seconds) {
    while (*std::min_element(at_s_.begin(), at_s_.end()) < seconds) Step();
  }
  // Nobody does anything for so long.
  void Pause(double seconds) {
    const double now_s = *std::max_element(at_s_.begin(), at_s_.end());
    std::fill(at_s_.begin(), at_s_.end(), now_s + seconds);
  }
  double now_s() const { return *std::min_element(at_s_.begin(), at_s_.end()); }

  // What a rank's log has more by then; `seconds` since the job began.
  std::vector<std::string> TakeLines(uint32_t rank, double seconds) {
    std::vector<std::string> taken;
    auto& lines = lines_[rank];
    while (!lines.empty() && lines.begin()->first <= seconds) {
      taken.push_back(lines.begin()->second);
      lines.erase(lines.begin());
    }
    // Whose interval has passed stays as it was written.
    std::erase_if(last_of_, [&](const auto& entry) {
      return entry.first.first == rank && static_cast<double>(entry.second.second) / 1e6 <= seconds;
    });
    return taken;
  }

  uint32_t HostOf(uint32_t rank) const { return rank / options_.ranks_per_host; }
  std::string LogName(uint32_t rank) const {
    return absl::StrFormat("node%d-pid%d.log", HostOf(rank), 1000 + rank);
  }
  const InspectorJobOptions& options() const { return options_; }

 private:
  void Step() {
    for (uint32_t layer = 0; layer < 4; ++layer) {
      Compute();
      for (uint32_t first = 0; first < options_.ranks; first += options_.ranks_per_host) {
        const uint32_t last = std::min(first + options_.ranks_per_host, options_.ranks);
        Collective(0x1000 + HostOf(first), "AllReduce", first, last,
                   options_.collective_s * slower_inside(HostOf(first)));
      }
    }
    Compute();
    Collective(0xabcdef0123456789, "AllReduce", 0, options_.ranks, 2 * options_.collective_s);
  }
  void Compute() {
    std::normal_distribution<double> noise(1.0, 0.03);
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      at_s_[rank] += options_.compute_s * slower(rank) * std::max(0.5, noise(random_));
    }
  }
  void Collective(uint64_t id, const std::string& function, uint32_t first, uint32_t last, double lasts_s) {
    const double ends_s = *std::max_element(at_s_.begin() + first, at_s_.begin() + last) + lasts_s;
    const uint64_t sequence = sequences_[{id, function}]++;
    for (uint32_t rank = first; rank < last; ++rank) {
      Write(id, function, sequence, rank - first, last - first, rank, at_s_[rank], ends_s);
      at_s_[rank] = ends_s;
    }
  }
  void Write(uint64_t id, const std::string& function, uint64_t sequence, uint32_t place, uint32_t size,
             uint32_t rank, double began_s, double ended_s) {
    const int64_t interval_us = options_.interval_us;
    const int64_t began_us = static_cast<int64_t>(began_s * 1e6);
    const int64_t ended_us = static_cast<int64_t>(ended_s * 1e6);
    const int64_t written_us = (ended_us / interval_us + 1) * interval_us;
    const int64_t base_us = options_.begin_unix_us + ahead_us(HostOf(rank));
    std::string line = absl::StrFormat(
        R"({"header": {"id": "0x%x", "rank": %d, "n_ranks": %d, "nnodes": 1}, "metadata": )"
        R"({"inspector_output_format_version": "v4.0", "git_rev": "", "rec_mechanism": )"
        R"("nccl_profiler_interface", "dump_timestamp_us": %d, "hostname": "node%d", "pid": %d}, )"
        R"("coll_perf": {"coll": "%s", "coll_sn": %d, "coll_msg_size_bytes": 1048576, )"
        R"("coll_exec_time_us": %d, "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 1.5, )"
        R"("coll_busbw_gbs": 2.5)",
        id, place, size, base_us + written_us, HostOf(rank), 1000 + rank, function, sequence,
        ended_us - began_us);
    if (options_.verbose) {
      line += absl::StrFormat(
          R"(, "event_trace_ts": {"coll_start_ts": %d, "coll_stop_ts": %d, "kernel_events": [)"
          R"({"channel_id": 0, "kernel_start_ts": %d, "kernel_stop_ts": %d, "kernel_record_ts": %d}]})",
          base_us + began_us - 5, base_us + began_us, base_us + began_us, base_us + ended_us,
          base_us + ended_us);
    }
    line += "}}";
    // Of a communicator only the last collective of an interval is written.
    const double written_s = static_cast<double>(written_us) / 1e6;
    auto& last = last_of_[{rank, id}];
    if (last.second == written_us) lines_[rank].erase(last.first);
    last = {lines_[rank].emplace(written_s, std::move(line)), written_us};
  }

  const InspectorJobOptions options_;
  std::mt19937_64 random_;
  std::vector<double> at_s_;
  std::map<std::pair<uint64_t, std::string>, uint64_t> sequences_;
  using Lines = std::multimap<double, std::string>;
  std::vector<Lines> lines_;
  std::map<std::pair<uint32_t, uint64_t>, std::pair<Lines::iterator, int64_t>> last_of_;
};

}  // namespace c4::c4d
