// What runs on this node for a job: the run directory, the agent behind its socket, and the masters that are
// published there. The Read functions look and ask, within seconds; the Judge functions are pure. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/clients/master_client.h"
#include "cli/doctor/finding.h"

namespace c4::cli {

struct RunDirFacts {
  enum class Agent {
    kNoSocket,
    kNobody,    // a socket that nobody listens at
    kNoRights,  // this user may not connect
    kSilent,    // it takes connections and does not answer
    kHungUp,    // it closes the connection: another version of the frames
    kAnswered,
  };
  std::string path;
  bool is_folder = false;
  bool writable = false;
  bool on_tmpfs = false;
  Agent agent = Agent::kNoSocket;
  int agents_elsewhere = 0;    // that masters here hear of: each job of `c4 run` has an agent of its own
  uint32_t agent_version = 0;  // major << 16 | minor << 8 | patch
  // As C4_MONITOR and C4_CONTROL have it.
  bool monitor_off = false;
  bool control_off = false;
};
RunDirFacts ReadRunDir(const std::string& path, absl::Duration patience);
Findings JudgeRunDir(const RunDirFacts& facts);

struct MasterFacts {
  struct Master {
    std::string job;  // empty: only the address is known
    std::string address;
    std::string fault;     // empty: it answered
    bool is_dead = false;  // its process, on this host, has ended
    int ranks = 0;
    int agents = 0;
  };
  std::string directory;
  std::vector<Master> masters;
  std::string path_master;          // address of the cluster's path master; empty: none published
  std::vector<std::string> faults;  // of the directory and its files, or of the question
};
// The master that `options` name, or all of the directory.
MasterFacts ReadMasters(const MasterOptions& options, absl::Duration patience);
Findings JudgeMasters(const MasterFacts& facts);

}  // namespace c4::cli
