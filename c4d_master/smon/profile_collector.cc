#include "c4d_master/smon/profile_collector.h"

#include <algorithm>
#include <limits>

#include "c4/v1/telemetry.pb.h"
#include "c4d_master/telemetry_decode.h"
#include "wire/segment.h"

namespace c4::c4d {
namespace {

static_assert(static_cast<int>(MarkKind::kForwardCompute) == v1::MARK_KIND_FORWARD_COMPUTE);
static_assert(static_cast<int>(MarkKind::kStep) == v1::MARK_KIND_STEP);

constexpr int64_t kLongestSpanNs = 86400 * kSecondNs;

// The end of a span; false when its times are none.
bool EndOf(int64_t began_ns, uint64_t lasted_ns, int64_t* ended_ns) {
  if (began_ns < 0 || began_ns > kMaxMonotonicNs || lasted_ns > static_cast<uint64_t>(kLongestSpanNs)) {
    return false;
  }
  *ended_ns = began_ns + static_cast<int64_t>(lasted_ns);
  return true;
}

std::optional<DeclaredWorker> Decode(const v1::WorkerPlace& place) {
  const auto fits = [](uint32_t rank, uint32_t size) {
    return size > 0 && size <= UINT16_MAX && rank < size;
  };
  if (!fits(place.dp_rank(), place.dp_size()) || !fits(place.stage(), place.pp_size()) ||
      !fits(place.tp_rank(), place.tp_size()) || !fits(place.cp_rank(), place.cp_size()) ||
      !fits(0, place.vpp_size()) || place.layers() > UINT16_MAX) {
    return std::nullopt;
  }
  const auto whole = [](uint32_t value) { return static_cast<int>(value); };
  return DeclaredWorker{.dp_rank = whole(place.dp_rank()),
                        .stage = whole(place.stage()),
                        .tp_rank = whole(place.tp_rank()),
                        .cp_rank = whole(place.cp_rank()),
                        .dp_size = whole(place.dp_size()),
                        .pp_size = whole(place.pp_size()),
                        .tp_size = whole(place.tp_size()),
                        .cp_size = whole(place.cp_size()),
                        .vpp_size = whole(place.vpp_size()),
                        .layers = whole(place.layers())};
}

bool Decode(const v1::ProfiledOperation& operation, uint32_t clock, CommunicationSpan* span) {
  const v1::OperationInfo& info = operation.info();
  if (!EndOf(operation.called_ns(), operation.called_for_ns(), &span->started_ns) ||
      !EndOf(span->started_ns, operation.started_for_ns(), &span->ended_ns) ||
      !v1::Function_IsValid(info.function()) || info.data_type() > UINT8_MAX) {
    return false;
  }
  span->communicator_id = operation.communicator_id();
  span->called_ns = operation.called_ns();
  span->count = info.count();
  span->sequence = operation.sequence();
  span->root = info.root();
  span->clock = clock;
  span->function = static_cast<uint8_t>(info.function());
  span->data_type = static_cast<uint8_t>(info.data_type());
  return true;
}

bool Decode(const v1::ProfiledMark& mark, uint32_t clock, MarkedSpan* span) {
  const bool is_step = mark.kind() == v1::MARK_KIND_STEP;
  if (!v1::MarkKind_IsValid(mark.kind()) || mark.kind() == v1::MARK_KIND_UNSPECIFIED ||
      !EndOf(mark.began_ns(), mark.lasted_ns(), &span->ended_ns) || mark.micro_batch() < -1 ||
      mark.chunk() < -1 || mark.chunk() >= std::numeric_limits<int16_t>::max() ||
      (is_step && (mark.step() < 0 || mark.step() > std::numeric_limits<int32_t>::max()))) {
    return false;
  }
  span->began_ns = mark.began_ns();
  span->step = is_step ? static_cast<int32_t>(mark.step()) : -1;
  span->micro_batch = mark.micro_batch();
  span->chunk = mark.chunk();
  span->clock = clock;
  span->kind = static_cast<MarkKind>(mark.kind());
  return true;
}

}  // namespace

void ProfileCollector::Observe(const v1::TelemetryBatch& batch, int64_t arrival_ns) {
  const auto [at, is_new] = sources_.try_emplace(batch.host());
  Source& source = at->second;
  if (is_new) {
    source.node = profile_.nodes.size();
    profile_.nodes.push_back({CutText(batch.host()), {}});
  } else if (source.agent_epoch == batch.agent_epoch() && batch.sequence() <= source.sequence) {
    return;
  }
  source.agent_epoch = batch.agent_epoch();
  source.sequence = batch.sequence();
  source.clock.Sample(batch.monotonic_ns(), arrival_ns);
  source.clock.RoundTrip(batch.clock().offset_ns(), batch.has_clock() ? batch.clock().error_ns() : -1);
  ++profile_.batches;
  std::vector<ProfileClock>& clocks = profile_.nodes[source.node].clocks;
  const auto clock = static_cast<uint32_t>(clocks.size());
  clocks.push_back({source.clock.offset_ns(), source.clock.error_ns()});
  std::vector<std::string> faults;  // the handler has said them
  std::vector<Process> processes = DecodeProcesses(batch, 0, &faults);
  std::map<ProcessKey, const Process*> known;
  for (const Process& process : processes) known[process.key] = &process;
  for (const v1::ProcessReport& report : batch.processes()) {
    const ProcessKey key{CutText(report.process().boot_id()), report.process().pid(),
                         report.process().start_time_ticks()};
    const auto found = known.find(key);
    if (found == known.end()) continue;
    // Of an earlier life of the job: it will never mark anything.
    if (found->second->health.state == ProcessState::kGone && !profile_.processes.contains(key)) continue;
    if (profile_.job.empty()) profile_.job = CutText(report.job());
    ProfiledProcess& process = profile_.processes[key];
    process.rank = found->second->rank;
    for (const Membership& membership : found->second->communicators) {
      process.communicators[membership.communicator_id] = {membership.rank, membership.rank_count,
                                                           membership.vendor, membership.sees_kernels};
    }
    known.erase(found);  // a process that stands in a batch twice: the first counts
    const uint64_t before = overwritten_before_.try_emplace(key, report.records_lost()).first->second;
    process.overwritten = report.records_lost() - std::min(before, report.records_lost());
    Take(report, source.node, clock, &process);
  }
}

void ProfileCollector::Take(const v1::ProcessReport& report, size_t node, uint32_t clock,
                            ProfiledProcess* process) {
  process->node = node;
  if (report.has_worker()) process->worker = Decode(report.worker());
  if (report.has_profile()) TakeProfile(report, clock, process);
}

void ProfileCollector::TakeProfile(const v1::ProcessReport& report, uint32_t clock,
                                   ProfiledProcess* process) {
  process->left_out += report.profile().left_out();
  for (const v1::ProfiledOperation& operation : report.profile().operations()) {
    CommunicationSpan span;
    if (!HasRoom()) continue;
    if (Decode(operation, clock, &span)) {
      process->operations.push_back(span);
    } else {
      ++process->left_out;
    }
  }
  for (const v1::ProfiledMark& mark : report.profile().marks()) {
    MarkedSpan span;
    if (!HasRoom()) continue;
    if (Decode(mark, clock, &span)) {
      process->marks.push_back(span);
      if (span.kind == MarkKind::kStep) ++process->steps;
    } else {
      ++process->left_out;
    }
  }
}

bool ProfileCollector::HasRoom() {
  if (entries_ < max_entries_) {
    ++entries_;
    return true;
  }
  ++profile_.over_limit;
  return false;
}

int ProfileCollector::CompleteSteps() const {
  int fewest = std::numeric_limits<int>::max();
  bool any = false;
  for (const auto& [key, process] : profile_.processes) {
    if (!process.worker || process.worker->tp_rank != 0 || process.worker->cp_rank != 0) continue;
    fewest = std::min(fewest, process.steps);
    any = true;
  }
  return any ? fewest : 0;
}

}  // namespace c4::c4d
