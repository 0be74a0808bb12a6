// Answers of a RAS port for tests, written after the format's public description: a job of communicators
// whose ranks have launched so many collectives. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace c4::c4d {

struct RasTestRank {
  uint32_t rank = 0;
  uint64_t all_reduces = 0;
  uint64_t all_gathers = 0;
  std::string host = "10.0.0.1";
  int pid = 100;
  int init_state = 0;
  int async_error = 0;
  bool destroyed = false;
  bool aborted = false;
  bool missing = false;
  bool dead = false;
};

struct RasTestCommunicator {
  std::string hash = "0xfa93daea854b060b";
  std::string secondary = "0x1:0x2";
  std::vector<RasTestRank> ranks;
};

inline std::string RasJson(const std::vector<RasTestCommunicator>& communicators) {
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  const auto place = [](const RasTestRank& rank) {
    return "{\"rank\": " + std::to_string(rank.rank) + ", \"host\": \"" + rank.host +
           "\", \"pid\": " + std::to_string(rank.pid) + ", \"cuda_dev\": 0, \"nvml_dev\": 0" +
           (rank.missing ? "\n" : ", ") + "\"status\": ";  // without the comma, as NCCL 2.28.9 writes it
  };
  std::string text =
      "{\n  \"nccl_version\": \"2.28.9\",\n  \"cuda_runtime_version\": 13000,\n  \"cuda_driver_version\": "
      "13000,\n"
      "  \"timestamp\": \"2026-11-26 06:00:00\",\n  \"communicators_count\": " +
      std::to_string(communicators.size()) + ",\n  \"communicators\": [\n";
  for (const RasTestCommunicator& communicator : communicators) {
    std::string ranks;
    std::string missing;
    size_t gone = 0;
    for (const RasTestRank& rank : communicator.ranks) {
      if (rank.missing) {
        ++gone;
        missing += (missing.empty() ? "" : ",\n") + place(rank) +
                   "{\"unresponsive\": true, \"considered_dead\": " + flag(rank.dead) + "}}";
        continue;
      }
      ranks +=
          (ranks.empty() ? "" : ",\n") + place(rank) + "{\"init_state\": " + std::to_string(rank.init_state) +
          ", \"async_error\": " + std::to_string(rank.async_error) +
          ", \"finalize_called\": false, \"destroy_flag\": " + flag(rank.destroyed) +
          ", \"abort_flag\": " + flag(rank.aborted) +
          "}, \"collective_counts\": {\"Broadcast\": 0, \"AllGather\": " + std::to_string(rank.all_gathers) +
          ", \"AllReduce\": " + std::to_string(rank.all_reduces) + "}}";
    }
    text += std::string(&communicator == communicators.data() ? "" : ",\n") + "{\"hash\": \"" +
            communicator.hash + "\", \"secondary_hash\": \"" + communicator.secondary +
            "\", \"size\": " + std::to_string(communicator.ranks.size()) +
            ", \"ranks_count\": " + std::to_string(communicator.ranks.size() - gone) +
            ", \"missing_ranks_count\": " + std::to_string(gone) + ", \"ranks\": [\n" + ranks +
            "\n], \"missing_ranks\": [\n" + missing + "\n]}";
  }
  return text + "\n  ],\n  \"ras\": {\"collection_time_sec\": 0.012, \"timeouts_count\": 0}\n}\n";
}

inline std::string RasReply(const std::vector<RasTestCommunicator>& communicators) {
  return "SERVER PROTOCOL 2\nOK\nOK\n" + RasJson(communicators);
}

// One communicator of `count` ranks, two a host, that have each launched `all_reduces`.
inline RasTestCommunicator RasWorld(uint32_t count, uint64_t all_reduces) {
  RasTestCommunicator world;
  for (uint32_t rank = 0; rank < count; ++rank) {
    world.ranks.push_back({.rank = rank,
                           .all_reduces = all_reduces,
                           .host = "10.0.0." + std::to_string(1 + rank / 2),
                           .pid = static_cast<int>(100 + rank)});
  }
  return world;
}

}  // namespace c4::c4d
