// Whether this process was forked from the one that things were made in: threads, connections and shared
// memory stay with that one, so that what inherits them may not touch them.
#pragma once

#include <atomic>
#include <cstdint>

namespace c4 {

namespace fork_internal {
extern std::atomic<uint64_t> forks;
}

// Forks between the process that loaded the library and this one. What was made under another number belongs
// to another process. Any thread.
inline uint64_t Forks() {
  return fork_internal::forks.load(std::memory_order_relaxed);
}

// From now on the children of forks close the sockets that this process's Fds own (ccl/base/socket.h), and
// nothing else: a child that held them, a data loader say, would keep peers from hearing that its parent has
// died. Called before the first stream of a communicator; programs that only borrow Fd are left alone.
void CloseStreamsInChildren();

// Descriptors that an Fd of this process owns. Any thread; numbers past the first million are not kept.
void TrackDescriptor(int fd);
void ForgetDescriptor(int fd);

}  // namespace c4
