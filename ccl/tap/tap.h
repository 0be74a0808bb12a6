// The tap's way into a library that looks verbs up at run time, NVIDIA's NCCL first of all: its own calls of
// dlsym and dlvsym find ours (import_slots.h), and so does it find our functions for those of verbs that
// matter (verbs_calls.h). Nobody else's look-ups change, and all that this library looks up otherwise is what
// it was.
//
// Once a library, before it looks anything up; any thread.
#pragma once

#include <string>

#include "ccl/base/result.h"

namespace c4::tap {

// `handle`: of dlopen. Not Ok: it is left alone, and why ("has no slot for dlsym": it links verbs directly).
Result Install(void* handle);
// Every library as it was. What it has looked up meanwhile stays with it.
Result Uninstall();

}  // namespace c4::tap
