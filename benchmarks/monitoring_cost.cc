// What monitoring costs a training job (docs/benchmarks.md), in two ways that have to agree:
//   counted   events that the library recorded, read off the segments, times the measured cost of an event,
//             against the time of an iteration (target: at most 0.1 %)
//   paired    the same job with everything on (records, agent, master) and off, in turn and in random order,
//             the median of the ratios with a bootstrap interval (target: its lower bound under +0.5 %)
// The job is the reference trainer on this machine. On a machine with less cores than ranks the paired figure
// also carries what the agent and the master take from the ranks.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

#include "benchmarks/paired_options.h"
#include "benchmarks/statistics.h"
#include "c4a/segment_reader.h"
#include "ccl/monitor/monitor.h"

namespace {

constexpr char kUsage[] =
    "monitoring_cost [--ranks N] [--pairs N] [--iterations N] [--seed N] [--json FILE]\n"
    "what monitoring costs the reference trainer; exit code 1 when a target is missed\n";

std::string OwnFolder() {
  char path[4096] = "";
  const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path - 1);
  const std::string self(path, bytes > 0 ? static_cast<size_t>(bytes) : 0);
  return self.substr(0, self.rfind('/'));
}

// Milliseconds an iteration, as rank 0 of the trainer prints them at the end; 0 when the job failed.
double RunJob(const c4::PairedOptions& options, bool monitored, const std::string& run_dir) {
  const std::string folder = OwnFolder();
  const std::string command = (monitored ? std::string() : "C4_MONITOR=0 ") + folder + "/c4 run -n " +
                              std::to_string(options.ranks) + (monitored ? "" : " --no-monitor") +
                              " --run-dir " + run_dir + " -- " + folder + "/hybrid_trainer --iterations " +
                              std::to_string(options.iterations + 1) + " --report-every " +
                              std::to_string(options.iterations) + " 2>&1";
  FILE* output = popen(command.c_str(), "r");  // NOLINT(cert-env33-c): our own words
  if (output == nullptr) return 0;
  double last_ms = 0;
  std::string text;
  char line[512];
  while (fgets(line, sizeof line, output) != nullptr) {
    text += line;
    int iteration = 0;
    double loss = 0;
    double ms = 0;
    if (sscanf(line, "iteration %d: loss %lf, %lf ms", &iteration, &loss, &ms) == 3 && iteration > 0)
      last_ms = ms;
  }
  const int status = pclose(output);
  if (status != 0) {
    fprintf(stderr, "monitoring_cost: the job failed (%d):\n%s", status, text.c_str());
    return 0;
  }
  return last_ms;
}

// Recorder calls of one process, from its segment. Of the bytes that moved only the sum is kept: one call a
// chunk at each end is assumed, and one more for what came in a second piece.
uint64_t EventsOf(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  c4::agent::FileSource source(fd);
  c4::agent::SegmentSnapshot snapshot;
  uint64_t events = 0;
  if (c4::agent::ReadSegment(&source, {}, &snapshot).ok()) {
    for (const auto& [index, slot] : snapshot.communicators) {
      events += slot.called.count + slot.enqueued.count + slot.started.count + 2 * slot.finished.count;
      events += slot.p2p_called.count + slot.p2p_enqueued.count + slot.p2p_started.count +
                2 * slot.p2p_finished.count;
    }
    for (const auto& [index, slot] : snapshot.queue_pairs) {
      events += slot.posted_messages + 4 * slot.completed_messages;  // 2 moved, completed, latency
      events += slot.wanted_messages + slot.granted_messages + 2 * slot.done_messages;  // and a wait
    }
  }
  close(fd);
  return events;
}

// Events an iteration and rank, of a job whose segments stay behind because no agent takes them away.
double CountEvents(const c4::PairedOptions& options, const std::string& run_dir) {
  const std::string folder = OwnFolder();
  const std::string command =
      "C4_CONTROL=0 " + folder + "/c4 run -n " + std::to_string(options.ranks) + " --no-monitor --run-dir " +
      run_dir + "/launcher -- env C4_MONITOR=1 C4_RUN_DIR=" + run_dir + "/segments " + folder +
      "/hybrid_trainer --iterations " + std::to_string(options.iterations) + " > /dev/null";
  if (system(command.c_str()) != 0) return 0;  // NOLINT(cert-env33-c, concurrency-mt-unsafe): our own words
  const std::string segments = run_dir + "/segments";
  uint64_t events = 0;
  DIR* directory = opendir(segments.c_str());
  if (directory == nullptr) return 0;
  while (const dirent* entry = readdir(directory)) {  // NOLINT(concurrency-mt-unsafe): one thread
    if (strstr(entry->d_name, c4::wire::kSegmentSuffix) != nullptr)
      events += EventsOf(segments + "/" + entry->d_name);
  }
  closedir(directory);
  return static_cast<double>(events) / options.ranks / options.iterations;
}

double EventNs() {
  c4::Monitor monitor("", {4, 4, 1, 1024}, c4::JobIdentity());
  c4::CommunicatorRecorder communicator = monitor.OpenCommunicator({1, 0, 0, 2, c4::wire::kEngineHost, ""});
  constexpr int kCalls = 2000000;
  std::vector<double> rounds;
  for (int round = 0; round < 5; ++round) {
    const uint64_t begin_ns = c4::MonotonicNs();
    for (int i = 0; i < kCalls; ++i) communicator.Called({}, 0, c4::NowTicks());
    rounds.push_back(static_cast<double>(c4::MonotonicNs() - begin_ns) / kCalls);
  }
  return c4::Median(rounds);
}

int Run(const c4::PairedOptions& options) {
  char scratch[] = "/dev/shm/c4-cost-XXXXXX";
  if (mkdtemp(scratch) == nullptr) return 1;
  const std::string run_dir = scratch;
  std::mt19937 random(options.seed);
  std::vector<double> ratios;
  std::vector<double> on_ms;
  std::vector<double> off_ms;
  for (int pair = 0; pair < options.rounds; ++pair) {
    const bool on_first = random() % 2 == 0;
    const double first = RunJob(options, on_first, run_dir);
    const double second = RunJob(options, !on_first, run_dir);
    if (first <= 0 || second <= 0) return 1;
    on_ms.push_back(on_first ? first : second);
    off_ms.push_back(on_first ? second : first);
    ratios.push_back(on_ms.back() / off_ms.back());
    printf("pair %2d: on %.2f ms, off %.2f ms, ratio %.4f\n", pair + 1, on_ms.back(), off_ms.back(),
           ratios.back());
    fflush(stdout);
  }
  const c4::Interval interval = c4::BootstrapMedian(ratios, &random);
  const double low = 100 * (interval.low - 1);
  const double high = 100 * (interval.high - 1);
  const double median = 100 * (c4::Median(ratios) - 1);
  const double events = CountEvents(options, run_dir);
  const double event_ns = EventNs();
  const double counted = 100 * events * event_ns / (c4::Median(off_ms) * 1e6);
  const std::string sweep = "rm -rf " + run_dir;
  (void)!system(sweep.c_str());  // NOLINT(cert-env33-c, concurrency-mt-unsafe): our own directory
  printf("counted: %.0f events an iteration and rank x %.1f ns = %.4f %% of %.2f ms (target: 0.1 %%)\n",
         events, event_ns, counted, c4::Median(off_ms));
  printf("paired:  %+.2f %%, 95 %% interval %+.2f %% to %+.2f %% (target: lower bound under +0.5 %%)\n",
         median, low, high);
  if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << "{\"events_per_iteration_rank\": " << events << ", \"event_ns\": " << event_ns
         << ", \"counted_percent\": " << counted << ", \"paired_percent\": " << median
         << ", \"paired_low_percent\": " << low << ", \"paired_high_percent\": " << high
         << ", \"pairs\": " << options.rounds << ", \"ranks\": " << options.ranks << "}\n";
  }
  return events > 0 && counted <= 0.1 && low < 0.5 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  c4::PairedOptions options{.rounds = 15, .iterations = 100, .json = {}};
  if (!c4::ParsePairedOptions(argc, argv, "--pairs", kUsage, &options)) return 2;
  return Run(options);
}
