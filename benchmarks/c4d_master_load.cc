// c4d_master_load [--hosts N] [--ranks-per-host N] [--queue-pairs N] [--more-communicators N] [--seconds S]
// [--every-look] [--whole] [--real] [--json]: what the master of a large job costs. Synthetic agents look at
// a hybrid-parallel job four times a second each, and report it when the master wants to hear of it
// (TelemetryReply.report_interval_ns), or (--every-look) each time; as bytes, which say what has changed
// since the report before, or (--whole) all of it. The master's own code parses, takes them in, and judges
// ten times a second, on one thread.
//
// Without --real time is simulated and only the thread's CPU time is measured: a share above 100 % means that
// one core does not keep up. With --real each batch has its moment on the wall clock, and the delay from it
// until the batch is taken in is measured too. Transport (gRPC, TLS) is not part of it. Making the batches is
// not measured. Exit status 1 when one core does not keep up.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <future>
#include <google/protobuf/arena.h>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "benchmarks/load_agents.h"
#include "c4a/batch_changes.h"
#include "c4d_master/c4d_handler.h"
#include "service/bounded_parse.h"
#include "service/limits.h"

namespace {

using c4::benchmarks::LoadAgents;
using c4::c4d::kSecondNs;
namespace v1 = c4::v1;

constexpr int kLooksPerSecond = 4;
constexpr int kTicksPerSecond = 10;

struct Options : c4::benchmarks::LoadShape {
  int seconds = 5;
  bool every_look = false;
  bool whole = false;
  bool real = false;
  bool json = false;
};

int64_t ClockNs(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * kSecondNs + now.tv_nsec;
}

double ResidentMib() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// The CPU times of one kind of work.
class Stage {
 public:
  explicit Stage(const char* name) : name_(name) {}

  template <typename Work>
  void Run(const Work& work) {
    const int64_t begin_ns = ClockNs(CLOCK_THREAD_CPUTIME_ID);
    work();
    us_.push_back(static_cast<double>(ClockNs(CLOCK_THREAD_CPUTIME_ID) - begin_ns) / 1e3);
  }
  void Add(double us) { us_.push_back(us); }
  void Forget() { us_.clear(); }

  const char* name() const { return name_; }
  size_t count() const { return us_.size(); }
  double total_s() const {
    double sum = 0;
    for (const double us : us_) sum += us;
    return sum / 1e6;
  }
  double QuantileUs(double share) const {
    if (us_.empty()) return 0;
    std::vector<double> sorted = us_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[std::min(sorted.size() - 1,
                           static_cast<size_t>(share * static_cast<double>(sorted.size())))];
  }

 private:
  const char* name_;
  std::vector<double> us_;
};

bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const auto number = [&](const char* name, auto* value) {
      if (strcmp(argv[i], name) != 0 || i + 1 >= argc) return false;
      *value = static_cast<std::remove_pointer_t<decltype(value)>>(strtoul(argv[++i], nullptr, 10));
      return true;
    };
    if (strcmp(argv[i], "--every-look") == 0) {
      options->every_look = true;
    } else if (strcmp(argv[i], "--whole") == 0) {
      options->whole = true;
    } else if (strcmp(argv[i], "--real") == 0) {
      options->real = true;
    } else if (strcmp(argv[i], "--json") == 0) {
      options->json = true;
    } else if (!number("--hosts", &options->hosts) && !number("--ranks-per-host", &options->ranks_per_host) &&
               !number("--queue-pairs", &options->queue_pairs) &&
               !number("--more-communicators", &options->more_communicators) &&
               !number("--seconds", &options->seconds)) {
      return false;
    }
  }
  return options->hosts > 0 && options->ranks_per_host > 0 && options->queue_pairs > 0 &&
         options->seconds > 0;
}

struct Load {
  Stage weigh{"weigh"};
  Stage parse{"parse"};
  Stage ingest{"ingest"};
  Stage tick{"tick"};
  Stage delay{"delay"};  // --real: from a batch's moment until it was taken in
  Stage status{"status"};
  Stage matrix{"matrix"};
  size_t bytes = 0;
  double resident_mib = 0;
  size_t verdicts = 0;
  bool refused = false;
};

// One slot is 50 ms: a fifth of the hosts report in each, and every second one ends with a tick.
constexpr int kSlotsPerSecond = 2 * kTicksPerSecond;
constexpr int kGroups = kSlotsPerSecond / kLooksPerSecond;
constexpr int64_t kSlotNs = kSecondNs / kSlotsPerSecond;
constexpr int kWarmUpSlots = 2 * kSlotsPerSecond;  // as fast as they go, and not measured
constexpr int64_t kStartNs = 1000 * kSecondNs;
constexpr int64_t kUnixNs = 1'700'000'000 * kSecondNs;

// The slot in which each agent reported last, and how often it is asked to.
struct Turns {
  std::vector<int> told;
  int64_t interval_ns = 0;

  // Those of different hosts are spread over the interval.
  bool IsDue(uint32_t host, int slot) const {
    const auto looks = static_cast<int>((interval_ns * kLooksPerSecond + kSecondNs - 1) / kSecondNs);
    if (looks <= 1 || told[host] < 0) return true;
    const int look = slot / kGroups;
    return look > told[host] / kGroups && (look + static_cast<int>(host) / kGroups) % looks == 0;
  }
};

// What the agents of one slot send.
std::vector<std::string> MakeSlot(const Options& options, LoadAgents* agents, Turns* turns, int slot) {
  std::vector<std::string> wire;
  for (auto host = static_cast<uint32_t>(slot % kGroups); host < options.hosts; host += kGroups) {
    if (!turns->IsDue(host, slot)) continue;
    const v1::TelemetryBatch base = agents->batch(host);
    const int looks = turns->told[host] < 0 ? 1 : (slot - turns->told[host]) / kGroups;
    turns->told[host] = slot;
    agents->Advance(host, kStartNs + slot * kSlotNs, static_cast<uint32_t>(looks));
    std::optional<v1::TelemetryBatch> changes;
    if (!options.whole && base.sequence() > 0) {
      changes = c4::agent::ChangesSince(base, agents->mutable_batch(host));
    }
    wire.push_back((changes.has_value() ? *changes : agents->batch(host)).SerializeAsString());
  }
  return wire;
}

Load Measure(const Options& options) {
  Load load;
  LoadAgents agents(options);
  Turns turns{std::vector<int>(options.hosts, -1), 0};
  int64_t asked_ns = 0;
  c4::service::Metrics metrics;
  c4::c4d::VerdictStore store(":memory:");
  c4::c4d::HandlerOptions handler_options;
  handler_options.job = "load";
  handler_options.master_epoch = 1;
  c4::c4d::C4dHandler handler(handler_options, &store, &metrics);
  const double resident_before = ResidentMib();
  const int slots = kWarmUpSlots + options.seconds * kSlotsPerSecond;
  int64_t real_begin_ns = 0;
  // Another thread makes the next slot, so that this one is only the master.
  const auto make = [&](int slot) {
    return std::async(std::launch::async,
                      [&options, &agents, &turns, slot] { return MakeSlot(options, &agents, &turns, slot); });
  };
  std::future<std::vector<std::string>> next = make(0);
  for (int slot = 0; slot < slots; ++slot) {
    const std::vector<std::string> wire = next.get();
    if (!options.every_look) turns.interval_ns = asked_ns;
    if (slot + 1 < slots) next = make(slot + 1);
    if (slot == kWarmUpSlots) {
      load.bytes = 0;
      for (Stage* stage : {&load.weigh, &load.parse, &load.ingest, &load.tick}) stage->Forget();
      real_begin_ns = ClockNs(CLOCK_MONOTONIC);
    }
    const bool paced = options.real && slot >= kWarmUpSlots;
    const int64_t due_ns = real_begin_ns + (slot - kWarmUpSlots) * kSlotNs;
    if (paced) {
      const int64_t left_ns = due_ns - ClockNs(CLOCK_MONOTONIC);
      if (left_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left_ns));
    }
    const c4::c4d::Now now{kStartNs + slot * kSlotNs, kUnixNs + slot * kSlotNs};
    for (const std::string& bytes : wire) {
      std::optional<google::protobuf::Arena> arena;
      v1::TelemetryBatch* batch = nullptr;
      load.bytes += bytes.size();
      const grpc::Slice slice(bytes);
      load.weigh.Run([&] {
        load.refused |= !c4::service::ParsedBytes(slice, v1::TelemetryBatch::default_instance(),
                                                  c4::service::limits::kStreamedParsedBytes)
                             .ok();
      });
      load.parse.Run([&] {
        google::protobuf::ArenaOptions room;
        room.start_block_size = 32 << 10;
        room.max_block_size = 256 << 10;
        arena.emplace(room);
        batch = google::protobuf::Arena::CreateMessage<v1::TelemetryBatch>(&*arena);
        load.refused |= !batch->ParseFromString(bytes);
      });
      load.ingest.Run([&] {
        const absl::StatusOr<v1::TelemetryReply> reply = handler.Ingest(*batch, now);
        load.refused |= !reply.ok() || reply->base() != batch->sequence();
        if (reply.ok()) asked_ns = reply->report_interval_ns();
      });
      if (paced) load.delay.Add(static_cast<double>(ClockNs(CLOCK_MONOTONIC) - due_ns) / 1e3);
    }
    if (slot % (kSlotsPerSecond / kTicksPerSecond) == 1) load.tick.Run([&] { handler.Tick(now); });
  }
  load.resident_mib = ResidentMib() - resident_before;
  const c4::c4d::Now end{kStartNs + slots * kSlotNs, kUnixNs + slots * kSlotNs};
  load.status.Run([&] { (void)handler.GetStatus(end); });
  load.matrix.Run([&] { (void)handler.GetMatrix(end); });
  load.verdicts = static_cast<size_t>(handler.ListVerdicts(true).verdicts_size());
  return load;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    fprintf(stderr,
            "usage: c4d_master_load [--hosts N] [--ranks-per-host N] [--queue-pairs N] "
            "[--more-communicators N] [--seconds S] [--every-look] [--whole] [--real] [--json]\n");
    return 2;
  }
  const size_t queue_pairs = LoadAgents(options).queue_pairs();
  const Load load = Measure(options);
  if (load.refused) {
    fprintf(stderr, "c4d_master_load: the master refused a batch\n");
    return 2;
  }
  const double share =
      (load.weigh.total_s() + load.parse.total_s() + load.ingest.total_s() + load.tick.total_s()) /
      options.seconds;
  const uint32_t ranks = options.hosts * options.ranks_per_host;
  if (options.json) {
    printf("{\"hosts\":%u,\"ranks\":%u,\"queue_pair_ends\":%zu,\"seconds\":%d,\"real\":%s,", options.hosts,
           ranks, queue_pairs, options.seconds, options.real ? "true" : "false");
    for (const Stage* stage :
         {&load.weigh, &load.parse, &load.ingest, &load.tick, &load.status, &load.matrix, &load.delay}) {
      printf("\"%s\":{\"share\":%.4f,\"median_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f},", stage->name(),
             stage->total_s() / options.seconds, stage->QuantileUs(0.5), stage->QuantileUs(0.99),
             stage->QuantileUs(1));
    }
    printf("\"megabytes_per_s\":%.1f,\"core_share\":%.4f,\"resident_mib\":%.1f,\"verdicts\":%zu}\n",
           static_cast<double>(load.bytes) / 1e6 / options.seconds, share, load.resident_mib, load.verdicts);
  } else {
    printf("%u ranks on %u hosts, %zu ends of queue pairs, %.1f MB/s of telemetry, %d s%s\n", ranks,
           options.hosts, queue_pairs, static_cast<double>(load.bytes) / 1e6 / options.seconds,
           options.seconds, options.real ? " of real time" : " of simulated time");
    printf("%-16s %8s %12s %12s %12s %12s\n", "stage", "times", "of a core", "median us", "99 % us",
           "longest us");
    for (const Stage* stage :
         {&load.weigh, &load.parse, &load.ingest, &load.tick, &load.delay, &load.status, &load.matrix}) {
      if (stage->count() == 0) continue;
      const bool continuous =
          stage == &load.weigh || stage == &load.parse || stage == &load.ingest || stage == &load.tick;
      char of_core[16] = "-";
      if (continuous) snprintf(of_core, sizeof of_core, "%.1f %%", 100 * stage->total_s() / options.seconds);
      printf("%-16s %8zu %12s %12.1f %12.1f %12.1f\n", stage->name(), stage->count(), of_core,
             stage->QuantileUs(0.5), stage->QuantileUs(0.99), stage->QuantileUs(1));
    }
    printf("in all %.1f %% of a core, %.0f MiB resident, %zu verdicts (none is right)\n", 100 * share,
           load.resident_mib, load.verdicts);
  }
  return share < 1 ? 0 : 1;
}
