// mpi_perf COLLECTIVE [options]: the counterpart of our perf programs for any MPI library, to compare with.
// Options, sizes, buffers, warm-up, timing, check and JSON are theirs, made of the same sources; float and
// sum only. No part of the build: compare_mpi.py compiles it with each library's mpicxx.
//
// What MPI does not have is left out: MPI_Bcast has one buffer, and both columns of the table are that call;
// all-to-all in place is not measured.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mpi.h>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/perf_check.h"
#include "benchmarks/perf_options.h"
#include "benchmarks/perf_report.h"

namespace c4::perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kElementBytes = sizeof(float);

struct Name {
  const char* name;
  const char* function;
  Kind kind;
};
constexpr Name kNames[] = {
    {"all_reduce", "MPI_Allreduce", Kind::kAllReduce},
    {"all_gather", "MPI_Allgather", Kind::kAllGather},
    {"reduce_scatter", "MPI_Reduce_scatter_block", Kind::kReduceScatter},
    {"broadcast", "MPI_Bcast", Kind::kBroadcast},
    {"alltoall", "MPI_Alltoall", Kind::kAllToAll},
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// "Open MPI v4.1.4", "MPICH Version: 4.0.2": the beginning of a long text.
std::string Library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string library = text;
  library = library.substr(0, library.find_first_of(",\n"));
  for (char& c : library) c = c == '\t' || c == '"' || c == '\\' ? ' ' : c;
  return library;
}

class Runner {
 public:
  Runner(const Name& name, const Options& options, Place place)
      : name_(name),
        options_(options),
        place_(place),
        root_(std::max(options.root, 0)),
        data_(ncclFloat, TraitsOf(name.kind).reduces ? std::optional(Reduction::kSum) : std::nullopt, place),
        report_(name.function, Library(), place.ranks, options, place.rank != 0) {
    const Shape most = ShapeOf(name.kind, Sizes(options).back(), kElementBytes, place);
    send_ = Allocate(SendCapacity(most));
    recv_ = Allocate(RecvCapacity(most));
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner() {
    free(send_ - kGuardBytes);
    free(recv_ - kGuardBytes);
  }

  int Run() {
    const std::vector<size_t> sizes = Sizes(options_);
    Call(sizes.front(), false);
    for (const size_t bytes : {sizes.back(), sizes.front()}) {
      for (int i = 0; i < options_.warmup_iterations; ++i) Call(bytes, false);
    }
    report_.Begin();
    std::string error;
    for (int64_t cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) {
      for (const size_t bytes : sizes) report_.Add(Measure(bytes));
      if (report_.EndCycle(&error)) continue;
      fprintf(stderr, "mpi_perf: %s\n", error.c_str());
      return 1;
    }
    report_.End();
    return report_.wrong() == 0 ? 0 : 1;
  }

 private:
  static char* Allocate(size_t elements) {
    const size_t bytes = elements * kElementBytes + 2 * kGuardBytes;
    char* const memory = static_cast<char*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
    if (memory == nullptr) {
      fprintf(stderr, "mpi_perf: no memory for buffers of %zu bytes: give a smaller -e\n", bytes);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    memset(memory, 0, bytes);
    return memory + kGuardBytes;
  }

  Shape ShapeFor(size_t bytes) const { return ShapeOf(name_.kind, bytes, kElementBytes, place_); }

  void Call(size_t bytes, bool in_place) {
    const Shape shape = ShapeFor(bytes);
    const auto count = static_cast<int>(shape.count);
    const void* const send = in_place ? MPI_IN_PLACE : send_;
    MPI_Comm const all = MPI_COMM_WORLD;
    switch (name_.kind) {
      case Kind::kAllReduce:
        MPI_Allreduce(send, recv_, count, MPI_FLOAT, MPI_SUM, all);
        break;
      case Kind::kAllGather:
        MPI_Allgather(send, count, MPI_FLOAT, recv_, count, MPI_FLOAT, all);
        break;
      case Kind::kReduceScatter:
        MPI_Reduce_scatter_block(send, recv_, count, MPI_FLOAT, MPI_SUM, all);
        break;
      case Kind::kBroadcast:
        MPI_Bcast(recv_, count, MPI_FLOAT, root_, all);
        break;
      default:
        MPI_Alltoall(send, count, MPI_FLOAT, recv_, count, MPI_FLOAT, all);
    }
  }

  std::vector<double> Share(double value) const {
    std::vector<double> by_rank(static_cast<size_t>(place_.ranks));
    MPI_Allgather(&value, 1, MPI_DOUBLE, by_rank.data(), 1, MPI_DOUBLE, MPI_COMM_WORLD);
    return by_rank;
  }

  Row Measure(size_t bytes) {
    const Shape shape = ShapeFor(bytes);
    Row row;
    row.bytes = shape.bytes;
    row.count = shape.count;
    if (TraitsOf(name_.kind).reduces) row.reduction = Reduction::kSum;
    if (TraitsOf(name_.kind).rooted) row.root = root_;
    row.out_of_place = MeasureOneWay(bytes, false);
    row.in_place = MeasureOneWay(bytes, true);
    return row;
  }

  Measurement MeasureOneWay(size_t bytes, bool in_place) {
    Measurement result;
    result.measured = !in_place || TraitsOf(name_.kind).in_place;
    if (!result.measured) return result;
    // MPI takes a reduce-scatter's blocks from where it then puts the result, so that a rank's block lies
    // elsewhere than NCCL has it: not compared.
    const bool checked = options_.check_iterations > 0 && !(in_place && name_.kind == Kind::kReduceScatter);
    Prepare(CheckedOf(bytes, in_place));
    Call(bytes, in_place);
    MPI_Barrier(MPI_COMM_WORLD);
    const double seconds = Combine(Share(TimeOne(bytes, in_place)), options_.average);
    result.SetTime(seconds, ShapeFor(bytes).bytes, BusFactor(name_.kind, place_.ranks));
    if (checked) result.wrong = CheckResults(bytes, in_place);
    return result;
  }

  double TimeOne(size_t bytes, bool in_place) {
    if (options_.pause_ms == 0) {
      const Clock::time_point start = Clock::now();
      for (int i = 0; i < options_.iterations; ++i) Call(bytes, in_place);
      return SecondsSince(start) / options_.iterations;
    }
    double seconds = 0;
    for (int i = 0; i < options_.iterations; ++i) {
      const Clock::time_point start = Clock::now();
      Call(bytes, in_place);
      seconds += SecondsSince(start);
      std::this_thread::sleep_for(std::chrono::milliseconds(options_.pause_ms));
    }
    return seconds / options_.iterations;
  }

  CheckedCall CheckedOf(size_t bytes, bool in_place) const {
    CheckedCall call;
    call.data = &data_;
    call.kind = name_.kind;
    call.shape = ShapeFor(bytes);
    call.place = place_;
    call.root = root_;
    call.in_place = in_place || name_.kind == Kind::kBroadcast;
    call.round = round_;
    call.send = send_;
    call.recv = recv_;
    return call;
  }

  int64_t CheckResults(size_t bytes, bool in_place) {
    int64_t wrong = 0;
    for (int i = 0; i < options_.check_iterations; ++i) {
      ++round_;
      const CheckedCall call = CheckedOf(bytes, in_place);
      Prepare(call);
      Call(bytes, in_place);
      std::string first;
      const int64_t now = CountWrong(call, &first);
      if (now > 0) fprintf(stderr, "rank %d: %s: %s\n", place_.rank, name_.function, first.c_str());
      wrong += now;
    }
    int64_t everywhere = 0;
    MPI_Allreduce(&wrong, &everywhere, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    return everywhere;
  }

  const Name name_;
  const Options options_;
  const Place place_;
  const int root_;
  const Data data_;
  Report report_;
  char* send_ = nullptr;
  char* recv_ = nullptr;
  uint32_t round_ = 0;
};

std::string WhatIsWrong(const Options& options) {
  if (options.types != std::vector<ncclDataType_t>{ncclFloat}) return "-d: float only";
  if (options.reductions != std::vector<Reduction>{Reduction::kSum}) return "-o: sum only";
  if (options.threads * options.ranks_per_thread != 1) return "-t and -g: one rank a process only";
  if (options.aggregate != 1) return "-m: MPI has no groups";
  if (options.root < 0) return "-r: one root at a time";
  if (options.max_bytes / kElementBytes > INT32_MAX) return "-e: MPI counts to 2^31 - 1";
  return {};
}

int Usage(const std::string& error) {
  fprintf(
      stderr,
      "mpi_perf: %s\nusage: mpirun -n N mpi_perf COLLECTIVE [options of all_reduce_perf], COLLECTIVE one of",
      error.c_str());
  for (const Name& name : kNames) fprintf(stderr, " %s", name.name);
  fprintf(stderr, "\n");
  return 2;
}

int Main(int argc, char** argv) {
  if (argc < 2) return Usage("which collective?");
  const Name* const name = std::find_if(std::begin(kNames), std::end(kNames), [&](const Name& known) {
    return std::string(argv[1]) == known.name;
  });
  if (name == std::end(kNames)) return Usage("'" + std::string(argv[1]) + "' is no collective");
  Options options;
  std::string error;
  if (!ParseOptions(std::vector<std::string>(argv + 2, argv + argc), &options, &error)) return Usage(error);
  if (options.help) {
    printf("%s", HelpText("mpi_perf COLLECTIVE").c_str());
    return 0;
  }
  if (options.version) {
    printf("%s", VersionText("mpi_perf").c_str());
    return 0;
  }
  Place place;
  MPI_Comm_rank(MPI_COMM_WORLD, &place.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &place.ranks);
  error = WhatIsWrong(options);
  if (error.empty()) error = WhatIsWrongWithRanks(options, place.ranks);
  if (!error.empty()) return Usage(error);
  return Runner(*name, options, place).Run();
}

}  // namespace
}  // namespace c4::perf

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);  // a failure of MPI ends the job, with its own message
  const int status = c4::perf::Main(argc, argv);
  MPI_Finalize();
  return status;
}
