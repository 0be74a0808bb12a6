// c4d_master_load [--hosts N] [--ranks-per-host N] [--queue-pairs N] [--seconds S] [--real] [--json]: what
// the master of a large job costs. Synthetic agents report a hybrid-parallel job, four batches a second each,
// as bytes; the master's own code parses, takes them in, and judges ten times a second, on one thread.
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
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "c4d_master/c4d_handler.h"
#include "service/bounded_parse.h"
#include "service/limits.h"

namespace {

using c4::c4d::kSecondNs;
namespace v1 = c4::v1;

constexpr int kBatchesPerSecond = 4;
constexpr int kTicksPerSecond = 10;
constexpr uint64_t kChunkBytes = 256 << 10;

struct Options {
  uint32_t hosts = 512;
  uint32_t ranks_per_host = 8;
  uint32_t queue_pairs = 4;
  int seconds = 5;
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

// The agents: a batch for each host, moved on in place.
class Agents {
 public:
  explicit Agents(const Options& options) : options_(options), batches_(options.hosts) {
    const uint32_t ranks = options.hosts * options.ranks_per_host;
    const uint32_t stages = options.hosts >= 16 ? 8 : 1;
    const uint32_t data = options.hosts / stages;  // hosts a stage
    for (uint32_t host = 0; host < options.hosts; ++host) {
      v1::TelemetryBatch& batch = batches_[host];
      batch.set_host("node" + std::to_string(host));
      batch.set_agent_epoch(1);
      batch.set_agent_version("0.1.0");
      for (uint32_t t = 0; t < options.ranks_per_host; ++t) AddProcess(host, t, ranks, stages, data, &batch);
    }
  }

  size_t queue_pairs() const { return queue_pairs_; }

  // A quarter of a second passes on this host.
  void Advance(uint32_t host, int64_t now_ns) {
    v1::TelemetryBatch& batch = batches_[host];
    batch.set_sequence(batch.sequence() + 1);
    batch.set_monotonic_ns(now_ns);
    for (v1::ProcessReport& report : *batch.mutable_processes()) {
      report.set_in_operation_ns(report.in_operation_ns() + 170'000'000);
      report.set_operations_finished(report.operations_finished() + 12);
      report.mutable_health()->set_cpu_ns(report.health().cpu_ns() + 200'000'000);
      for (v1::CommunicatorState& state : *report.mutable_communicators()) {
        const bool pipeline = state.rank_count() <= 8 && state.has_p2p_called();
        for (v1::Counter* counter : {pipeline ? state.mutable_p2p_called() : state.mutable_called(),
                                     pipeline ? state.mutable_p2p_started() : state.mutable_started(),
                                     pipeline ? state.mutable_p2p_finished() : state.mutable_finished()}) {
          counter->set_count(counter->count() + 4);
          counter->set_age_ns(3'000'000);
        }
      }
      for (v1::QueuePairState& state : *report.mutable_queue_pairs()) {
        state.set_posted_messages(state.posted_messages() + 4);
        state.set_posted_bytes(state.posted_bytes() + 4 * kChunkBytes);
        state.set_completed_messages(state.posted_messages());
        state.set_completed_bytes(state.posted_bytes());
        state.set_moved_bytes(state.posted_bytes());
        if (state.latency_histogram_size() != 0) {
          // Scattered over five buckets, as measured latencies are.
          random_ = random_ * 6364136223846793005U + 1442695040888963407U;
          for (int chunk = 0; chunk < 4; ++chunk) {
            const int bucket = 10 + static_cast<int>((random_ >> (20 + 8 * chunk)) % 5);
            state.set_latency_histogram(bucket, state.latency_histogram(bucket) + 1);
          }
        }
        if (state.has_connection()) {
          v1::ConnectionState* connection = state.mutable_connection();
          connection->set_wanted_messages(connection->wanted_messages() + 4);
          connection->set_granted_messages(connection->wanted_messages());
          connection->set_done_messages(connection->wanted_messages());
          connection->set_first_waits(connection->first_waits() + 4);
          connection->set_first_wait_sum_ns(connection->first_wait_sum_ns() + 4'000'000);
        }
      }
    }
  }

  std::string Bytes(uint32_t host) const { return batches_[host].SerializeAsString(); }

 private:
  void AddProcess(uint32_t host, uint32_t t, uint32_t ranks, uint32_t stages, uint32_t data,
                  v1::TelemetryBatch* batch) {
    const uint32_t rank = host * options_.ranks_per_host + t;
    v1::ProcessReport* report = batch->add_processes();
    report->mutable_process()->set_host(batch->host());
    report->mutable_process()->set_boot_id("00112233445566778899aabbcc" + std::to_string(100000 + host));
    report->mutable_process()->set_pid(1000 + t);
    report->mutable_process()->set_start_time_ticks(5000);
    report->set_job("load");
    report->set_rank_label(static_cast<int32_t>(rank));
    report->set_world_label(static_cast<int32_t>(ranks));
    report->set_program("trainer");
    report->mutable_health()->set_state(v1::PROCESS_STATE_RUNNING);
    report->mutable_health()->set_state_age_ns(kSecondNs);
    const uint32_t stage = host / data;
    const uint32_t replica = host % data;
    AddRing(0x1, rank, ranks, false, report);                                // everybody
    AddRing(0x1000000 + host, t, options_.ranks_per_host, false, report);    // tensor parallel
    AddRing(0x2000000 + stage * 0x1000 + t, replica, data, false, report);   // data parallel
    AddRing(0x3000000 + replica * 0x1000 + t, stage, stages, true, report);  // pipeline
  }

  void AddRing(uint64_t id, uint32_t rank, uint32_t count, bool pipeline, v1::ProcessReport* report) {
    if (count < 2) return;
    v1::CommunicatorState* state = report->add_communicators();
    state->set_communicator_id(id);
    state->set_rank(rank);
    state->set_rank_count(count);
    state->set_phase(v1::PHASE_READY);
    if (pipeline) {
      state->mutable_p2p_called()->set_count(0);
      if (rank > 0) AddConnection(id, rank, rank - 1, report);
      if (rank + 1 < count) AddConnection(id, rank, rank + 1, report);
      return;
    }
    v1::OperationInfo* info = state->mutable_last_called();
    info->set_function(v1::FUNCTION_ALL_REDUCE);
    info->set_data_type(7);
    info->set_root(-1);
    info->set_count(1 << 20);
    *state->mutable_last_started() = *info;
    AddQueuePairs(id, rank, (rank + 1) % count, true, report);
    AddQueuePairs(id, rank, (rank + count - 1) % count, false, report);
  }

  // Both directions.
  void AddConnection(uint64_t id, uint32_t rank, uint32_t peer, v1::ProcessReport* report) {
    AddQueuePairs(id, rank, peer, true, report);
    AddQueuePairs(id, rank, peer, false, report);
  }

  void AddQueuePairs(uint64_t id, uint32_t rank, uint32_t peer, bool sends, v1::ProcessReport* report) {
    const auto address = [id](uint32_t end, uint32_t port) {
      return "10." + std::to_string(end / 62500) + "." + std::to_string(end / 250 % 250) + "." +
             std::to_string(1 + end % 250) + ":" + std::to_string(20000 + (id % 1000) * 16 + port);
    };
    for (uint32_t index = 0; index < options_.queue_pairs; ++index) {
      v1::QueuePairState* state = report->add_queue_pairs();
      ++queue_pairs_;
      state->set_communicator_id(id);
      state->set_rank(rank);
      state->set_peer(peer);
      state->set_direction(sends ? v1::DIRECTION_SEND : v1::DIRECTION_RECEIVE);
      state->set_index(index);
      state->set_phase(v1::PHASE_READY);
      state->set_local(address(static_cast<uint32_t>(report->rank_label()), index));
      state->set_remote(address(peer, index));
      state->set_last_post_age_ns(3'000'000);
      state->set_last_progress_age_ns(2'000'000);
      if (sends) state->mutable_latency_histogram()->Resize(15, 0);
      if (index == 0) state->mutable_connection()->set_wanted_messages(0);
    }
  }

  const Options options_;
  std::vector<v1::TelemetryBatch> batches_;
  size_t queue_pairs_ = 0;
  uint64_t random_ = 1;
};

bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const auto number = [&](const char* name, auto* value) {
      if (strcmp(argv[i], name) != 0 || i + 1 >= argc) return false;
      *value = static_cast<std::remove_pointer_t<decltype(value)>>(strtoul(argv[++i], nullptr, 10));
      return true;
    };
    if (strcmp(argv[i], "--real") == 0) {
      options->real = true;
    } else if (strcmp(argv[i], "--json") == 0) {
      options->json = true;
    } else if (!number("--hosts", &options->hosts) && !number("--ranks-per-host", &options->ranks_per_host) &&
               !number("--queue-pairs", &options->queue_pairs) && !number("--seconds", &options->seconds)) {
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
constexpr int kGroups = kSlotsPerSecond / kBatchesPerSecond;
constexpr int64_t kSlotNs = kSecondNs / kSlotsPerSecond;
constexpr int kWarmUpSlots = 2 * kSlotsPerSecond;  // as fast as they go, and not measured
constexpr int64_t kStartNs = 1000 * kSecondNs;
constexpr int64_t kUnixNs = 1'700'000'000 * kSecondNs;

// What the agents of one slot send.
std::vector<std::string> MakeSlot(const Options& options, Agents* agents, int slot) {
  std::vector<std::string> wire;
  for (auto host = static_cast<uint32_t>(slot % kGroups); host < options.hosts; host += kGroups) {
    agents->Advance(host, kStartNs + slot * kSlotNs);
    wire.push_back(agents->Bytes(host));
  }
  return wire;
}

Load Measure(const Options& options) {
  Load load;
  Agents agents(options);
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
                      [&options, &agents, slot] { return MakeSlot(options, &agents, slot); });
  };
  std::future<std::vector<std::string>> next = make(0);
  for (int slot = 0; slot < slots; ++slot) {
    const std::vector<std::string> wire = next.get();
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
      v1::TelemetryBatch batch;
      load.bytes += bytes.size();
      const grpc::Slice slice(bytes);
      load.weigh.Run([&] {
        load.refused |=
            !c4::service::ParsedBytes(slice, batch, c4::service::limits::kStreamedParsedBytes).ok();
      });
      load.parse.Run([&] { load.refused |= !batch.ParseFromString(bytes); });
      load.ingest.Run([&] { load.refused |= !handler.Ingest(batch, now).ok(); });
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
            "usage: c4d_master_load [--hosts N] [--ranks-per-host N] [--queue-pairs N] [--seconds S] "
            "[--real] [--json]\n");
    return 2;
  }
  const size_t queue_pairs = Agents(options).queue_pairs();
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
