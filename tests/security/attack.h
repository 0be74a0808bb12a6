// What the tests of attacks share: a job that works, an attacker who goes on while a rank of it is stopped,
// and tokens as an attacker may have come by them.
//
// One thread but for the attacker's. Everything is ended with the objects.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "service/token.h"
#include "tests/service/harness.h"

namespace c4::service_test {

// Registers an attack: its name, which is given back, as a literal in the place where the attack is made,
// once. docs/attacks.md is made of these places (attacks.py), so that one line is all that a new attack
// takes; "KIND: what exactly" is the form. What fails below it, in its block, is said to have failed under
// that attack.
std::string Attack(const std::string& name);
#define C4_ATTACK(name) SCOPED_TRACE(::c4::service_test::Attack(name))

// The four ranks of a job under `c4 run`, with an agent and a master that log below log_root().
class AttackedJob {
 public:
  explicit AttackedJob(const std::vector<std::string>& more_options = {},
                       const std::function<void(const std::string& base_dir)>& prepare = {});

  RunningJob& job() { return job_; }
  std::string address() const { return master_["address"]; }
  std::string http_address() const { return master_["http_address"]; }
  std::string name() const { return master_["job"]; }
  std::string run_dir() const;
  // Of the job's own key: what only its owner and the daemons have.
  service::TokenKey Key() const;
  std::string Log(const std::string& daemon) const;
  std::string AuditFile() const { return job_.LogDir() + "/c4d.audit.jsonl"; }
  std::string Audit() const;

  // Stops a rank while `attack` is made again and again by another thread; the rank is suspected within 5 s,
  // nobody else is, and it is cleared when it goes on.
  void StoppedRankIsNamedDuring(const std::function<void()>& attack);

 private:
  RunningJob job_;
  Json master_;
};

// "Bearer …" with that validity from now on.
std::string BearerOf(const service::TokenKey& key, const service::Identity& identity, int64_t from_s = -10,
                     int64_t to_s = 600);
service::TokenKey NewKey();

// A whole HTTP answer with its head; "" where none came.
std::string HttpAsk(const std::string& address, const std::string& request);

// What a daemon may have taken at most while one client attacks it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr size_t kDaemonKib = 4 << 20;  // sanitizers keep what was freed
#else
inline constexpr size_t kDaemonKib = 200 << 10;
#endif
// The most memory that a process has held; 0: it is gone.
size_t PeakKib(pid_t pid);

// Of a script beside these tests.
std::string Script(const std::string& name);

}  // namespace c4::service_test
