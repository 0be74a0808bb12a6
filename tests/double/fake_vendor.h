// A double of the vendor's NCCL as a shared library, for tests of the front door: it keeps what it was called
// with, does as it is told, and calls some of its own functions through their symbols, as the real one does.
// Tests find these functions by dlsym; they are in the library beside NCCL's own names.
//
// Built several times: FAKE_VERSION is what ncclGetVersion says; FAKE_LATER adds names of later releases.
// What it cannot show: anything that takes a GPU. Thread-safe.
#pragma once

#include <cstdint>

namespace c4::fake_vendor {

// The last call, and how many there were.
struct LastCall {
  char name[64];
  uint64_t arguments[6];
  uint64_t calls;
};

using ReadLastCall = void (*)(LastCall* last);           // fake_last_call
using SetResult = void (*)(const char* name, int code);  // fake_set_result; of all calls of that name
using CountCalls = uint64_t (*)(const char* name);       // fake_calls
// fake_set_launch: called with the stream where the real one launches its kernel, at the end of a group for
// each operation in it. Not where the operation was told to fail, or to go on in a thread of its own.
using SetLaunch = void (*)(void (*launch)(void* stream));

}  // namespace c4::fake_vendor
