// A real etcd for tests: one member or several, each a process of its own on loopback, with their data on the
// tmpfs. Killed when the object goes. One thread.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/service/harness.h"

namespace c4::service_test {

// Where it comes from, for a test that is skipped without it.
inline constexpr char kNoEtcd[] = "no etcd: scripts/setup.sh etcd";

class EtcdCluster {
 public:
  static bool Installed();

  // `flags`: more of etcd's own, for each member.
  explicit EtcdCluster(int members, std::vector<std::string> flags = {});
  // Reads that need a quorum are answered, by any member that runs.
  bool AwaitQuorum(Seconds limit) const;
  bool Answers(int member) const;
  // A member that was killed, on the data that it had.
  void Start(int member);
  void Kill(int member);
  void Signal(int member, int signal) const { At(member).process->Signal(signal); }
  // `path` of its JSON gateway; the answer's body, whatever it is.
  std::string Call(const std::string& path, const std::string& body) const;
  // "etcd://host:port,..." for --store.
  std::string Place() const;
  std::string Errors(int member) const { return At(member).process->Errors(); }
  int members() const { return static_cast<int>(members_.size()); }

 private:
  struct Member {
    std::string client;  // host:port
    std::string peer;    // a URL
    std::unique_ptr<Process> process;
  };
  const Member& At(int member) const { return members_[static_cast<size_t>(member)]; }

  ScratchDir scratch_;
  const std::vector<std::string> flags_;
  std::vector<Member> members_;
  int starts_ = 0;
};

}  // namespace c4::service_test
