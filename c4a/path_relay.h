// The agent's session with the path master (proto/c4/v1/c4p.proto): passes on what the libraries of this node
// ask and use, gives them the master's answers, and probes when the master orders it.
//
// Ask, Use and Gone never wait and may be called from any thread. Without a session an ask is answered at
// once: nobody can advise. The session is made again for ever, with back-off, the master looked up each time;
// a new one is told the node's NICs and all connections that are, so that a master needs no memory of its
// own. Of masters that stand in for each other the leader's epoch says who leads: one with an earlier epoch
// than was heard is refused (path_masters.h), and none of its answers is passed on. Three threads: one
// writes, one reads, and the prober's.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "c4/v1/c4p.pb.h"
#include "c4a/control_server.h"
#include "c4a/path_masters.h"
#include "c4a/prober.h"
#include "service/credentials.h"
#include "service/status.h"
#include "service/wakeup.h"

namespace grpc {
class ClientContext;
}  // namespace grpc

namespace c4::agent {

struct PathRelayOptions {
  std::string host;
  uint64_t agent_epoch = 0;
  // Where the path master listens now; NotFound: there is none, which is no reason to warn.
  std::function<absl::StatusOr<service::MasterAddress>()> find_master;
  size_t places = 1;  // that find_master gives in turn; there is a pause when all were tried
  service::Credentials credentials;
  // The node's data NICs as they are now.
  std::function<std::vector<v1::NicInfo>()> nics;
  ProberOptions prober;
  std::function<void(ControlClientId, const wire::ControlPathAnswer&)> answer;
  absl::Duration lease_interval = absl::Seconds(10);
  absl::Duration first_pause = absl::Milliseconds(100);
  absl::Duration longest_pause = absl::Seconds(2);
  absl::Duration longest_pause_of_several = absl::Milliseconds(500);  // one of them leads soon
};

class PathRelay {
 public:
  explicit PathRelay(PathRelayOptions options);
  ~PathRelay();
  absl::Status Start();  // in the network namespace whose NICs are meant
  PathRelay(const PathRelay&) = delete;
  PathRelay& operator=(const PathRelay&) = delete;

  void Ask(ControlClientId client, const ControlPeer& peer, const wire::ControlPathAsk& ask)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Use(ControlClientId client, const ControlPeer& peer, const wire::ControlPathUse& use)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // All its connections are closed.
  void Gone(ControlClientId client) ABSL_LOCKS_EXCLUDED(mutex_);

  bool connected() const ABSL_LOCKS_EXCLUDED(mutex_);  // the master has said welcome
  size_t connections() const ABSL_LOCKS_EXCLUDED(mutex_);
  ProberCounts probe_counts() const { return prober_.counts(); }

 private:
  using Key = std::pair<ControlClientId, uint64_t>;  // and the library's number
  struct Connection {
    v1::PathRequest request;
    v1::PathUse use;
  };

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Serve(const service::MasterAddress& master) ABSL_LOCKS_EXCLUDED(mutex_);
  void Read(const std::function<bool(v1::C4pToAgent*)>& next) ABSL_LOCKS_EXCLUDED(mutex_);
  void Heed(const v1::C4pToAgent& message) ABSL_LOCKS_EXCLUDED(mutex_);
  void Welcome(uint64_t epoch) ABSL_LOCKS_EXCLUDED(mutex_);
  // Nothing else of the session counts.
  void Refuse(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Probe(const v1::ProbeOrder& order) ABSL_LOCKS_EXCLUDED(mutex_);
  void Probed(uint64_t order, const ProbeResult& result, bool last) ABSL_LOCKS_EXCLUDED(mutex_);
  void Report() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SayAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Push(v1::AgentToC4p message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool InSession() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return context_ != nullptr && !broken_; }
  void Tell(const absl::Status& why);

  const PathRelayOptions options_;
  mutable absl::Mutex mutex_;
  std::map<Key, Connection> connections_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Key> by_name_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::AgentToC4p> outbox_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, uint64_t> orders_ ABSL_GUARDED_BY(mutex_);  // the prober's number to the master's
  uint64_t next_order_ ABSL_GUARDED_BY(mutex_) = 1;
  v1::ProbeReport report_ ABSL_GUARDED_BY(mutex_);                  // not sent yet
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the session under way
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool welcome_ ABSL_GUARDED_BY(mutex_) = false;
  LeaderEpochs epochs_ ABSL_GUARDED_BY(mutex_);
  std::string refused_ ABSL_GUARDED_BY(mutex_);      // the session under way, by either side, and why
  bool told_order_ ABSL_GUARDED_BY(mutex_) = false;  // that orders of this session are refused
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  service::Wakeup wake_;  // stop_, broken_ or outbox_ has changed
  std::string told_;      // what the log says of the session; the writing thread's
  Prober prober_;
  std::thread thread_;
};

}  // namespace c4::agent
