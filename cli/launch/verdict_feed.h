// The verdicts of a job as they come, for somebody with a loop of its own (the launcher): each time that one
// is suspected, confirmed or cleared, once. A thread of its own asks the master, and looks for it again when
// it went away; whoever waits on `event_fd` is woken.
//
// Take and Open may be called from any thread. The destructor ends the thread, at once. Nothing fails: a
// master that cannot be asked gives no verdicts.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "c4/v1/c4d.pb.h"
#include "cli/clients/master_client.h"

namespace c4::cli {

// What of a stream of verdicts is news: another state. Also across reconnects, when the master sends
// everything that is open again. A suspicion that an open confirmed verdict explains is none, nor is its end.
// Pure.
class VerdictNews {
 public:
  bool Take(const v1::Verdict& verdict);
  // Those that are open, as VerdictsToShow orders them.
  std::vector<v1::Verdict> Open() const;

 private:
  struct Known {
    v1::Verdict verdict;
    v1::VerdictState told = v1::VERDICT_STATE_UNSPECIFIED;
  };
  std::map<std::string, Known> known_;
};

class VerdictFeed {
 public:
  explicit VerdictFeed(MasterOptions master);
  ~VerdictFeed();
  VerdictFeed(const VerdictFeed&) = delete;
  VerdictFeed& operator=(const VerdictFeed&) = delete;

  // Readable when there is something to take; -1 where the system gave none.
  int event_fd() const { return event_fd_; }
  std::vector<v1::Verdict> Take();
  std::vector<v1::Verdict> Open() const;

 private:
  void Follow();
  // False when it is time to end.
  bool Pause();

  const MasterOptions master_;
  const int event_fd_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::shared_ptr<MasterClient> client_;  // while it is asked
  VerdictNews news_;
  std::vector<v1::Verdict> changes_;
  std::thread thread_;
};

}  // namespace c4::cli
