#include "benchmarks/perf_common.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "benchmarks/perf_data.h"
#include "benchmarks/perf_report.h"
#include "ccl/include/c4/stream.h"

namespace c4::perf {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One rank's run, from joining to leaving.
class Runner {
 public:
  Runner(const char* program, const Collective& collective, const Options& options, Place place)
      : program_(program),
        collective_(collective),
        options_(options),
        place_(place),
        element_bytes_(ElementBytes(options.type)),
        checked_(options.check_iterations > 0),
        report_(program, place.ranks, options, place.rank != 0) {}

  int Run() {
    Join();
    std::string error;
    if (!report_.WriteJson(&error)) Die(error);  // now, and not after hours
    Allocate();
    WarmUp();
    report_.Begin();
    const std::vector<size_t> sizes = Sizes(options_);
    for (int64_t cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) {
      for (const size_t bytes : sizes) report_.Add(Measure(bytes));
      if (!report_.EndCycle(&error)) Die(error);
    }
    report_.End();
    Leave();
    return report_.wrong() == 0 ? 0 : 1;
  }

 private:
  void Join() {
    ncclUniqueId id;
    Check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    Check(ncclCommInitRank(&comm_, place_.ranks, id, place_.rank), "ncclCommInitRank");
    Check(c4StreamCreate(&stream_), "c4StreamCreate");
  }

  void Allocate() {
    size_t most = 1;
    for (const size_t bytes : Sizes(options_)) {
      const Shape shape = collective_.ShapeOf(bytes, element_bytes_, place_);
      for (const size_t elements : {shape.send_elements, shape.recv_elements})
        most = std::max(most, elements);
    }
    void* memory = nullptr;
    Check(ncclMemAlloc(&memory, most * element_bytes_), "ncclMemAlloc");
    send_ = static_cast<char*>(memory);
    Check(ncclMemAlloc(&memory, most * element_bytes_), "ncclMemAlloc");
    recv_ = static_cast<char*>(memory);
    Check(ncclMemAlloc(&memory, sizeof(float)), "ncclMemAlloc");
    word_ = static_cast<float*>(memory);
    memset(send_, 0, most * element_bytes_);
    memset(recv_, 0, most * element_bytes_);
  }

  void WarmUp() {
    const std::vector<size_t> sizes = Sizes(options_);
    RunOnce(MakeCall(sizes.front(), false));
    // Asked after the library, whose own sentence about a type or reduction that it cannot do says more.
    if (checked_ && (options_.type != ncclFloat || options_.reduction != ncclSum)) {
      Die(std::string("results are checked for float and sum only; use -c 0 with ") +
          TypeName(options_.type) + " " + ReductionName(options_.reduction));
    }
    for (const size_t bytes : {sizes.back(), sizes.front()}) {
      for (int i = 0; i < options_.warmup_iterations; ++i) RunOnce(MakeCall(bytes, false));
    }
  }

  void Leave() {
    Check(ncclCommFinalize(comm_), "ncclCommFinalize");
    Check(ncclCommDestroy(std::exchange(comm_, nullptr)), "ncclCommDestroy");
    Check(c4StreamDestroy(stream_), "c4StreamDestroy");
    for (void* memory : {static_cast<void*>(send_), static_cast<void*>(recv_), static_cast<void*>(word_)}) {
      Check(ncclMemFree(memory), "ncclMemFree");
    }
  }

  Call MakeCall(size_t bytes, bool in_place) const {
    const Shape shape = collective_.ShapeOf(bytes, element_bytes_, place_);
    Call call;
    call.send = in_place ? recv_ + shape.in_place_send_offset * element_bytes_ : send_;
    call.recv = recv_ + (in_place ? shape.in_place_recv_offset * element_bytes_ : 0);
    call.count = shape.count;
    call.type = options_.type;
    call.reduction = options_.reduction;
    call.comm = comm_;
    call.stream = stream_;
    return call;
  }

  void Enqueue(const Call& call) { Check(collective_.Run(call), collective_.function()); }

  void Wait() {
    const ncclResult_t code = c4StreamSynchronize(stream_);
    ncclResult_t error = ncclSuccess;
    Check(ncclCommGetAsyncError(comm_, &error), "ncclCommGetAsyncError");
    Check(error, collective_.function());
    Check(code, "c4StreamSynchronize");
  }

  void RunOnce(const Call& call) {
    Enqueue(call);
    Wait();
  }

  // Sum of one number over all ranks; a barrier at the same time.
  double SumOverRanks(double value) {
    *word_ = static_cast<float>(value);
    Check(ncclAllReduce(word_, word_, 1, ncclFloat, ncclSum, comm_, stream_), "ncclAllReduce");
    Wait();
    return static_cast<double>(*word_);
  }

  Row Measure(size_t bytes) {
    const Shape shape = collective_.ShapeOf(bytes, element_bytes_, place_);
    Row row;
    row.bytes = shape.bytes;
    row.count = shape.count;
    row.out_of_place = MeasureOneWay(bytes, false);
    row.in_place = MeasureOneWay(bytes, true);
    return row;
  }

  Measurement MeasureOneWay(size_t bytes, bool in_place) {
    const Shape shape = collective_.ShapeOf(bytes, element_bytes_, place_);
    const Call call = MakeCall(bytes, in_place);
    Fill(shape, in_place);  // repeated in place, sums grow; to infinity in the end, which takes no longer
    RunOnce(call);
    SumOverRanks(0);
    const double seconds = SumOverRanks(TimeOne(call)) / place_.ranks;
    Measurement result;
    result.time_us = seconds * 1e6;
    result.algorithm_gb_per_s = seconds > 0 ? static_cast<double>(shape.bytes) / seconds / 1e9 : 0;
    result.bus_gb_per_s = result.algorithm_gb_per_s * collective_.BusFactor(place_.ranks);
    if (checked_) result.wrong = CheckResults(call, shape, in_place);
    return result;
  }

  // Mean time of one operation on this rank.
  double TimeOne(const Call& call) {
    if (options_.pause_ms == 0) {
      const Clock::time_point start = Clock::now();
      for (int i = 0; i < options_.iterations; ++i) Enqueue(call);
      Wait();
      return SecondsSince(start) / options_.iterations;
    }
    double seconds = 0;
    for (int i = 0; i < options_.iterations; ++i) {
      const Clock::time_point start = Clock::now();
      RunOnce(call);
      seconds += SecondsSince(start);
      std::this_thread::sleep_for(std::chrono::milliseconds(options_.pause_ms));
    }
    return seconds / options_.iterations;
  }

  // Buffers as before an operation: the receive buffer holds no result that could pass for this one.
  void Fill(const Shape& shape, bool in_place) {
    ++round_;
    if (options_.type != ncclFloat) return;
    auto* const recv = reinterpret_cast<float*>(recv_);
    auto* const send = in_place ? recv + shape.in_place_send_offset : reinterpret_cast<float*>(send_);
    if (!in_place || shape.send_elements < shape.recv_elements) {
      for (size_t i = 0; i < shape.recv_elements; ++i) recv[i] = std::numeric_limits<float>::quiet_NaN();
    }
    for (size_t i = 0; i < shape.send_elements; ++i) send[i] = Value(place_.rank, i, round_);
  }

  // Elements that came out wrong, over all ranks and checked operations.
  int64_t CheckResults(const Call& call, const Shape& shape, bool in_place) {
    int64_t wrong = 0;
    for (int i = 0; i < options_.check_iterations; ++i) {
      Fill(shape, in_place);
      RunOnce(call);
      wrong += CountWrong(static_cast<const float*>(call.recv), shape.recv_elements);
    }
    // Carried by the collective that may be at fault: nonsense is no reason to believe in zero.
    const double everywhere = SumOverRanks(static_cast<double>(wrong));
    if (!std::isfinite(everywhere) || everywhere < static_cast<double>(wrong))
      return std::max<int64_t>(wrong, 1);
    return std::llround(everywhere);
  }

  int64_t CountWrong(const float* recv, size_t elements) const {
    int64_t wrong = 0;
    for (size_t i = 0; i < elements; ++i) {
      const float expected = collective_.Expected(i, round_, place_);
      if (recv[i] == expected) continue;
      if (wrong++ == 0) {
        fprintf(stderr, "rank %d: %s gave %g instead of %g at element %zu\n", place_.rank,
                collective_.function(), static_cast<double>(recv[i]), static_cast<double>(expected), i);
      }
    }
    return wrong;
  }

  void Check(ncclResult_t code, const char* call) {
    if (code == ncclSuccess) return;
    // The sentence begins with the name of the call.
    const std::string sentence = ncclGetLastError(nullptr);
    Die((sentence.empty() ? call : sentence) + " [" + ncclGetErrorString(code) + "]");
  }

  [[noreturn]] void Die(const std::string& sentence) {
    fflush(stdout);
    fprintf(stderr, "%s: rank %d, pid %d: %s\n", program_, place_.rank, static_cast<int>(getpid()),
            sentence.c_str());
    ncclCommAbort(std::exchange(comm_, nullptr));
    exit(1);  // NOLINT(concurrency-mt-unsafe): the only thread of the program's own
  }

  const char* const program_;
  const Collective& collective_;
  const Options options_;
  const Place place_;
  const size_t element_bytes_;
  const bool checked_;
  Report report_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  char* send_ = nullptr;
  char* recv_ = nullptr;
  float* word_ = nullptr;
  uint32_t round_ = 0;
};

int Usage(const char* program, const std::string& error) {
  fprintf(stderr, "%s: %s (%s --help lists the options)\n", program, error.c_str(), program);
  return 1;
}

}  // namespace

int PerfMain(int argc, char** argv, const Collective& collective) {
  const std::string path = argc > 0 ? argv[0] : "perf";
  const std::string program = path.substr(path.rfind('/') + 1);
  Options options;
  std::string error;
  if (!ParseOptions(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc), &options, &error)) {
    return Usage(program.c_str(), error);
  }
  if (options.help) {
    printf("%s", HelpText(program.c_str()).c_str());
    return 0;
  }
  Place place;
  const auto environment = [](const char* name) -> const char* {
    return getenv(name);  // NOLINT(concurrency-mt-unsafe): before any other thread
  };
  if (!ReadPlace(environment, &place, &error)) return Usage(program.c_str(), error);
  if (options.check_iterations > 0 && place.ranks > kMaxExactRanks) {
    return Usage(program.c_str(), "results are checked for up to " + std::to_string(kMaxExactRanks) +
                                      " ranks; use -c 0 with more");
  }
  return Runner(program.c_str(), collective, options, place).Run();
}

}  // namespace c4::perf
