// The Lease (coordination.k8s.io/v1) by which one of several masters of a job acts: whoever holds it renews
// it, and lets nothing be done once a renewal is overdue. Others take it when it has not changed for as long
// as it is given, by their own clocks: no two machines need the same time. It is asked for by the first
// command, so a master that only looks never holds it.
//
// Its annotations remember the restarts (kube_words.h): both change only in the version that was read, so a
// master that lost the lease cannot write them.
//
// A thread of its own renews it, or sees whether others do. The rest is called by one thread, the executor's.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "c4d_master/recovery/kube_api.h"
#include "c4d_master/recovery/kube_words.h"
#include "service/state_thread.h"

namespace c4::c4d::recovery {

class KubeLease {
 public:
  // `api` outlives this. `holder`: who we are, like nobody else.
  KubeLease(const KubeApi* api, const KubernetesConfig& config, std::string name, std::string holder);
  ~KubeLease();
  KubeLease(const KubeLease&) = delete;
  KubeLease& operator=(const KubeLease&) = delete;

  // OK: it is ours, for longer than a request takes. FailedPrecondition: who holds it. Otherwise as KubeApi.
  absl::Status Hold(const KubeDeadline& deadline);
  bool held() const;

  // As it is now; FailedPrecondition where it is not ours.
  absl::StatusOr<KubeLeaseState> Read(const KubeDeadline& deadline);
  // The annotations of `state`. Aborted: it has changed since it was read; read and decide again.
  absl::Status Write(const KubeLeaseState& state, const KubeDeadline& deadline);

 private:
  // Reads it and takes, renews or leaves it. Aborted: somebody was faster. AlreadyExists: another has it, and
  // nobody knows yet whether that one lives.
  absl::Status Try(bool take, const KubeDeadline& deadline);
  absl::Status Watch(const KubeLeaseState& state);
  absl::Status Put(const std::string& method, const std::string& path, const std::string& body,
                   std::chrono::steady_clock::time_point asked, const KubeDeadline& deadline);
  absl::Status HeldBy(const std::string& holder) const;
  void Tick();

  const KubeApi* const api_;
  const int64_t duration_s_;
  const std::string namespace_;
  const std::string name_;
  const std::string holder_;
  const std::string all_;  // paths
  const std::string path_;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> wanted_ = false;
  std::atomic<int64_t> held_until_ns_ = 0;  // of the steady clock

  // What was last seen of another's, and since when it has not changed.
  std::mutex mutex_;
  std::string seen_;
  std::string seen_holder_;
  bool alive_ = false;  // it was seen to renew it
  std::chrono::steady_clock::time_point seen_since_;

  service::StateThread thread_;
};

// Of this process: the machine's name and a number that no other has.
std::string KubeHolder();

}  // namespace c4::c4d::recovery
