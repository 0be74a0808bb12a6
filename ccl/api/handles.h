// Handles of communicators: what an ncclComm_t of ours is, and how a call gets from it to the communicator.
//
// A handle is no address but a number: the place in a table, and how often that place was taken. It is
// always odd, so that it never equals a pointer that an allocator gave out, and looking it up dereferences
// nothing of the caller's: garbage, a foreign pointer or a communicator that was destroyed is recognised.
//
// A Pin finds the entry and keeps it alive; it takes no lock, only one compare-and-swap on the entry's own
// line. Retire makes the handle invalid at once; the entry is freed when its last pin goes, on whichever
// thread that is. So ncclCommAbort may come while another thread is in the middle of a call.
//
// Any thread may do any of this at any time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "ccl/engine/engine.h"

namespace c4::api {

enum class Phase {
  kActive,
  kFinalizing,  // one thread is in ncclCommFinalize or ncclCommDestroy
  kFinalized,
  kFailed,  // finalizing failed: only destroy and abort are left
};

// One live communicator, as the API keeps it.
struct Entry {
  std::unique_ptr<Communicator> communicator;

  // Held while the engine is entered for an operation, so that two threads which share a communicator, or
  // one that finalizes it, do not meet there. Never held while waiting for a peer.
  std::mutex call_mutex;
  Phase phase = Phase::kActive;  // under call_mutex

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

  // Makes the handle invalid. False when another thread did so before.
  bool Retire();

 private:
  Slot* slot_ = nullptr;
};

// What is wrong with a handle that Pin did not find.
Result BadHandle(ncclComm_t handle);

}  // namespace c4::api
