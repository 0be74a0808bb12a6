// The testers of a validation: a process c4-validate-worker for each rank that is tested, in its place: on
// its processors, in its control group and network namespace, as its user (docs/decisions/0010-testers.md).
// The ranks themselves are never touched.
//
// Prepare, Order and End by one thread at a time; `on_answer` comes on a thread of this object's own, and
// must not call back. Without testers there is no thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "c4a/tester/protocol.h"
#include "service/wakeup.h"

namespace c4::agent {

class Testers {
 public:
  struct Spec {
    uint32_t id = 0;           // by which it is told and answers: the agent takes the rank's process
    uint32_t pid = 0;          // in whose place it runs
    std::string gpu = "auto";  // number, "none", or the GPU that the process computes on
  };
  // What a tester says; where it ends without having been asked to, a Fault.
  using OnAnswer = std::function<void(uint32_t id, const tester::Answer& answer)>;

  // `program`: of the testers; empty: beside this one.
  Testers(std::string program, OnAnswer on_answer);
  ~Testers();
  Testers(const Testers&) = delete;
  Testers& operator=(const Testers&) = delete;

  // Ends earlier ones first. They live for `limit` at most.
  void Prepare(std::vector<Spec> testers, absl::Duration limit);
  void Order(uint32_t id, const tester::Order& order);
  void End();

 private:
  struct Tester {
    uint32_t id = 0;
    pid_t pid = -1;
    int input = -1;  // of it
    int output = -1;
    std::string line;  // that is not at its end yet
  };

  void Run(const std::vector<Spec>& testers, absl::Duration limit);
  void Start(const Spec& spec, size_t of_how_many);
  bool Read(Tester* tester);
  void Close(Tester* tester);

  const std::string program_;
  const OnAnswer on_answer_;
  std::mutex mutex_;
  std::map<uint32_t, Tester> testers_;  // by id; under mutex_ where input is used
  std::atomic<bool> stop_{false};
  int wake_ = -1;
  std::thread thread_;
};

}  // namespace c4::agent
