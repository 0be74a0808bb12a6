// What a training job feels when every daemon beside it is killed (docs/benchmarks.md): the reference trainer
// runs under `c4 run` on this machine; in each round the time of its iterations is taken, agent and master
// are killed with signal 9, and the time is taken again, from the very next iteration. The launcher starts
// both anew. Prints the ratios' median with a bootstrap interval; exit code 1 when the interval lies above
// +0.5 %, or when no daemon was there to be killed.
//
// On a machine with less cores than ranks the start of the new daemons takes its share from the ranks, too.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "benchmarks/paired_options.h"
#include "benchmarks/statistics.h"
#include "cli/base/process.h"

namespace c4 {
namespace {

constexpr char kUsage[] =
    "fail_open [--ranks N] [--rounds N] [--iterations N] [--seed N] [--json FILE]\n"
    "iteration time of the reference trainer before and after kill -9 of every daemon; exit code 1 when "
    "it changed\n";

constexpr int kPatienceReports = 100;

class Job {
 public:
  // Exits the program when the job cannot be started.
  Job(const PairedOptions& options, const std::string& folder, const std::string& run_dir) {
    int ends[2];
    if (pipe(ends) != 0) std::exit(1);  // NOLINT(concurrency-mt-unsafe): the only thread
    cli::SpawnRequest request;
    request.program = folder + "/c4";
    request.arguments = {"run",
                         "-n",
                         std::to_string(options.ranks),
                         "--run-dir",
                         run_dir,
                         "--",
                         folder + "/hybrid_trainer",
                         "--iterations",
                         "1000000",
                         "--report-every",
                         std::to_string(options.iterations)};
    request.environment = cli::OwnEnvironment();
    request.death_signal = SIGTERM;
    request.stdout_fd = ends[1];
    const absl::StatusOr<pid_t> pid = cli::Spawn(request);
    close(ends[1]);
    if (!pid.ok()) {
      fprintf(stderr, "fail_open: %s\n", std::string(pid.status().message()).c_str());
      std::exit(1);  // NOLINT(concurrency-mt-unsafe): the only thread
    }
    pid_ = *pid;
    output_ = fdopen(ends[0], "r");
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    kill(pid_, SIGTERM);
    char line[512];
    while (fgets(line, sizeof line, output_) != nullptr) continue;
    waitpid(pid_, nullptr, 0);
    fclose(output_);
  }

  // Milliseconds an iteration, from the trainer's next report; 0 when the job has ended.
  double NextReport() {
    char line[512];
    while (fgets(line, sizeof line, output_) != nullptr) {
      int iteration = 0;
      double loss = 0;
      double ms = 0;
      if (sscanf(line, "iteration %d: loss %lf, %lf ms", &iteration, &loss, &ms) == 3) return ms;
    }
    return 0;
  }

  // The agent and the master, as far as they are there.
  std::vector<pid_t> Daemons() const {
    std::vector<pid_t> daemons;
    for (const pid_t pid : cli::ChildrenOf(pid_)) {
      std::error_code ignored;
      const std::string program =
          std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", ignored).filename();
      if (program == "c4a" || program == "c4d_master") daemons.push_back(pid);
    }
    return daemons;
  }
  int KillDaemons() const {
    int killed = 0;
    for (const pid_t pid : Daemons()) killed += kill(pid, SIGKILL) == 0 ? 1 : 0;
    return killed;
  }

 private:
  pid_t pid_ = 0;
  FILE* output_ = nullptr;
};

int Run(const PairedOptions& options) {
  const absl::StatusOr<std::string> folder = cli::OwnFolder();
  char scratch[] = "/dev/shm/c4-open-XXXXXX";
  if (!folder.ok() || mkdtemp(scratch) == nullptr) return 1;
  std::vector<double> ratios;
  int killed = 0;
  bool failed = false;
  {
    Job job(options, *folder, scratch);
    job.NextReport();  // of the first iteration
    job.NextReport();  // warm
    for (int round = 0; round < options.rounds && !failed; ++round) {
      // The launcher takes its time with what keeps ending.
      for (int i = 0; i < kPatienceReports && job.Daemons().size() < 2; ++i) job.NextReport();
      job.NextReport();
      const double before = job.NextReport();
      const int daemons = job.KillDaemons();
      const double after = job.NextReport();
      failed = before <= 0 || after <= 0;
      if (failed) break;
      killed += daemons;
      ratios.push_back(after / before);
      printf("round %2d: %.2f ms an iteration, %d daemons killed, %.2f ms, ratio %.4f\n", round + 1, before,
             daemons, after, ratios.back());
      fflush(stdout);
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(scratch, ignored);
  if (failed || ratios.empty()) {
    fprintf(stderr, "fail_open: the job ended\n");
    return 1;
  }
  std::mt19937 random(options.seed);
  const Interval interval = BootstrapMedian(ratios, &random);
  const double median = 100 * (Median(ratios) - 1);
  const double low = 100 * (interval.low - 1);
  const double high = 100 * (interval.high - 1);
  printf("%d daemons killed in %zu rounds: iterations %+.2f %%, 95 %% interval %+.2f %% to %+.2f %%\n",
         killed, ratios.size(), median, low, high);
  if (!options.json.empty()) {
    std::ofstream(options.json) << "{\"rounds\": " << ratios.size() << ", \"killed\": " << killed
                                << ", \"median_percent\": " << median << ", \"low_percent\": " << low
                                << ", \"high_percent\": " << high << "}\n";
  }
  return killed >= options.rounds && low <= 0.5 ? 0 : 1;
}

int Main(int argc, char** argv) {
  PairedOptions options{.rounds = 20, .iterations = 50, .json = {}};
  if (!ParsePairedOptions(argc, argv, "--rounds", kUsage, &options)) return 2;
  return Run(options);
}

}  // namespace
}  // namespace c4

int main(int argc, char** argv) {
  return c4::Main(argc, argv);
}
