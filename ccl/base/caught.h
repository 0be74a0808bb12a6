// The net under the library. Nothing of ours throws, but the standard library does, where memory is at its
// end (ulimit -v, a limit on data), and the user's process must not end of that. Every way into the library
// and every thread of its own runs within Caught; what lies between is unwound as usual, locks and files
// included. What was asked for is then not done, and a communicator that was at work fails for good.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "ccl/base/result.h"

namespace c4 {

// Says how much address space the process holds, and how much it may. Never throws.
Result OutOfMemory();
// Of what is no lack of memory: a defect of ours. Never throws.
Result Unexpected(const std::exception& error);

// What `call` returns, or the failure that stands for what it threw. The end of a thread by pthread_cancel
// goes through.
template <typename Call>
Result Caught(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::exception& error) {
    return Unexpected(error);
  }
}

// A function of a plugin's table under the net: kOtherwise is what NCCL hears where it threw.
template <auto kFunction, auto kOtherwise, typename Signature = decltype(kFunction)>
struct CaughtFunction;
template <auto kFunction, auto kOtherwise, typename Return, typename... Arguments>
struct CaughtFunction<kFunction, kOtherwise, Return (*)(Arguments...)> {
  static Return Call(Arguments... arguments) {
    try {
      return kFunction(arguments...);
    } catch (const std::exception&) {
      return kOtherwise;
    }
  }
};

}  // namespace c4
