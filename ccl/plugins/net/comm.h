// One end of a connection as NCCL holds it: a transport connection with a lock, the requests that are under
// way on it, and what the service thread needs to look after it while NCCL calls nothing.
//
// Any thread; each comm has its own lock. Requests belong to their comm and are valid until Test has said
// that they are done, or the comm is closed. A failed comm stays failed and says so once in the log.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <poll.h>
#include <vector>

#include "ccl/base/fork.h"
#include "ccl/plugins/net/identity.h"
#include "ccl/plugins/net/net_plugin.h"
#include "ccl/transport/backend.h"
#include "ccl/transport/connection.h"

namespace c4::net {

class Comm;

struct Request {
  Comm* comm = nullptr;
  uint64_t done_at = 0;     // completed messages of its connection
  uint64_t flushed_at = 0;  // and flushes
  int count = 0;            // of its messages
  size_t bytes[kMostReceives] = {};
  Request* next = nullptr;  // that is free
};

class Comm {
 public:
  virtual ~Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  ncclResult_t Test(Request* request, int* done, int* bytes);
  // Memory for its messages; the caller owns what is made of it.
  virtual Backend* backend() const = 0;
  // In order, if there is anybody to tell. Nothing may be called afterwards but by the service thread.
  void Close();
  // A forked child has it from its parent: it may not be touched.
  bool inherited() const { return Forks() != forks_; }

  // The service thread. When to look again at the latest.
  uint64_t Look(uint64_t now_ns, bool path_news);
  // What to be woken by until then: nothing while NCCL drives it.
  void AppendPolls(std::vector<pollfd>* polls);
  virtual void LoseAddress(const SocketAddress& /*address*/) {}
  // Made for somebody who has not asked for it for long: it may be closed.
  virtual bool abandoned(uint64_t /*now_ns*/) { return false; }

 protected:
  Comm(const Identity& identity, int peer, uint16_t channel, uint64_t number, int most_requests);

  // Of the connection, under the lock. Null when it is closed or not made yet.
  virtual Result Progress(bool* moved) = 0;
  virtual uint64_t completed() const = 0;
  virtual uint64_t flushed() const { return 0; }
  virtual bool watchful() const = 0;
  virtual void AppendDataPolls(std::vector<pollfd>* polls) const = 0;
  // What poll() said of what AppendDataPolls has put there.
  virtual void TakeDataPolls(const pollfd* polls) = 0;
  virtual void AppendFencePolls(std::vector<pollfd>* polls) const = 0;
  virtual void LookAtPaths(bool /*news*/) {}
  virtual void Leave() = 0;

  // Progress with a ring to record to; what fails is remembered.
  ncclResult_t Drive();
  ncclResult_t Failed(Result result);
  Request* TakeRequest();
  const Recording& recording() const { return recording_; }

  std::mutex mutex_;
  bool closed_ = false;
  Result failed_;
  uint32_t drives_ = 0;  // by NCCL's threads

 private:
  void LookAtStreams();
  bool IsDone(const Request& request) const {
    return completed() >= request.done_at && flushed() >= request.flushed_at;
  }
  void GiveBack(Request* request);

  const uint64_t forks_ = Forks();
  RingWriter ring_;
  const Recording recording_;
  std::vector<Request> requests_;
  Request* free_ = nullptr;
  int under_way_ = 0;
  std::vector<pollfd> polls_;  // of Drive, kept for their memory
  uint32_t seen_drives_ = UINT32_MAX;
  bool driven_ = false;  // lately, by NCCL
};

}  // namespace c4::net
