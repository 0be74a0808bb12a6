#include "benchmarks/court_records.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "benchmarks/accepted_verdicts.h"
#include "c4d_master/c4d_handler.h"
#include "c4d_master/sources/inspector_telemetry.h"
#include "c4d_master/sources/ras_telemetry.h"
#include "fabric/jobsim/draw.h"

namespace c4::benchmarks {
namespace {

using jobsim::Event;
using jobsim::EventKind;
using jobsim::FaultKind;
using jobsim::kSecondNs;
using jobsim::Physics;
using jobsim::Work;

constexpr int64_t kStartNs = 1'000'000'000'000;
constexpr int64_t kStartUnixNs = 1'700'000'000'000'000'000;
constexpr size_t kKept = 600;  // entries of a rank, some steps of it; torch keeps 2,000 by default
constexpr int64_t kDeadNs = 60 * kSecondNs;  // NCCL considers who does not answer dead then
constexpr int kRemoteError = 6;

bool IsIn(uint32_t rank, const std::vector<uint32_t>& ranks) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

std::vector<uint32_t> AcceptedRanks(const Physics& physics) {
  const jobsim::Shape& shape = physics.shape();
  const jobsim::Fault& fault = physics.fault();
  const jobsim::Network& network = physics.network();
  std::set<uint32_t> ranks;
  const auto add_if = [&](auto&& is_one) {
    for (uint32_t rank = 0; rank < shape.ranks(); ++rank) {
      if (is_one(rank)) ranks.insert(rank);
    }
  };
  const auto nic_of = [&](uint32_t rank) { return jobsim::Nic{shape.node(rank), shape.nic(rank)}; };
  switch (fault.kind) {
    case FaultKind::kSlowGpu:
    case FaultKind::kSlowNode:
    case FaultKind::kSlowTensor:
    case FaultKind::kSlowSeveral: {
      const std::vector<uint32_t> slow = jobsim::SlowRanks(shape, fault);
      ranks.insert(slow.begin(), slow.end());
      break;
    }
    case FaultKind::kLostNode:
      add_if([&](uint32_t rank) { return shape.node(rank) == shape.node(fault.rank); });
      break;
    case FaultKind::kSlowNic:
    case FaultKind::kLossyNic:
    case FaultKind::kDeadNic:
      add_if([&](uint32_t rank) { return nic_of(rank) == nic_of(fault.rank); });
      break;
    case FaultKind::kPfcStorm:
      add_if([&](uint32_t rank) { return network.leaf(nic_of(rank)) == network.leaf(nic_of(fault.rank)); });
      break;
    case FaultKind::kSlowSpine:
    case FaultKind::kDeadSpine:
      for (uint32_t group = 0; group < physics.layout().groups.size(); ++group) {
        const std::vector<uint32_t>& members = physics.layout().groups[group].ranks;
        for (const jobsim::Edge& edge : network.edges(group)) {
          const bool crosses = std::any_of(edge.flows.begin(), edge.flows.end(),
                                           [](const jobsim::Flow& flow) { return flow.factor > 1; });
          if (crosses) ranks.insert({members[edge.from], members[edge.to]});
        }
      }
      break;
    default:
      if (!jobsim::IsHarmless(fault.kind)) ranks.insert(fault.rank);
  }
  return {ranks.begin(), ranks.end()};
}

// "nccl:all_reduce"; of what goes to one peer, with the ranks in the group.
std::string NameOf(const jobsim::Instruction& what, uint32_t member) {
  const std::string self = std::to_string(member);
  const std::string peer = std::to_string(what.peer);
  switch (what.work) {
    case Work::kAllReduce:
      return "nccl:all_reduce";
    case Work::kReduceScatter:
      return "nccl:_reduce_scatter_base";
    case Work::kAllGather:
      return "nccl:_all_gather_base";
    case Work::kAllToAll:
      return "nccl:all_to_all";
    case Work::kSend:
      return "nccl:send " + self + "->" + peer;
    default:
      return "nccl:recv " + self + "<-" + peer;
  }
}

bool HasFinished(const Event& event) {
  return event.kind == EventKind::kFinished;
}

}  // namespace

CourtRecords::CourtRecords(const jobsim::Shape& shape, const jobsim::Fault& fault, uint64_t seed)
    : physics_(shape, fault, seed), until_ns_(fault.at_ns + kWatchdogNs), entries_(shape.ranks()) {
  stands_still_ = AcceptedVerdicts(physics_).stands_still() && !jobsim::IsHarmless(fault.kind);
  accepted_ = AcceptedRanks(physics_);
  if (stands_still_) Run(until_ns_);
}

void CourtRecords::Run(int64_t until_ns) {
  const uint32_t ranks = physics_.shape().ranks();
  // By rank, role and whether it is a collective.
  std::vector<std::map<std::pair<jobsim::Role, bool>, uint64_t>> sequences(ranks);
  std::vector<std::deque<Entry>> kept(ranks);
  std::vector<uint64_t> records(ranks);
  for (int64_t at_ns = kSecondNs; at_ns <= until_ns; at_ns += kSecondNs) {
    physics_.Advance(at_ns);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      for (const Event& event : physics_.Take(rank, at_ns)) {
        std::deque<Entry>& entries = kept[rank];
        if (event.kind == EventKind::kCalled) {
          const uint64_t sequence = ++sequences[rank][{event.what->role, event.what->is_collective()}];
          entries.push_back({event.what, records[rank]++, sequence, event.at_ns, 0, event.odd});
          if (entries.size() > kKept) entries.pop_front();
          continue;
        }
        const uint8_t before = HasFinished(event) ? 1 : 0;
        const auto entry = std::find_if(entries.begin(), entries.end(), [&](const Entry& one) {
          return one.what == event.what && one.state == before;
        });
        if (entry != entries.end()) entry->state = HasFinished(event) ? 2 : 1;
      }
    }
  }
  for (uint32_t rank = 0; rank < ranks; ++rank) entries_[rank].assign(kept[rank].begin(), kept[rank].end());
}

nlohmann::json CourtRecords::FlightRecorder(uint32_t rank) const {
  const jobsim::Fate& fate = physics_.fate(rank);
  if (fate.ends_ns <= until_ns_ || fate.stops_ns <= until_ns_) return nullptr;
  nlohmann::json groups = nlohmann::json::object();
  nlohmann::json entries = nlohmann::json::array();
  const jobsim::Layout& layout = physics_.layout();
  for (const jobsim::Place& place : layout.places[rank]) {
    if (place.group == jobsim::kNoGroup) continue;
    const jobsim::Group& group = layout.groups[place.group];
    const std::string name = std::to_string(place.group);
    groups[name] = {{"name", name}, {"desc", group.name()}, {"ranks", nlohmann::json(group.ranks).dump()}};
  }
  static constexpr const char* kStates[] = {"scheduled", "started", "completed"};
  for (const Entry& entry : entries_[rank]) {
    const jobsim::Place& place = layout.place(rank, entry.what->role);
    const bool collective = entry.what->is_collective();
    const int64_t elements = (entry.what->chunks + (entry.odd ? 1 : 0)) * int64_t{131072};
    const auto members = static_cast<int64_t>(layout.groups[place.group].ranks.size());
    const int64_t in = entry.what->work == Work::kReduceScatter ? elements * members : elements;
    const int64_t out = entry.what->work == Work::kAllGather ? elements * members : elements;
    entries.push_back({{"frames", nlohmann::json::array()},
                       {"record_id", entry.record},
                       {"pg_id", place.group},
                       {"process_group", {std::to_string(place.group), layout.groups[place.group].name()}},
                       {"collective_seq_id", collective ? entry.sequence : 0},
                       {"p2p_seq_id", collective ? 0 : entry.sequence},
                       {"op_id", entry.record},
                       {"profiling_name", NameOf(*entry.what, place.member)},
                       {"time_created_ns", kStartUnixNs + entry.called_ns},
                       {"duration_ms", nullptr},
                       {"input_sizes", {{in}}},
                       {"input_dtypes", {"Float"}},
                       {"output_sizes", {{out}}},
                       {"output_dtypes", {"Float"}},
                       {"state", kStates[entry.state]},
                       {"retired", entry.state == 2},
                       {"time_discovered_started_ns", nullptr},
                       {"time_discovered_completed_ns", nullptr},
                       {"timeout_ms", 600000},
                       {"is_p2p", !collective}});
  }
  return {{"version", "2.10"},
          {"pg_config", groups},
          {"pg_status", nlohmann::json::object()},
          {"entries", entries}};
}

namespace {

// What RAS tells of the job, second by second.
class SimulatedRas {
 public:
  explicit SimulatedRas(Physics* physics) : physics_(*physics) {
    const size_t groups = physics->layout().groups.size();
    called_.resize(groups);
    finished_.resize(groups);
    for (size_t group = 0; group < groups; ++group) {
      called_[group].resize(physics->layout().groups[group].ranks.size());
      finished_[group].resize(physics->layout().groups[group].ranks.size());
    }
  }

  c4d::RasStatus At(int64_t at_ns) {
    physics_.Advance(at_ns);
    for (uint32_t rank = 0; rank < physics_.shape().ranks(); ++rank) {
      for (const Event& event : physics_.Take(rank, at_ns)) {
        if (!event.what->is_collective()) continue;
        const jobsim::Place& place = physics_.layout().place(rank, event.what->role);
        called_[place.group][place.member] += event.kind == EventKind::kCalled ? 1 : 0;
        finished_[place.group][place.member] += HasFinished(event) ? 1 : 0;
      }
    }
    c4d::RasStatus status;
    status.nccl_version = "2.28.9";
    if (at_ns < physics_.ready_ns()) return status;
    for (size_t group = 0; group < called_.size(); ++group) status.communicators.push_back(Of(group, at_ns));
    return status;
  }

 private:
  // Since when it does not answer; kNeverNs.
  int64_t SilentSince(uint32_t rank) const {
    return std::min(physics_.fate(rank).ends_ns, physics_.fate(rank).stops_ns);
  }

  c4d::RasCommunicator Of(size_t number, int64_t at_ns) const {
    const jobsim::Group& group = physics_.layout().groups[number];
    c4d::RasCommunicator communicator;
    communicator.id = group.id;
    communicator.size = static_cast<uint32_t>(group.ranks.size());
    const bool lost = std::any_of(group.ranks.begin(), group.ranks.end(), [&](uint32_t rank) {
      return physics_.fate(rank).ends_ns + kSecondNs <= at_ns;
    });
    for (uint32_t member = 0; member < group.ranks.size(); ++member) {
      const uint32_t rank = group.ranks[member];
      const std::string host = "node" + std::to_string(physics_.shape().node(rank));
      const int64_t silent_ns = SilentSince(rank);
      if (silent_ns <= at_ns) {
        communicator.missing.push_back({member, host, 1000 + rank, at_ns - silent_ns >= kDeadNs});
        continue;
      }
      c4d::RasRank& told = communicator.ranks.emplace_back();
      told.rank = member;
      told.host = host;
      told.pid = 1000 + rank;
      told.collectives = called_[number][member];
      // A call that waits for who is gone meets an error.
      const bool inside = called_[number][member] > finished_[number][member];
      if (lost && inside) told.async_error = kRemoteError;
    }
    return communicator;
  }

  Physics& physics_;
  std::vector<std::vector<uint64_t>> called_;  // by group and member
  std::vector<std::vector<uint64_t>> finished_;
};

// What Inspector writes of the job, second by second: of each communicator the last collective of an
// interval.
class SimulatedInspector {
 public:
  explicit SimulatedInspector(Physics* physics) : physics_(*physics) {}

  std::vector<c4d::InspectorRecord> Until(int64_t at_ns) {
    std::vector<c4d::InspectorRecord> records;
    physics_.Advance(at_ns);
    for (uint32_t rank = 0; rank < physics_.shape().ranks(); ++rank) {
      std::map<std::pair<uint64_t, int64_t>, size_t> last;  // by communicator and interval
      for (const Event& event : physics_.Take(rank, at_ns)) {
        if (!HasFinished(event) || !event.what->is_collective()) continue;
        const jobsim::Place& place = physics_.layout().place(rank, event.what->role);
        const jobsim::Group& group = physics_.layout().groups[place.group];
        const std::string function = NameOf(*event.what, place.member);
        c4d::InspectorRecord record;
        record.communicator_id = group.id;
        record.rank = place.member;
        record.rank_count = static_cast<uint32_t>(group.ranks.size());
        record.host = "node" + std::to_string(physics_.shape().node(rank));
        record.pid = 1000 + rank;
        record.function = function;
        record.sequence = sequences_[{rank, group.id, function}]++;
        const int64_t interval = event.at_ns / kIntervalNs + 1;
        record.dumped_unix_ns = kStartUnixNs + interval * kIntervalNs;
        record.ended_unix_ns = record.dumped_unix_ns;
        record.began_unix_ns = record.ended_unix_ns - (event.at_ns - event.begun_ns);
        const auto [at, is_new] = last.try_emplace({group.id, interval}, records.size());
        if (is_new) {
          records.push_back(std::move(record));
        } else {
          records[at->second] = std::move(record);
        }
      }
    }
    return records;
  }

 private:
  static constexpr int64_t kIntervalNs = 100 * jobsim::kMillisecondNs;

  Physics& physics_;
  std::map<std::tuple<uint32_t, uint64_t, std::string>, uint64_t> sequences_;
};

// The simulated ranks that a verdict names, whose own ranks are those of the widest communicator.
std::set<uint32_t> NamedBy(const v1::Culprit& culprit, const jobsim::Shape& shape) {
  std::set<uint32_t> named(culprit.candidates().begin(), culprit.candidates().end());
  if (culprit.kind() == v1::CULPRIT_KIND_RANK && culprit.process().pid() >= 1000) {
    named.insert(culprit.process().pid() - 1000);
  } else if (culprit.kind() == v1::CULPRIT_KIND_NODE) {
    for (uint32_t rank = 0; rank < shape.ranks(); ++rank) {
      if ("node" + std::to_string(shape.node(rank)) == culprit.host()) named.insert(rank);
    }
  }
  return named;
}

}  // namespace

JobTrial RunSourceTrial(const jobsim::Shape& shape, const jobsim::Fault& fault, uint64_t seed,
                        CourtSource source) {
  Physics physics(shape, fault, seed);
  const std::vector<uint32_t> accepted = AcceptedRanks(physics);
  c4d::HandlerOptions options;
  options.job = "job";
  options.master_epoch = 1;
  options.policy.agent_stale_ns = 10 * kSecondNs;
  options.log_verdicts = false;
  options.slow_is_suspected = source == CourtSource::kInspector;
  c4d::VerdictStore store(":memory:");
  service::Metrics metrics;
  c4d::C4dHandler handler(options, &store, &metrics);
  JobTrial trial;
  std::set<std::string> judged;
  handler.Subscribe([&](const v1::Verdict& verdict) {
    if (verdict.state() != v1::VERDICT_STATE_CONFIRMED || !judged.insert(verdict.id()).second) return;
    const double after_s =
        static_cast<double>(verdict.confirmed_unix_ns() - kStartUnixNs - fault.at_ns) / 1e9;
    const std::set<uint32_t> named = NamedBy(verdict.culprit(), shape);
    const auto known =
        std::count_if(named.begin(), named.end(), [&](uint32_t rank) { return IsIn(rank, accepted); });
    const bool ambiguous = !verdict.culprit().candidates().empty();
    const bool right = after_s >= 0 && !named.empty() &&
                       (ambiguous ? known > 0 : known == static_cast<std::ptrdiff_t>(named.size()));
    trial.wrong += right ? 0 : 1;
    if (right && (!trial.right || (trial.ambiguous && !ambiguous))) {
      trial.right = true;
      trial.ambiguous = ambiguous;
      trial.after_s = after_s;
    }
  });
  c4d::RasTelemetry ras_telemetry("job", 1);
  c4d::InspectorTelemetry inspector_telemetry("job", 1);
  SimulatedRas ras(&physics);
  SimulatedInspector inspector(&physics);
  const auto take = [&](int64_t at_ns, c4d::Now now) {
    if (source == CourtSource::kRas) return ras_telemetry.Take(ras.At(at_ns), now);
    inspector_telemetry.Observe(inspector.Until(at_ns), now);
    return inspector_telemetry.Take(now);
  };
  constexpr int64_t kTickNs = 250 * jobsim::kMillisecondNs;
  for (int64_t at_ns = kSecondNs; at_ns <= fault.at_ns + kWatchdogNs; at_ns += kSecondNs) {
    const c4d::Now now{kStartNs + at_ns, kStartUnixNs + at_ns};
    for (const v1::TelemetryBatch& batch : take(at_ns, now)) (void)handler.Ingest(batch, now);
    for (int64_t tick_ns = 0; tick_ns < kSecondNs; tick_ns += kTickNs) {
      handler.Tick({now.monotonic_ns + tick_ns, now.unix_ns + tick_ns});
    }
  }
  return trial;
}

}  // namespace c4::benchmarks
