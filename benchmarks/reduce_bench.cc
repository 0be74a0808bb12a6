// How fast the host engine reduces: for each data type, sums of two buffers (combine) and of three
// (combine_many), at a size that stays in the cache of a core and at one that does not. bytes_per_second
// counts the bytes of the result, which is what a network brings; memory moves three and four times as much.
// C4_REDUCE_BASELINE=1 measures what a machine without AVX2 would run.
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ccl/engine/host/reduce.h"

namespace c4::host {
namespace {

constexpr int64_t kSizes[] = {64 << 10, 16 << 20};

struct NamedType {
  const char* name;
  ncclDataType_t type;
};
constexpr NamedType kTypes[] = {
    {"int8", ncclInt8},      {"uint8", ncclUint8},       {"int32", ncclInt32},     {"uint32", ncclUint32},
    {"int64", ncclInt64},    {"uint64", ncclUint64},     {"half", ncclFloat16},    {"float", ncclFloat32},
    {"double", ncclFloat64}, {"bfloat16", ncclBfloat16}, {"e4m3", ncclFloat8e4m3}, {"e5m2", ncclFloat8e5m2},
};

const Reducer& Find(ncclDataType_t type, ncclRedOp_t op) {
  static const bool baseline = getenv("C4_REDUCE_BASELINE") != nullptr;  // NOLINT(concurrency-mt-unsafe)
  return baseline ? *FindReducer(type, op, InstructionSet::kBaseline) : *FindReducer(type, op);
}

// Buffers of small bytes, which are ordinary numbers of every type.
std::vector<std::vector<char>> Buffers(size_t number, size_t bytes) {
  std::vector<std::vector<char>> buffers(number);
  for (size_t b = 0; b < number; ++b) {
    buffers[b].resize(bytes);
    for (size_t i = 0; i < bytes; ++i) buffers[b][i] = static_cast<char>(0x30 + (i * 7 + b) % 16);
  }
  return buffers;
}

void Combine(benchmark::State& state, const Reducer& reducer) {
  const size_t bytes = static_cast<size_t>(state.range(0));
  std::vector<std::vector<char>> buffers = Buffers(3, bytes);
  for ([[maybe_unused]] auto _ : state) {
    reducer.combine(buffers[2].data(), buffers[0].data(), buffers[1].data(), bytes / reducer.element_bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}

void CombineThree(benchmark::State& state, const Reducer& reducer) {
  const size_t bytes = static_cast<size_t>(state.range(0));
  std::vector<std::vector<char>> buffers = Buffers(4, bytes);
  const void* const sources[] = {buffers[0].data(), buffers[1].data(), buffers[2].data()};
  for ([[maybe_unused]] auto _ : state) {
    reducer.combine_many(buffers[3].data(), sources, 3, bytes / reducer.element_bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}

void Register() {
  for (const NamedType& type : kTypes) {
    for (const ncclRedOp_t op : {ncclSum, ncclMax}) {
      const std::string name = std::string(type.name) + (op == ncclSum ? "/sum" : "/max");
      const Reducer& reducer = Find(type.type, op);
      for (const int64_t size : kSizes) {
        benchmark::RegisterBenchmark(("combine/" + name).c_str(), Combine, reducer)->Arg(size);
        benchmark::RegisterBenchmark(("combine_three/" + name).c_str(), CombineThree, reducer)->Arg(size);
      }
    }
  }
}

}  // namespace
}  // namespace c4::host

int main(int argc, char** argv) {
  c4::host::Register();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
