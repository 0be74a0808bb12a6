// fleet_tomography [--networks N] [--first SEED] [--nics N] [--minutes M] [--jobs]: whether fleet tomography
// (analysis/fleet_tomography.h) names grey links on simulated clusters of 65,536 NICs: one to three links,
// each in one direction, messages over which take 10 to 50 % longer. Precision: of the links named, those
// that are grey. Recall: of the grey ones, those that are named. A link that cannot be told from another is
// not named.
//
// --jobs: also whether a single job's samples would have named a link. A line for every 100 networks, so that
// a run that is cut short has said something. Exit status 1 when a target is missed.
#include "analysis/fleet_tomography.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <vector>

#include "benchmarks/statistics.h"
#include "tests/support/fleet_sim.h"

namespace {

using c4::analysis::FleetFindings;
using c4::analysis::FleetSample;
using c4::analysis::GreyLink;

constexpr double kLeastPrecision = 0.99;
constexpr double kLeastRecall = 0.95;
constexpr int kSayEvery = 100;

struct Options {
  int networks = 1000;
  int first = 1;
  int nics = 65536;
  double minutes = 5;
  bool jobs = false;
};

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// By severity: 10 to 20 %, 20 to 30 % ...
struct Tally {
  int named = 0;
  int right = 0;
  int ambiguous = 0;
  std::array<int, 4> grey{};
  std::array<int, 4> found{};
  std::vector<double> solve_s;
  std::vector<double> errors;  // of how much worse
  double deviation = 0;
  int networks = 0;
  int by_one_job = 0;

  int AllGrey() const { return grey[0] + grey[1] + grey[2] + grey[3]; }
  int AllFound() const { return found[0] + found[1] + found[2] + found[3]; }
  double precision() const { return named == 0 ? 1 : static_cast<double>(right) / named; }
  double recall() const { return AllGrey() == 0 ? 1 : static_cast<double>(AllFound()) / AllGrey(); }
};

size_t Band(double worse) {
  return static_cast<size_t>(std::clamp(static_cast<int>((worse - 0.1) * 10), 0, 3));
}

// Grey links that the samples of one job name.
int ByOneJob(const c4::test::Fleet& fleet, uint32_t nics) {
  int found = 0;
  for (const auto& grey : fleet.grey) {
    std::map<uint32_t, std::vector<FleetSample>> own;
    for (const FleetSample& sample : fleet.samples) {
      if (sample.link_count == 2 && (sample.links[0] == grey.link || sample.links[1] == grey.link)) {
        own[fleet.job_of_nic[sample.source]];
      }
    }
    for (const FleetSample& sample : fleet.samples) {
      const auto at = own.find(fleet.job_of_nic[sample.source]);
      if (at != own.end()) at->second.push_back(sample);
    }
    for (const auto& [job, samples] : own) {
      const FleetFindings findings = c4::analysis::FindGreyLinks(samples, nics, fleet.links);
      const bool named = std::any_of(findings.links.begin(), findings.links.end(), [&](const GreyLink& one) {
        return one.link == grey.link && one.instead.empty();
      });
      if (!named) continue;
      ++found;
      break;
    }
  }
  return found;
}

void Judge(const Options& options, int seed, Tally* tally) {
  c4::test::FleetSpec spec;
  spec.nics = static_cast<uint32_t>(options.nics);
  spec.minutes = options.minutes;
  spec.grey_links = 1 + static_cast<uint32_t>(seed % 3);
  spec.seed = static_cast<uint64_t>(seed);
  const c4::test::Fleet fleet = c4::test::SimulateFleet(spec);
  const double begin = CpuSeconds();
  const FleetFindings findings = c4::analysis::FindGreyLinks(fleet.samples, spec.nics, fleet.links);
  tally->solve_s.push_back(CpuSeconds() - begin);
  tally->deviation += findings.deviation;
  ++tally->networks;
  for (const auto& grey : fleet.grey) ++tally->grey[Band(grey.worse)];
  for (const GreyLink& found : findings.links) {
    if (!found.instead.empty()) {
      ++tally->ambiguous;
      continue;
    }
    ++tally->named;
    for (const auto& grey : fleet.grey) {
      if (grey.link != found.link) continue;
      ++tally->right;
      ++tally->found[Band(grey.worse)];
      tally->errors.push_back(std::abs(found.worse - grey.worse));
    }
  }
  if (options.jobs) tally->by_one_job += ByOneJob(fleet, spec.nics);
}

void Say(const Options& options, const Tally& tally) {
  printf("%d networks of %d NICs, %.1f min: precision %.4f (%d of %d named), recall %.4f (%d of %d)",
         tally.networks, options.nics, options.minutes, tally.precision(), tally.right, tally.named,
         tally.recall(), tally.AllFound(), tally.AllGrey());
  printf("; by severity");
  for (size_t band = 0; band < tally.grey.size(); ++band) {
    printf(" %zu0-%zu0 %%: %d/%d", band + 1, band + 2, tally.found[band], tally.grey[band]);
  }
  printf(
      "; ambiguous %d; a sample's deviation %.3f; severity off by %.3f in the median; solved in %.2f s "
      "(median)\n",
      tally.ambiguous, tally.deviation / tally.networks, tally.errors.empty() ? 0 : c4::Median(tally.errors),
      c4::Median(tally.solve_s));
  if (options.jobs) printf("  a single job names %d of %d\n", tally.by_one_job, tally.AllGrey());
  fflush(stdout);
}

bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const auto number = [&](const char* name, int* value) {
      if (strcmp(argv[i], name) != 0 || i + 1 >= argc) return false;
      *value = atoi(argv[++i]);
      return *value > 0;
    };
    if (strcmp(argv[i], "--jobs") == 0) {
      options->jobs = true;
    } else if (strcmp(argv[i], "--minutes") == 0 && i + 1 < argc) {
      options->minutes = atof(argv[++i]);
    } else if (!number("--networks", &options->networks) && !number("--first", &options->first) &&
               !number("--nics", &options->nics)) {
      return false;
    }
  }
  return options->nics >= 128 && options->nics % 64 == 0 && options->minutes > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    fprintf(
        stderr,
        "usage: fleet_tomography [--networks N] [--first SEED] [--nics N, of 64] [--minutes M] [--jobs]\n");
    return 2;
  }
  Tally tally;
  for (int i = 0; i < options.networks; ++i) {
    Judge(options, options.first + i, &tally);
    if (tally.networks % kSayEvery == 0 && tally.networks < options.networks) Say(options, tally);
  }
  Say(options, tally);
  return tally.precision() >= kLeastPrecision && tally.recall() >= kLeastRecall ? 0 : 1;
}
