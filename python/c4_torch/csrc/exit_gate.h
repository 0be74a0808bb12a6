// The threads of the groups at the end of the interpreter. They let go of tensors and run hooks, which may be
// objects of Python's. Once the interpreter ends nobody may do that: Python ends a thread that needs its lock
// then, in the middle of a destructor, and the process with it. So such a thread is inside while it does
// anything of that sort, and outside while it waits. Once the gate is closed, nobody gets inside any more: a
// thread that wants to stands still until the process is gone, and keeps what it has.
//
// Any thread.
#pragma once

#include <chrono>

namespace c4_torch {

class ExitGate {
 public:
  // Before the process has such threads. The child of a fork inherits none, and begins anew.
  static void Open();

  // A thread of a group's, from its first to its last use of a tensor.
  class Inside {
   public:
    Inside();
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
  };

  // While such a thread waits. REQUIRES: no lock is held at its end. Of a thread that is not inside: nothing.
  class Outside {
   public:
    Outside();
    ~Outside();
    Outside(const Outside&) = delete;
    Outside& operator=(const Outside&) = delete;

   private:
    const bool was_inside_;
  };

  // Before the interpreter ends, without its lock: who is inside may need it. Waits until nobody is inside;
  // false when somebody still is after so long.
  static bool Close(std::chrono::milliseconds patience);
};

}  // namespace c4_torch
