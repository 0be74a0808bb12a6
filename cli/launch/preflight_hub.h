// Rank 0's part of a preflight: takes the others in, has the testers test, puts the results together. Owns
// its sockets; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "c4/v1/validation.pb.h"
#include "c4a/tester/protocol.h"
#include "cli/launch/preflight.h"

namespace c4::cli {

class PreflightHub {
 public:
  explicit PreflightHub(const PreflightOptions& options) : options_(options) {}
  ~PreflightHub();
  PreflightHub(const PreflightHub&) = delete;
  PreflightHub& operator=(const PreflightHub&) = delete;

  // Where the others connect; Unavailable: the address is taken or not this machine's.
  absl::Status Listen();
  const std::string& address() const { return address_; }  // with the port, once it listens
  v1::Validation Run();
  // Tells all how it ended.
  void End(int exit_code);

 private:
  struct Member {
    int fd = -1;
    int rank = -1;  // -1: it has not joined
    int testers = 0;
    std::string host;
    std::string address;
    std::string line;  // that is not at its end yet
  };
  struct Tester {
    int member = -1;    // place in members_; -1: it is missing
    int device = -1;    // place among the validation's devices
    std::string name;   // of the device
    std::string fault;  // why it cannot be tested
    uint32_t port = 0;
    bool stands = false;  // ready, or cannot be
    bool tested = false;
  };
  using TesterKey = std::pair<int, int>;  // rank, number

  // Hears what comes until `is_over`, or `limit` is.
  template <typename IsOver>
  void Hear(absl::Duration limit, const IsOver& is_over);
  void Accept();
  bool Read(size_t member);  // false: it is gone
  bool Take(size_t member, const std::string& line);
  bool Join(size_t member, const std::string& line);
  void TakeAnswer(const TesterKey& key, const tester::Answer& answer);
  void Leave(size_t member);
  void Order(const TesterKey& key, const tester::Order& order);
  void TestDevices();
  void PlanLinks();
  void TestLinks();

  const PreflightOptions options_;
  int listener_ = -1;
  std::string address_;
  std::vector<Member> members_;
  std::map<TesterKey, Tester> testers_;
  v1::Validation validation_;
  std::vector<std::pair<TesterKey, TesterKey>> links_;  // as in the validation
  std::map<uint64_t, size_t> transfers_;                // under way, to links
};

}  // namespace c4::cli
