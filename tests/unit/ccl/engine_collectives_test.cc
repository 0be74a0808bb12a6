// Every collective of the host engine, over loopback, with every algorithm, type and reduction, for 1 to 9
// ranks: random programs from fixed seeds, checked against double precision.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>

#include "ccl/base/data_type.h"
#include "ccl/engine/host/operations.h"
#include "tests/double/gpu_memory.h"
#include "tests/unit/ccl/engine_ranks.h"

namespace c4::host {
namespace {

struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
};

bool IsSmallFloat(ncclDataType_t type, SmallFloat* shape) {
  switch (type) {
    case ncclFloat16:
      *shape = {5, 10};
      return true;
    case ncclBfloat16:
      *shape = {8, 7};
      return true;
    case ncclFloat8e4m3:
      *shape = {4, 3};
      return true;
    case ncclFloat8e5m2:
      *shape = {5, 2};
      return true;
    default:
      return false;
  }
}

double Decode(ncclDataType_t type, uint32_t bits) {
  SmallFloat shape{};
  if (!IsSmallFloat(type, &shape)) return 0;
  const int bias = (1 << (shape.exponent_bits - 1)) - 1;
  const auto mantissa = static_cast<double>(bits & ((1u << shape.mantissa_bits) - 1));
  const auto exponent = static_cast<int>((bits >> shape.mantissa_bits) & ((1u << shape.exponent_bits) - 1));
  const double sign = (bits >> (shape.mantissa_bits + shape.exponent_bits)) != 0 ? -1 : 1;
  const double unit = std::ldexp(1.0, -shape.mantissa_bits);
  if (exponent == 0) return sign * std::ldexp(mantissa * unit, 1 - bias);
  return sign * std::ldexp(1 + mantissa * unit, exponent - bias);
}

// Whole numbers from 0 to 2 have a code in every type.
uint32_t Encode(ncclDataType_t type, int value) {
  for (uint32_t bits = 0;; ++bits) {
    if (Decode(type, bits) == value) return bits;
  }
}

template <typename T>
void Put(char* at, double value) {
  const T typed = static_cast<T>(value);
  memcpy(at, &typed, sizeof typed);
}
template <typename T>
double Get(const char* at) {
  T typed;
  memcpy(&typed, at, sizeof typed);
  return static_cast<double>(typed);
}

void Write(ncclDataType_t type, char* buffer, size_t index, int value) {
  static const std::vector<std::vector<uint32_t>> kCodes = [] {
    std::vector<std::vector<uint32_t>> codes(ncclNumTypes);
    for (int t = 0; t < ncclNumTypes; ++t) {
      SmallFloat shape{};
      for (int v = 0; v < 3 && IsSmallFloat(static_cast<ncclDataType_t>(t), &shape); ++v) {
        codes[static_cast<size_t>(t)].push_back(Encode(static_cast<ncclDataType_t>(t), v));
      }
    }
    return codes;
  }();
  char* const at = buffer + index * ElementBytes(type);
  switch (type) {
    case ncclInt8:
      return Put<int8_t>(at, value);
    case ncclUint8:
      return Put<uint8_t>(at, value);
    case ncclInt32:
      return Put<int32_t>(at, value);
    case ncclUint32:
      return Put<uint32_t>(at, value);
    case ncclInt64:
      return Put<int64_t>(at, value);
    case ncclUint64:
      return Put<uint64_t>(at, value);
    case ncclFloat32:
      return Put<float>(at, value);
    case ncclFloat64:
      return Put<double>(at, value);
    default: {
      const uint32_t bits = kCodes[type][static_cast<size_t>(value)];
      memcpy(at, &bits, ElementBytes(type));
    }
  }
}

double Read(ncclDataType_t type, const char* buffer, size_t index) {
  const char* const at = buffer + index * ElementBytes(type);
  switch (type) {
    case ncclInt8:
      return Get<int8_t>(at);
    case ncclUint8:
      return Get<uint8_t>(at);
    case ncclInt32:
      return Get<int32_t>(at);
    case ncclUint32:
      return Get<uint32_t>(at);
    case ncclInt64:
      return Get<int64_t>(at);
    case ncclUint64:
      return Get<uint64_t>(at);
    case ncclFloat32:
      return Get<float>(at);
    case ncclFloat64:
      return Get<double>(at);
    default: {
      uint32_t bits = 0;
      memcpy(&bits, at, ElementBytes(type));
      return Decode(type, bits);
    }
  }
}

// How far a result may be off: as many roundings as there are ranks.
double Tolerance(ncclDataType_t type, int ranks) {
  SmallFloat shape{};
  if (IsSmallFloat(type, &shape)) return ranks * std::ldexp(1.0, -shape.mantissa_bits);
  if (type == ncclFloat32) return ranks * 1.2e-7;
  return type == ncclFloat64 ? ranks * 2.3e-16 : 0;
}

// What rank `rank` puts at `index` in round `round`: 0, 1 or 2.
int Value(int rank, size_t index, unsigned round) {
  const auto mixed =
      (static_cast<unsigned>(index) * 2654435761u) ^ (static_cast<unsigned>(rank) * 40503u) ^ (round * 97u);
  return static_cast<int>((mixed >> 7) % 3);
}

struct Program {
  wire::Function function;
  ncclDataType_t type;
  ncclRedOp_t reduction;
  size_t count;
  int root;
  bool in_place;
  size_t offset;  // elements that buffers are off from an aligned address
  bool scales;    // each operand is multiplied by 2
};

// The same, but that products stay what the smallest type holds.
int Operand(const Program& p, int rank, size_t index, unsigned round) {
  const int value = Value(rank, index, round);
  return p.reduction == ncclProd && Reduces(p.function) && rank >= 6 ? std::min(value, 1) : value;
}

constexpr wire::Function kFunctions[] = {wire::kAllReduce, wire::kReduce,        wire::kBroadcast,
                                         wire::kAllGather, wire::kReduceScatter, wire::kAlltoAll,
                                         wire::kGather,    wire::kScatter};

Program Draw(std::mt19937* random, int ranks) {
  constexpr size_t kCounts[] = {0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 1000, 1023, 4097, 9001};
  Program program{};
  program.function = kFunctions[(*random)() % std::size(kFunctions)];
  program.type = static_cast<ncclDataType_t>((*random)() % ncclNumTypes);
  program.reduction = static_cast<ncclRedOp_t>((*random)() % ncclNumOps);
  program.count = kCounts[(*random)() % std::size(kCounts)];
  program.root = static_cast<int>((*random)() % static_cast<unsigned>(ranks));
  program.in_place = program.function != wire::kAlltoAll && (*random)() % 2 == 0;
  program.offset = (*random)() % 4;
  program.scales = Reduces(program.function) && program.reduction == ncclSum && (*random)() % 3 == 0;
  return program;
}

double Reduced(const Program& p, int ranks, size_t index, unsigned round) {
  const int factor = p.scales ? 2 : 1;
  double result = factor * Operand(p, 0, index, round);
  for (int rank = 1; rank < ranks; ++rank) {
    const double value = factor * Operand(p, rank, index, round);
    switch (p.reduction) {
      case ncclProd:
        result *= value;
        break;
      case ncclMax:
        result = std::max(result, value);
        break;
      case ncclMin:
        result = std::min(result, value);
        break;
      default:
        result += value;
    }
  }
  if (p.reduction != ncclAvg) return result;
  SmallFloat shape{};
  const bool is_float = p.type == ncclFloat32 || p.type == ncclFloat64 || IsSmallFloat(p.type, &shape);
  return is_float ? result / ranks : std::floor(result / ranks);
}

// Element `index` of the receive buffer of `rank`.
double Expected(const Program& p, int rank, int ranks, size_t index, unsigned round) {
  const size_t block = p.count == 0 ? 0 : index / p.count;
  const size_t place = p.count == 0 ? 0 : index % p.count;
  switch (p.function) {
    case wire::kBroadcast:
      return Value(p.root, index, round);
    case wire::kAllGather:
    case wire::kGather:
      return Value(static_cast<int>(block), place, round);
    case wire::kReduceScatter:
      return Reduced(p, ranks, static_cast<size_t>(rank) * p.count + index, round);
    case wire::kAlltoAll:
      return Value(static_cast<int>(block), static_cast<size_t>(rank) * p.count + place, round);
    case wire::kScatter:
      return Value(p.root, static_cast<size_t>(rank) * p.count + index, round);
    default:
      return Reduced(p, ranks, index, round);
  }
}

// `in_gpu`: bit 0 for the buffer that is sent from, bit 1 for the one that is received into.
void RunProgram(HostCommunicator& communicator, const Program& p, unsigned round, unsigned in_gpu = 0) {
  const auto n = static_cast<size_t>(communicator.rank_count());
  const auto me = static_cast<size_t>(communicator.rank());
  const bool is_root = communicator.rank() == p.root;
  const bool sends_blocks =
      p.function == wire::kReduceScatter || p.function == wire::kAlltoAll || p.function == wire::kScatter;
  const bool takes_blocks =
      p.function == wire::kAllGather || p.function == wire::kAlltoAll || p.function == wire::kGather;
  const bool sends = !(p.function == wire::kBroadcast || p.function == wire::kScatter) || is_root;
  const bool takes = !(p.function == wire::kReduce || p.function == wire::kGather) || is_root;
  const size_t send_count = p.count * (sends_blocks ? n : 1);
  const size_t recv_count = p.count * (takes_blocks ? n : 1);
  const size_t bytes = ElementBytes(p.type);
  const size_t margin = 8;
  const test::GpuMemory input((send_count + p.offset + margin) * bytes, (in_gpu & 1) != 0);
  const test::GpuMemory output((recv_count + p.offset + 2 * margin) * bytes, (in_gpu & 2) != 0);
  const test::GpuMemory* in_of = &input;
  const test::GpuMemory* out_of = &output;
  char* in = input.seen() + p.offset * bytes;
  char* out = output.seen() + (p.offset + margin) * bytes;
  if (p.in_place && takes && sends) {
    // As NCCL has it: one buffer, the smaller one at this rank's block of the larger.
    if (takes_blocks) {
      in = out + me * p.count * bytes;
      in_of = out_of;
    } else if (sends_blocks) {
      out = in + me * p.count * bytes;
      out_of = in_of;
    } else {
      in = out;
      in_of = out_of;
    }
  }
  for (size_t i = 0; i < send_count && sends; ++i)
    Write(p.type, in, i, Operand(p, communicator.rank(), i, round));
  Operation operation;
  operation.function = p.function;
  operation.send_buffer = sends ? in_of->Used(in) : nullptr;
  operation.recv_buffer = takes ? out_of->Used(out) : nullptr;
  operation.count = p.count;
  operation.data_type = p.type;
  operation.reduction = p.reduction;
  operation.root = p.root;
  operation.scales = p.scales;
  if (p.scales) Write(p.type, reinterpret_cast<char*>(operation.factor), 0, 2);
  const OwnStream stream;
  operation.stream = stream.handle;
  ASSERT_TRUE(communicator.Supports(operation).ok());
  operation.called_ticks = communicator.RecordCall(operation);
  ASSERT_TRUE(communicator.Enqueue(&operation, 1).ok());
  ASSERT_EQ(stream.Synchronize(), ncclSuccess) << communicator.AsyncError().message();
  if (!takes) return;
  const double tolerance = Tolerance(p.type, communicator.rank_count());
  for (size_t i = 0; i < recv_count; ++i) {
    const double expected = Expected(p, communicator.rank(), communicator.rank_count(), i, round);
    ASSERT_NEAR(Read(p.type, out, i), expected, tolerance * std::max(1.0, std::abs(expected)))
        << "function " << int{p.function} << " type " << p.type << " reduction " << p.reduction << " count "
        << p.count << " root " << p.root << (p.in_place ? " in place" : "") << " of " << n << " ranks, rank "
        << me << ", element " << i;
  }
  if (p.in_place) return;
  for (size_t i = 0; i < margin * bytes; ++i) {
    ASSERT_EQ(out[recv_count * bytes + i], 0x55) << "wrote behind the buffer";
    ASSERT_EQ(out[-1 - static_cast<std::ptrdiff_t>(i)], 0x55) << "wrote before the buffer";
  }
}

class Collectives : public EngineRanks, public testing::WithParamInterface<std::tuple<std::string, int>> {};

TEST_P(Collectives, RandomProgramsGiveTheRightResults) {
  const auto [algorithm, ranks] = GetParam();
  const ScopedKnob forced("C4_ALGORITHM", algorithm);
  const ScopedKnob slices("C4_SLICE_BYTES", "4096");  // many slices without many bytes
  const ScopedKnob channels("C4_CHANNELS", ranks % 3 == 0 ? "2" : "1");
  Ranks(ranks, [&, n = ranks](HostCommunicator& communicator) {
    std::mt19937 random(static_cast<unsigned>(n));
    for (unsigned round = 0; round < 60; ++round) {
      RunProgram(communicator, Draw(&random, n), round);
      if (HasFatalFailure()) return;
    }
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}

// Each rank's buffers are of the host or of a GPU, as it comes.
TEST_P(Collectives, RandomProgramsOnMemoryOfGpus) {
  ASSERT_NE(test::LoadFakeDriver(), nullptr) << dlerror();
  const auto [algorithm, ranks] = GetParam();
  const ScopedKnob forced("C4_ALGORITHM", algorithm);
  const ScopedKnob slices("C4_SLICE_BYTES", "4096");
  Ranks(ranks, [&, n = ranks](HostCommunicator& communicator) {
    std::mt19937 random(static_cast<unsigned>(n) + 100);
    std::mt19937 own(static_cast<unsigned>(communicator.rank()) + 200);
    for (unsigned round = 0; round < 20; ++round) {
      RunProgram(communicator, Draw(&random, n), round, own() % 4);
      if (HasFatalFailure()) return;
    }
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}

long PrivateKib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    long kib = 0;
    if (sscanf(line.c_str(), "RssAnon: %ld kB", &kib) == 1) return kib;
  }
  return 0;
}

class Memory : public EngineRanks, public testing::WithParamInterface<const char*> {};

// Beside the buffers of its channels, which are shared memory or the kernel's.
TEST_P(Memory, ARankNeedsNoMoreThan32MiB) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's memory counts as well";
#endif
  constexpr int kRanks = 8;
  constexpr size_t kCount = size_t{4} << 20;  // floats
  const ScopedKnob shm("C4_SHM", GetParam());
  std::barrier all(kRanks);
  std::atomic<long> before{0};
  Ranks(kRanks, [&](HostCommunicator& communicator) {
    std::vector<float> in(kCount, 1);
    std::vector<float> out(kCount, 1);
    const OwnStream stream;
    const auto measure = [&] {
      all.arrive_and_wait();
      const long now = PrivateKib();
      all.arrive_and_wait();
      return now;
    };
    before = measure();
    for (const wire::Function function : kFunctions) {
      for (const ncclRedOp_t reduction : {ncclSum, ncclAvg}) {
        Operation operation = AllReduce(in.data(), out.data(), kCount, stream.handle);
        operation.function = function;
        operation.root = 0;
        operation.reduction = reduction;
        if (HasBlocks(function)) operation.count /= kRanks;
        operation.called_ticks = communicator.RecordCall(operation);
        ASSERT_TRUE(communicator.Enqueue(&operation, 1).ok());
        ASSERT_EQ(stream.Synchronize(), ncclSuccess);
      }
    }
    const long after = measure();
    if (communicator.rank() == 0)
      printf("%.1f MiB a rank\n", static_cast<double>(after - before) / 1024 / kRanks);
    EXPECT_LE(after - before, kRanks * 32 * 1024);
    all.arrive_and_wait();
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}
INSTANTIATE_TEST_SUITE_P(ByTransport, Memory, testing::Values("1", "0"),
                         [](const auto& test) { return std::string(test.param) == "1" ? "shm" : "tcp"; });

// Every type with every reduction, sizes of every kind, in place and not. Some minutes for each number of
// ranks: C4_CROSS=1, and --gtest_filter for one of them.
TEST_P(Collectives, TheWholeCross) {
  const char* const wanted = getenv("C4_CROSS");  // NOLINT(concurrency-mt-unsafe): nobody changes it
  if (wanted == nullptr) GTEST_SKIP() << "long: C4_CROSS=1";
  const auto [algorithm, ranks] = GetParam();
  const ScopedKnob forced("C4_ALGORITHM", algorithm);
  std::vector<Program> programs;
  for (const wire::Function function : kFunctions) {
    for (int type = 0; type < ncclNumTypes; ++type) {
      const int reductions = Reduces(function) ? ncclNumOps + 1 : 1;
      for (int reduction = 0; reduction < reductions; ++reduction) {
        for (const size_t count : {0, 1, 1023, 20011}) {
          for (const bool in_place : {false, true}) {
            if (in_place && function == wire::kAlltoAll) continue;
            const size_t number = programs.size();
            programs.push_back({function, static_cast<ncclDataType_t>(type),
                                static_cast<ncclRedOp_t>(reduction % ncclNumOps), count,
                                static_cast<int>(number) % ranks, in_place, number % 4,
                                reduction == ncclNumOps});
          }
        }
      }
    }
  }
  Ranks(ranks, [&](HostCommunicator& communicator) {
    for (unsigned round = 0; round < programs.size(); ++round) {
      RunProgram(communicator, programs[round], round);
      if (HasFatalFailure()) return;
    }
    EXPECT_TRUE(communicator.Finalize().ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Each, Collectives,
                         testing::Combine(testing::Values("auto", "ring", "tree", "direct", "exchange"),
                                          testing::Range(1, 10)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" + std::to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace c4::host
