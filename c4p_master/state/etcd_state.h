// The state of path masters that stand in for each other in an etcd that they share, over its JSON gateway
// (etcd_words.h). One leads (leadership.h); what it writes is written only while the epoch in etcd is its
// own.
//
// The leader has etcd forget its history, of which each renewal of the lease is a part: up to what was there
// one `compact_every` ago.
//
// Two threads of its own: one holds the lease or waits for it, the other writes. The rest is called by the
// state thread, but for what says otherwise.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "c4p_master/state/etcd_client.h"
#include "c4p_master/state/etcd_words.h"
#include "c4p_master/state/leadership.h"
#include "c4p_master/state/state_store.h"

namespace c4::c4p {

class EtcdState final : public StateStore {
 public:
  struct Options {
    EtcdPlace place;
    std::string self;     // like no other master
    uint64_t wished = 0;  // epoch (Leadership)
    LeaseTimes times;
    absl::Duration compact_every = absl::Minutes(5);  // zero: somebody else compacts
  };
  // The first `done` after what was written runs in a task given to `post` (any thread; false: never).
  using Post = std::function<bool(std::function<void()>)>;

  explicit EtcdState(Options options);
  ~EtcdState() override;  // what waits to be written is not; the lease runs out
  EtcdState(const EtcdState&) = delete;
  EtcdState& operator=(const EtcdState&) = delete;

  // Waits until this master leads. Cancelled: `stop`, asked ten times a second, said true. PermissionDenied,
  // FailedPrecondition, DataLoss: it never will, with what to do.
  absl::Status AwaitLeadership(const std::function<bool()>& stop);
  uint64_t epoch() const { return epoch_; }  // once it leads
  // OK, or why it leads no more: then it never will again. Any thread.
  absl::Status leading() const;

  absl::StatusOr<StateRecords> Load() override;
  // Before the first Write.
  void SetPost(Post post) { post_ = std::move(post); }
  void Write(std::vector<StateChange> changes, Done done) override;

 private:
  struct Batch {
    std::vector<StateChange> changes;
    std::vector<Done> done;
  };

  void HoldLease();
  void WriteAll();
  absl::Status WriteBatch(const Batch& batch);
  // What to say of the lease's last step.
  void Tell(const absl::Status& status, bool writable);
  void Compact();
  int64_t NowNs() const;
  bool stopping() const;
  // For so long, or until it ends.
  void Nap(absl::Duration pause);

  const Options options_;
  EtcdClient client_;
  Post post_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  Leadership leadership_;
  absl::Status told_;     // of the store, in the log
  int64_t revision_ = 0;  // etcd's, when the lease was last renewed
  uint64_t epoch_ = 0;
  std::deque<Batch> waiting_;
  size_t waiting_bytes_ = 0;
  int64_t compact_at_ns_ = 0;  // the write thread's
  int64_t compact_revision_ = 0;
  std::thread lease_thread_;
  std::thread write_thread_;
};

}  // namespace c4::c4p
