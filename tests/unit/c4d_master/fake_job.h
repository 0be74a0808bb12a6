// A job in simulated time: ranks that call, start and finish operations at the caller's word, seen either
// as the master's plain values or as the batches that agents would send. Rank r is process 1000 + r;
// `ranks_per_host` of them share a host, host0 and so on. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "c4/v1/telemetry.pb.h"
#include "c4d_master/job_snapshot.h"
#include "c4d_master/job_state.h"

namespace c4::c4d {

inline constexpr uint64_t kWorld = 0xA11;
inline constexpr int64_t kMillisecondNs = 1'000'000;

class FakeJob {
 public:
  // All ranks are in the communicator kWorld, ready, idle and running.
  explicit FakeJob(uint32_t ranks, uint32_t ranks_per_host = 1, std::string name = "job");

  int64_t now_ns() const { return now_ns_; }
  Now now() const { return {now_ns_, now_ns_ + kUnixOffsetNs}; }
  // Everybody's CPU time moves along, except for who is idle or cannot run; all agents look again.
  void Advance(int64_t ns);

  // `ranks` of the job become ranks 0, 1, … of it.
  void AddCommunicator(uint64_t id, const std::vector<uint32_t>& ranks);

  Process& process(uint32_t rank);
  Host& host_of(uint32_t rank);
  Membership& membership(uint32_t rank, uint64_t communicator = kWorld);

  void Call(uint32_t rank, uint64_t communicator = kWorld);
  void Start(uint32_t rank, uint64_t communicator = kWorld);
  void Finish(uint32_t rank, uint64_t communicator = kWorld);
  // Calls and starts: waits in it.
  void Enter(uint32_t rank, uint64_t communicator = kWorld);
  // Enters for all members but `except`.
  void EnterAllBut(uint32_t except, uint64_t communicator = kWorld);
  // `count` operations from call to finish on every member, `each_ns` apart.
  void Complete(uint64_t count, uint64_t communicator = kWorld, int64_t each_ns = 10 * kMillisecondNs);

  void SetState(uint32_t rank, ProcessState state);
  void SetIdle(uint32_t rank) { idle_[rank] = true; }  // its CPU time stands still from now on
  // Its agent looks no more from now on.
  void Silence(const std::string& host) { silent_[host] = true; }
  void Unsilence(const std::string& host) { silent_[host] = false; }

  const std::map<std::string, Host>& hosts() const { return hosts_; }
  std::map<std::string, Host>& hosts() { return hosts_; }

  JobSnapshot Snapshot() const { return Assemble(hosts_, now_ns_, 3 * kSecondNs); }
  JobSnapshot Snapshot(int64_t longest_standstill_ns) const;

  // What the agent of that host would send now; its clock runs `clock_offset_ns` behind the master's.
  v1::TelemetryBatch Batch(const std::string& host, int64_t clock_offset_ns = 0);

 private:
  static constexpr int64_t kUnixOffsetNs = 1'700'000'000 * kSecondNs;

  std::vector<uint32_t> RanksOf(uint64_t communicator);

  const std::string name_;
  const uint32_t ranks_per_host_;
  int64_t now_ns_ = 1000 * kSecondNs;
  std::map<std::string, Host> hosts_;
  std::map<uint32_t, bool> idle_;
  std::map<std::string, bool> silent_;
  std::map<std::string, uint64_t> sequence_;
};

}  // namespace c4::c4d
