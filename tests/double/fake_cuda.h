// A double of CUDA's driver as a shared library with its name, for tests of stamps: streams that run their
// work in order on threads of their own, captures and graphs, a GPU's timer that drifts against ours, and
// kernels that are really run, by an interpreter of as much of NVIDIA's assembly language as ours uses. What
// a real driver would refuse (an unknown instruction, an address that is not the device's, a call that a
// capture forbids, no context) it refuses, too. Tests find these functions by dlsym. Thread-safe.
//
// What it cannot show: whether the real assembler takes the text, and that a GPU's writes are seen in order.
#pragma once

#include <cstdint>

namespace c4::fake_cuda {

using MakeStream = void* (*)();                           // fake_cuda_stream
using Work = void (*)(void* stream, uint64_t ns);         // fake_cuda_work: something that takes so long
using Hold = void (*)(void* stream, int held);            // fake_cuda_hold: nothing more begins while held
using Synchronize = void (*)(void* stream);               // fake_cuda_synchronize
using BeginCapture = void (*)(void* stream);              // fake_cuda_begin_capture
using EndCapture = void* (*)(void* stream);               // fake_cuda_end_capture; nullptr: invalidated
using LaunchGraph = void (*)(void* graph, void* stream);  // fake_cuda_launch_graph
using GpuNow = uint64_t (*)();                            // fake_cuda_now_ns
using FailCalls = void (*)(const char* name, int code, int times);  // fake_cuda_fail; 0 times: no more
using CountCalls = uint64_t (*)(const char* name);                  // fake_cuda_calls
// Memory of a device, by size, and as the device sees it: the processor may not touch it where it is.
using MakeMemory = void* (*)(int device, uint64_t bytes);  // fake_cuda_memory
using SeenMemory = void* (*)(void* memory);                // fake_cuda_seen
using FreeMemory = void (*)(void* memory);                 // fake_cuda_free
using Faults = uint64_t (*)();  // fake_cuda_faults: of the kernels' addresses and instructions

}  // namespace c4::fake_cuda
