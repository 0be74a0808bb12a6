// A rank of the jobs of c4-figures: as many jobs as there are roots, each of two ranks, which do all-reduces
// for as long as they are told and check every byte of every result. Each job's first rank writes a line for
// each all-reduce: the time (CLOCK_MONOTONIC, ns) and the bytes done so far.
//
// Started by `c4 run`; knows the library by its public headers only.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "ccl/include/c4/stream.h"
#include "ccl/include/nccl.h"

namespace {

constexpr char kUsage[] = "figure_rank ROOT,ROOT,... BYTES SECONDS FOLDER   (by c4-figures, with RANK set)\n";
constexpr int kRanks = 2;  // of a job
constexpr size_t kPatterns = 3;

int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

void Check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "figure_rank: %s: %s: %s\n", what, ncclGetErrorString(result), ncclGetLastError(nullptr));
  exit(1);  // NOLINT(concurrency-mt-unsafe): the only thread
}

// What a rank gives in a round: small whole numbers, so that sums are exact.
float Given(int rank, uint64_t round, size_t i) {
  return static_cast<float>((i * 7 + round * 13 + static_cast<size_t>(rank) * 5) % 1021);
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const own_rank = getenv("RANK");  // NOLINT(concurrency-mt-unsafe)
  if (argc != 5 || own_rank == nullptr) {
    fputs(kUsage, stderr);
    return 2;
  }
  const std::vector<std::string> roots = Split(argv[1]);
  const size_t count = strtoull(argv[2], nullptr, 10) / sizeof(float);
  const double seconds = strtod(argv[3], nullptr);
  const int jobs = static_cast<int>(roots.size());
  const int job = atoi(own_rank) % jobs;
  const int rank = atoi(own_rank) / jobs;
  // NOLINTBEGIN(concurrency-mt-unsafe): before any other thread
  setenv("C4_JOB_ID", ("figure-job-" + std::to_string(job)).c_str(), 1);
  setenv("NCCL_COMM_ID", roots[static_cast<size_t>(job)].c_str(), 1);
  // NOLINTEND(concurrency-mt-unsafe)

  ncclUniqueId id;
  Check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  ncclComm_t communicator = nullptr;
  Check(ncclCommInitRank(&communicator, kRanks, id, rank), "ncclCommInitRank");
  cudaStream_t stream = nullptr;
  Check(c4StreamCreate(&stream), "c4StreamCreate");
  FILE* log = nullptr;
  if (rank == 0) {
    log = fopen((std::string(argv[4]) + "/job-" + std::to_string(job) + ".txt").c_str(), "w");
    if (log == nullptr) return 1;
  }
  // Another pattern in each of several rounds in a row, made once: checking must not take the processors.
  std::vector<std::vector<float>> patterns(kPatterns, std::vector<float>(count));
  std::vector<std::vector<float>> sums(kPatterns, std::vector<float>(count));
  for (size_t pattern = 0; pattern < kPatterns; ++pattern) {
    for (size_t i = 0; i < count; ++i) {
      patterns[pattern][i] = Given(rank, pattern, i);
      sums[pattern][i] = Given(0, pattern, i) + Given(1, pattern, i);
    }
  }
  std::vector<float> sum(count);
  const int64_t end_ns = NowNs() + static_cast<int64_t>(seconds * 1e9);
  // The ranks stop in the same round: the sum of their wishes says so.
  float goes_on = 1;
  for (uint64_t round = 0; goes_on > 0; ++round) {
    std::vector<float>& given = patterns[round % kPatterns];
    given[0] = NowNs() < end_ns ? 1.0f : -1000.0f;
    memset(sum.data(), 0xff, count * sizeof(float));
    Check(ncclAllReduce(given.data(), sum.data(), count, ncclFloat32, ncclSum, communicator, stream),
          "ncclAllReduce");
    Check(c4StreamSynchronize(stream), "all-reduce");
    goes_on = sum[0];
    if (log != nullptr) {
      fprintf(log, "%" PRId64 " %zu\n", NowNs(), (round + 1) * count * sizeof(float));
      fflush(log);
    }
    if (memcmp(sum.data() + 1, sums[round % kPatterns].data() + 1, (count - 1) * sizeof(float)) != 0) {
      fprintf(stderr, "figure_rank: job %d: the sum of round %" PRIu64 " is wrong\n", job, round);
      return 3;
    }
  }
  if (log != nullptr) fclose(log);
  Check(c4StreamDestroy(stream), "c4StreamDestroy");
  Check(ncclCommDestroy(communicator), "ncclCommDestroy");
  return 0;
}
