// Handles of communicators: what an ncclComm_t of ours is, and how a call gets from it to the communicator.
//
// A handle is no address but a number: the place in a table, and how often that place was taken. It is
// always odd, so that it never equals a pointer that an allocator gave out, and looking it up dereferences
// nothing of the caller's: garbage, a foreign pointer or a communicator that was destroyed is recognised.
//
// A communicator belongs to the process that made it: a child that was forked from that one finds it no more.
//
// A Pin finds the entry and keeps it alive; it takes no lock, only one compare-and-swap on the entry's own
// line. Retire makes the handle invalid at once; the entry is freed when its last pin goes, on whichever
// thread that is. So ncclCommAbort may come while another thread is in the middle of a call.
//
// Any thread may do any of this at any time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "ccl/api/reductions.h"
#include "ccl/api/registrations.h"
#include "ccl/base/fork.h"
#include "ccl/engine/engine.h"

namespace c4::api {

enum class Phase {
  kPlanned,  // its making waits for the end of a group
  kJoining,  // a thread waits for the other ranks
  kActive,
  kFinalizing,  // a thread is in Communicator::Finalize
  kFinalized,
  kFailed,  // joining or finalizing failed: only destroy and abort are left
};

// One live communicator, as the API keeps it.
struct Entry {
  // Set before it is handed out, and constant from then on.
  Engine* engine = nullptr;
  uint64_t forks = Forks();  // of the process that it belongs to
  bool blocking = true;      // calls that wait for other ranks return when they are through
  // Ends the joining; shared with what joins, which may outlive the entry.
  std::shared_ptr<std::atomic<bool>> cancelled;

  // Set once, when the phase leaves kJoining; stays null when joining failed. Valid for as long as a Pin.
  std::unique_ptr<Communicator> communicator;

  // Held while the engine is entered for an operation, so that two threads which share a communicator, or
  // one that finalizes it, do not meet there. Never held while waiting for a peer.
  std::mutex call_mutex;
  // What follows is under call_mutex.
  Phase phase = Phase::kPlanned;
  int busy = 0;  // calls under way for which other calls have to wait: splits, groups in the background
  bool revoked = false;   // operations were ended by ncclCommRevoke or ncclCommShrink
  Result failure;         // why joining, finalizing or the end of a group in the background failed
  uint64_t children = 0;  // splits and shrinks so far
  UserReductions reductions;
  Registrations buffers{"a buffer", "ncclCommRegister"};
  Registrations windows{"a window", "ncclCommWindowRegister"};
  std::condition_variable changed;  // when `phase` or `busy` did

  std::mutex error_mutex;
  std::string last_error;  // under error_mutex
};

// Takes `*entry` into the table; leaves it to the caller when that fails.
Result AddEntry(std::unique_ptr<Entry>* entry, ncclComm_t* handle);

struct Slot;

class Pin {
 public:
  explicit Pin(ncclComm_t handle);
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  ~Pin();

  explicit operator bool() const { return slot_ != nullptr; }
  Entry* operator->() const;
  Entry& operator*() const { return *operator->(); }

  // Nothing was found, because it belongs to the process that this one was forked from.
  bool inherited() const { return inherited_; }
  // Makes the handle invalid. False when another thread did so before.
  bool Retire();

 private:
  Slot* slot_ = nullptr;
  bool inherited_ = false;
};

// What is wrong with a handle that Pin did not find.
Result BadHandle(ncclComm_t handle);

// Whether a communicator takes calls now. REQUIRES for all three: entry.call_mutex is held.
//
// It has been made, and nothing is under way that other calls have to wait for.
Result CheckReady(const Entry& entry);
// The same, and it was neither finalized nor did it fail.
Result CheckAlive(const Entry& entry);
// What CheckAlive says of a communicator that failed: its failure once more.
bool IsEcho(const Result& result);
// The same, and it was not revoked: it takes operations.
Result CheckUsable(const Entry& entry);

}  // namespace c4::api
