// Which links the packets of a connection take: what the detectors ask, and C4P's answer to it
// (C4p.ResolvePaths). An answer is what is known at the moment; nobody ever waits for one. What is not known
// yet is asked for in the background, and as long as C4P is away nothing is known: C4D judges as without it.
//
// GrpcPathSource asks in batches on a thread of its own, soon for what is new, again for what C4P did not
// know, and every kKnownForS for what it did, because routes change. A path that was known stays so until a
// new answer comes, so that a queue pair that lost its path can still be told by the way that it had. Tuples
// that nobody asked for in kForgetAfterS are forgotten; the size is bounded. Any thread; no errors.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "c4d_master/link_names.h"
#include "service/credentials.h"
#include "service/status.h"

namespace grpc {
class ClientContext;
}  // namespace grpc

namespace c4::c4d {

// Directed links in the order in which packets meet them, the hosts' own first and last: "host3>leaf0",
// "leaf0>spine1", "leaf1<spine1", "host7<leaf1".
using LinkPath = std::vector<std::string>;

class PathSource {
 public:
  virtual ~PathSource() = default;
  // Of what `source` ("address:port") sends to `destination`; nullptr: not known. Remembers the question.
  virtual std::shared_ptr<const LinkPath> Find(const std::string& source, const std::string& destination) = 0;
  // Questions about more paths than are kept.
  virtual uint64_t left_out() const { return 0; }
};

class GrpcPathSource final : public PathSource {
 public:
  struct Options {
    // Where C4P listens, asked before every attempt to connect; NotFound while there is none.
    std::function<absl::StatusOr<service::MasterAddress>()> address;
    service::Credentials credentials;
    int64_t known_for_ms = 30'000;
    int64_t ask_again_ms = 2'000;
    int64_t forget_after_ms = 120'000;
    int64_t look_every_ms = 200;
    int64_t call_limit_ms = 2'000;
    int64_t retry_ms = 5'000;  // after a failure
    size_t batch = 512;
    size_t most_tuples = 1U << 20;  // a job of 16,384 ranks with 20 queue pairs that send each has 650,000
  };
  explicit GrpcPathSource(Options options);
  ~GrpcPathSource() override;
  GrpcPathSource(const GrpcPathSource&) = delete;
  GrpcPathSource& operator=(const GrpcPathSource&) = delete;

  std::shared_ptr<const LinkPath> Find(const std::string& source, const std::string& destination) override;

  size_t known() const;  // tuples with a path
  size_t size() const;   // all that are kept
  uint64_t left_out() const override;

 private:
  // Source, a space, destination: one string hashes and compares faster than two.
  using Tuple = std::string;
  struct Entry {
    std::shared_ptr<const LinkPath> path;
    int64_t wanted_ms = 0;    // last asked for by a detector
    int64_t ask_next_ms = 0;  // when C4P is to be asked (again)
  };
  struct Connection;

  void Run();
  void Schedule(const Tuple& tuple, Entry* entry, int64_t at_ms);
  std::vector<Tuple> Due(int64_t now_ms) const;
  void Forget(int64_t now_ms);
  absl::Status Ask(const std::vector<Tuple>& tuples, Connection* connection);

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::unordered_map<Tuple, Entry> entries_;
  std::set<std::pair<int64_t, Tuple>> schedule_;  // by Entry::ask_next_ms
  uint64_t left_out_ = 0;
  uint64_t master_epoch_ = 0;
  grpc::ClientContext* call_ = nullptr;  // under way
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace c4::c4d
