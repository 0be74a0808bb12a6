#include "c4d_master/smon/profile_join.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "c4/v1/telemetry.pb.h"
#include "c4d_master/smon/communicator_roles.h"
#include "c4d_master/smon/group_waits.h"
#include "c4d_master/smon/operation_kind.h"
#include "c4d_master/smon/receive_starts.h"
#include "c4d_master/smon/worker_steps.h"

namespace c4::c4d {
namespace {

using whatif::OperationType;

constexpr char kHowToMark[] =
    "the program says it by the calls of ccl/include/c4/marks.h (docs/whatif.md, \"Your own job\")";
constexpr double kOtherShare = 0.01;  // of the steps' time; below, nothing is said
constexpr size_t kShown = 5;

absl::Status Nothing(const std::string& why) {
  return absl::NotFoundError(why);
}

// "rank 3", "ranks 1, 2, 5 and 4 more".
std::string Ranks(std::vector<int32_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  const size_t shown = std::min(ranks.size(), kShown);
  std::string text =
      absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                   absl::StrJoin(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(shown), ", "));
  if (ranks.size() > shown) absl::StrAppend(&text, " and ", ranks.size() - shown, " more");
  return text;
}

std::optional<OperationType> TypeOf(MarkKind kind) {
  switch (kind) {
    case MarkKind::kForwardCompute:
      return OperationType::kForwardCompute;
    case MarkKind::kBackwardCompute:
      return OperationType::kBackwardCompute;
    case MarkKind::kOptimizer:
      return OperationType::kOptimizer;
    case MarkKind::kOptimizerClipMainGrad:
      return OperationType::kOptimizerClipMainGrad;
    case MarkKind::kGc:
      return OperationType::kGc;
    case MarkKind::kStep:
    case MarkKind::kNone:
      break;
  }
  return std::nullopt;
}

class Joiner {
 public:
  explicit Joiner(const Profile& profile) : profile_(profile), roles_(FindRoles(profile)) {}

  absl::StatusOr<ProfiledJob> Join() {
    absl::Status status = FindLayout();
    if (status.ok()) status = ChooseWorkers();
    if (status.ok()) status = FindCommonSteps();
    if (!status.ok()) return status;
    for (const Worker& worker : workers_) FindReceives(worker);
    for (const Worker& worker : workers_) {
      AddMarks(worker);
      AddCommunication(worker);
    }
    status = CheckComputations();
    if (!status.ok()) return status;
    SayLosses();
    SayCommunication();
    SayClocks();
    return std::move(job_);
  }

 private:
  struct Worker {
    const ProfiledProcess* process;
    WorkerSteps steps;
  };

  void Say(std::string sentence) { job_.not_seen.push_back(std::move(sentence)); }

  // The sizes that the workers agree on.
  absl::Status FindLayout() {
    if (profile_.batches == 0) {
      return Nothing(
          "no telemetry of the job has come: look at `c4 status` whether an agent (c4a) runs on its nodes");
    }
    const ProfiledProcess* first = nullptr;
    std::vector<int32_t> silent;
    for (const auto& [key, process] : profile_.processes) {
      if (!process.worker) {
        silent.push_back(process.rank);
        continue;
      }
      if (first == nullptr) first = &process;
      const DeclaredWorker& a = *first->worker;
      const DeclaredWorker& b = *process.worker;
      if (a.dp_size != b.dp_size || a.pp_size != b.pp_size || a.tp_size != b.tp_size ||
          a.cp_size != b.cp_size || a.vpp_size != b.vpp_size) {
        return Nothing(absl::StrCat("rank ", first->rank, " says that the job has dp ", a.dp_size, ", pp ",
                                    a.pp_size, ", tp ", a.tp_size, ", cp ", a.cp_size, ", vpp ", a.vpp_size,
                                    ", rank ", process.rank, " says dp ", b.dp_size, ", pp ", b.pp_size,
                                    ", tp ", b.tp_size, ", cp ", b.cp_size, ", vpp ", b.vpp_size,
                                    ": all have to give c4MarkWorker the same sizes"));
      }
    }
    if (first == nullptr) {
      return Nothing(absl::StrCat(
          profile_.processes.empty() ? "no process of the job was seen" : "no process of the job says",
          profile_.processes.empty() ? ": is it over?" : absl::StrCat(" which worker it is; ", kHowToMark)));
    }
    if (!silent.empty()) {
      Say(absl::StrCat(Ranks(silent), silent.size() == 1 ? " does" : " do",
                       " not say which worker it is (c4MarkWorker) and is left out"));
    }
    layout_ = *first->worker;
    if (layout_.pp_size > whatif::kMaxStages) {
      return Nothing(absl::StrCat("the job has ", layout_.pp_size, " stages; at most ", whatif::kMaxStages,
                                  " can be analysed"));
    }
    job_.shape = {.name = profile_.job,
                  .dp_size = layout_.dp_size,
                  .pp_size = layout_.pp_size,
                  .tp_size = layout_.tp_size,
                  .cp_size = layout_.cp_size,
                  .vpp_size = layout_.vpp_size > 1 ? layout_.vpp_size : 0,
                  .world_size = 0,
                  .layers = layout_.layers};
    return absl::OkStatus();
  }

  // Tensor and context rank 0 of each.
  absl::Status ChooseWorkers() {
    std::map<std::pair<int, int>, const ProfiledProcess*> chosen;  // (stage, dp rank)
    std::vector<int32_t> twice;
    for (const auto& [key, process] : profile_.processes) {
      if (!process.worker) continue;
      members_[{process.worker->stage, process.worker->dp_rank}].push_back(&process);
      if (process.worker->tp_rank != 0 || process.worker->cp_rank != 0) continue;
      const auto [at, is_new] =
          chosen.try_emplace({process.worker->stage, process.worker->dp_rank}, &process);
      if (is_new) continue;
      twice.push_back(process.rank);
      if (process.steps > at->second->steps) at->second = &process;
    }
    if (!twice.empty()) {
      Say(absl::StrCat(Ranks(twice),
                       " says that it is a worker that another process is, too (of an earlier "
                       "start of the job?): the one with more steps is taken"));
    }
    std::vector<std::string> missing;
    for (int stage = 0; stage < layout_.pp_size && missing.size() <= kShown; ++stage) {
      for (int dp = 0; dp < layout_.dp_size && missing.size() <= kShown; ++dp) {
        if (!chosen.contains({stage, dp})) missing.push_back(absl::StrCat("dp_rank ", dp, " stage ", stage));
      }
    }
    if (!missing.empty()) {
      if (missing.size() > kShown) missing.back() = "others";
      return Nothing(absl::StrCat("of the ", layout_.dp_size * int64_t{layout_.pp_size},
                                  " workers that the job says it has, nothing is seen of ",
                                  absl::StrJoin(missing, ", "),
                                  ": each of their nodes needs an agent, and each process its c4MarkWorker"));
    }
    for (const auto& [place, process] : chosen) workers_.push_back({process, WorkerSteps(*process)});
    return absl::OkStatus();
  }

  // Steps that all workers have marked whole; the first and the last of a session mostly lack some.
  absl::Status FindCommonSteps() {
    std::map<int32_t, size_t> votes;
    std::set<int32_t> twice;
    std::vector<int32_t> without;
    for (const Worker& worker : workers_) {
      for (const WorkerSteps::Step& step : worker.steps.steps()) ++votes[step.number];
      twice.insert(worker.steps.twice().begin(), worker.steps.twice().end());
      if (worker.process->steps == 0) without.push_back(worker.process->rank);
    }
    if (!without.empty()) {
      return Nothing(absl::StrCat(
          Ranks(without), without.size() == 1 ? " marks" : " mark", " no whole training step",
          without.size() < workers_.size() ? " while others do" : "",
          ": record for longer than a few steps last, at the level fine; where a step begins and ends, ",
          kHowToMark));
    }
    for (const auto& [number, count] : votes) {
      if (count == workers_.size()) common_.insert(number);
    }
    if (!twice.empty()) {
      Say(absl::StrCat(twice.size(), " numbers of steps were marked twice by one process, the first is ",
                       *twice.begin(), ": these steps are left out"));
    }
    if (common_.empty()) {
      return Nothing(absl::StrCat("no step was marked by all of the ", workers_.size(),
                                  " workers: record for longer, and number the steps alike on all of them"));
    }
    return absl::OkStatus();
  }

  // Master's clock minus that of the process's node; on one node there is one clock.
  int64_t Offset(const ProfiledProcess& process, uint32_t clock) const {
    return profile_.nodes.size() > 1 ? profile_.nodes[process.node].clocks[clock].offset_ns : 0;
  }

  double Seconds(const ProfiledProcess& process, uint32_t clock, int64_t at_ns) {
    const int64_t offset_ns = Offset(process, clock);
    if (!zero_ns_) zero_ns_ = at_ns + offset_ns;
    return static_cast<double>(at_ns + offset_ns - *zero_ns_) * 1e-9;
  }

  void Add(const Worker& worker, const WorkerSteps::Step& step, OperationType type, uint32_t clock,
           int64_t started_ns, int64_t ended_ns, int32_t micro_batch, int32_t chunk, int64_t waited_ns = 0) {
    const DeclaredWorker& place = *worker.process->worker;
    whatif::OperationRecord record;
    record.start_s = Seconds(*worker.process, clock, started_ns);
    record.duration_s = static_cast<float>(static_cast<double>(ended_ns - started_ns) * 1e-9);
    record.step = step.number;
    record.rank = worker.process->rank;
    record.micro_batch = micro_batch;
    record.chunk = static_cast<int16_t>(layout_.vpp_size > 1 ? chunk : -1);
    record.dp_rank = static_cast<uint16_t>(place.dp_rank);
    record.stage = static_cast<uint16_t>(place.stage) & 0xfff;
    record.type = static_cast<uint16_t>(type) & 0xf;
    job_.records.Add(record, static_cast<float>(static_cast<double>(waited_ns) * 1e-9));
    ++counts_[whatif::Index(type)];
  }

  void AddMembers(const Worker& worker, const GroupWaits& waits) {
    const DeclaredWorker& place = *worker.process->worker;
    for (const ProfiledProcess* member : members_[{place.stage, place.dp_rank}])
      job_.records.AddMember(member->rank, place.dp_rank, place.stage);
    if (waits.lagging() >= 0) job_.records.SetLagging(place.dp_rank, place.stage, waits.lagging());
  }

  void AddMarks(const Worker& worker) {
    const DeclaredWorker& place = *worker.process->worker;
    const GroupWaits waits(profile_, roles_, members_[{place.stage, place.dp_rank}], *worker.process);
    AddMembers(worker, waits);
    std::array<bool, 2> computes{};
    for (const WorkerSteps::Step& step : worker.steps.steps()) {
      if (!common_.contains(step.number)) continue;
      steps_ns_ += step.ended_ns - step.began_ns;
      // Says that the program waits for what it does (own_time.h).
      Add(worker, step, OperationType::kOwnTime, step.clock, step.began_ns, step.began_ns, -1, -1);
      int64_t computed_until_ns = std::numeric_limits<int64_t>::min();
      for (const MarkedSpan* mark : step.marks) {
        const std::optional<OperationType> type = TypeOf(mark->kind);
        if (!type) continue;
        // Within a computation it is one of that computation's pauses.
        if (mark->kind == MarkKind::kGc && mark->ended_ns <= computed_until_ns) continue;
        if (IsComputation(mark->kind)) {
          computes[mark->kind == MarkKind::kForwardCompute ? 0 : 1] = true;
          computed_until_ns = std::max(computed_until_ns, mark->ended_ns);
          if (mark->chunk < 0 || mark->chunk >= layout_.vpp_size) ++chunkless_;
        }
        const int64_t waited_ns =
            IsComputation(mark->kind)
                ? std::min(waits.Waited_ns(mark->began_ns, mark->ended_ns), mark->ended_ns - mark->began_ns)
                : 0;
        Add(worker, step, *type, mark->clock, mark->began_ns, mark->ended_ns, mark->micro_batch, mark->chunk,
            waited_ns);
      }
    }
    if (!computes[0] || !computes[1]) idle_.push_back(worker.process->rank);
  }

  void FindReceives(const Worker& worker) {
    for (const CommunicationSpan& operation : worker.process->operations) {
      if (operation.function != v1::FUNCTION_RECV || operation.root < 0) continue;
      const WorkerSteps::Step* step = worker.steps.At(operation.called_ns);
      const auto own = worker.process->communicators.find(operation.communicator_id);
      if (step == nullptr || own == worker.process->communicators.end()) continue;
      receives_.Add(operation.communicator_id, static_cast<uint32_t>(operation.root), own->second.rank,
                    step->number, operation.started_ns + Offset(*worker.process, operation.clock));
    }
  }

  // A short message is under way before anybody waits for it: its send is over then, but not the transfer,
  // which cannot end before its receive begins.
  int64_t EndOf(const Worker& worker, const WorkerSteps::Step& step, const CommunicationSpan& operation) {
    if (operation.function != v1::FUNCTION_SEND || operation.root < 0) return operation.ended_ns;
    const auto own = worker.process->communicators.find(operation.communicator_id);
    if (own == worker.process->communicators.end()) return operation.ended_ns;
    const std::optional<int64_t> received_ns = receives_.Next(
        operation.communicator_id, own->second.rank, static_cast<uint32_t>(operation.root), step.number);
    if (!received_ns) return operation.ended_ns;
    return std::max(operation.ended_ns, *received_ns - Offset(*worker.process, operation.clock));
  }

  void AddCommunication(const Worker& worker) {
    for (const CommunicationSpan& operation : worker.process->operations) {
      const WorkerSteps::Step* step = worker.steps.At(operation.called_ns);
      if (step == nullptr || !common_.contains(step->number)) continue;
      static const RoledCommunicator kNobody;
      const auto found = roles_.find(operation.communicator_id);
      const RoledCommunicator& communicator = found == roles_.end() ? kNobody : found->second;
      const OperationVerdict verdict =
          JudgeOperation(operation, communicator, *worker.process->worker, *step);
      const int64_t ended_ns = EndOf(worker, *step, operation);
      switch (verdict.kind) {
        case OperationVerdict::Kind::kTyped:
          Add(worker, *step, verdict.type, operation.clock, operation.started_ns, ended_ns, -1, -1);
          transfer_ns_.push_back(operation.ended_ns - operation.started_ns);
          guessed_ += verdict.guessed ? 1 : 0;
          if (verdict.in_computation) waits_within_.insert(worker.process->rank);
          break;
        case OperationVerdict::Kind::kWithin:
          break;
        case OperationVerdict::Kind::kOther:
          ++others_;
          other_ns_ += operation.ended_ns - operation.started_ns;
          break;
        case OperationVerdict::Kind::kUnknown:
          ++unknown_;
          break;
      }
    }
  }

  absl::Status CheckComputations() {
    if (!idle_.empty()) {
      return Nothing(absl::StrCat(Ranks(idle_), idle_.size() == 1 ? " marks" : " mark",
                                  " no forward or no backward computation in the steps that all have: what "
                                  "is computed, ",
                                  kHowToMark));
    }
    if (layout_.vpp_size > 1 && chunkless_ > 0) {
      return Nothing(absl::StrCat("the job has ", layout_.vpp_size, " model chunks a stage, but ", chunkless_,
                                  " computations are marked without theirs: give c4MarkOperation the chunk"));
    }
    return absl::OkStatus();
  }

  void SayLosses() {
    uint64_t lost = profile_.over_limit;
    std::vector<int32_t> ranks;
    for (const auto& [key, process] : profile_.processes) {
      if (process.left_out + process.overwritten == 0) continue;
      lost += process.left_out + process.overwritten;
      ranks.push_back(process.rank);
    }
    if (!ranks.empty()) {
      Say(absl::StrCat(lost, " records of ", Ranks(ranks),
                       " did not come through; steps that lack some are left out. A larger C4_RING_RECORDS, "
                       "or agents that scan more often, lose fewer"));
    }
    if (profile_.over_limit > 0) {
      Say(absl::StrCat("the session is too long: ", profile_.over_limit,
                       " operations beyond what is kept were left out; record fewer steps"));
    }
  }

  size_t Count(OperationType type) const { return counts_[whatif::Index(type)]; }

  void SayCommunication() {
    bool vendor = false;
    bool unseen = false;
    for (const Worker& worker : workers_) {
      for (const auto& [id, membership] : worker.process->communicators) {
        vendor = vendor || membership.vendor;
        unseen = unseen || (membership.vendor && !membership.sees_kernels);
      }
    }
    if (vendor) {
      Say("marks have the times of the CPU: where the program did not wait for its kernels, the computations "
          "of this GPU job look shorter than they are");
    }
    if (unseen) {
      Say("some communicators run on an NCCL whose kernels are not seen (below 2.27, or its profiler is "
          "another one): their communication is missing");
    }
    const size_t transfers = Count(OperationType::kForwardSend) + Count(OperationType::kForwardRecv) +
                             Count(OperationType::kBackwardSend) + Count(OperationType::kBackwardRecv);
    const size_t reductions =
        Count(OperationType::kGradsReduceScatter) + Count(OperationType::kParamsAllGather);
    if (layout_.pp_size > 1 && transfers == 0) {
      Say("no send or receive between the stages was seen: the stages look as if they did not wait for each "
          "other");
    }
    if (layout_.dp_size > 1 && reductions == 0) {
      Say("no reduction of gradients among data-parallel ranks was seen: they look as if they did not wait "
          "for each other");
    }
    if (unknown_ > 0) {
      Say(absl::StrCat(unknown_,
                       " operations are left out, because not all of their communicator's members "
                       "say which workers they are"));
    }
    if (steps_ns_ > 0 && static_cast<double>(other_ns_) > kOtherShare * static_cast<double>(steps_ns_)) {
      Say(
          absl::StrFormat("%d operations that the analysis has no place for (broadcasts, sums over the whole "
                          "job, transfers past the next stage) are left out: %.1f %% of the steps' time",
                          others_, 100 * static_cast<double>(other_ns_) / static_cast<double>(steps_ns_)));
    }
    if (!waits_within_.empty()) {
      Say(absl::StrCat(Ranks({waits_within_.begin(), waits_within_.end()}),
                       " sends or receives within marked computations: what is waited for there counts as "
                       "computing; mark computations without it"));
    }
    if (guessed_ > 0) {
      Say(absl::StrCat("with two stages and model chunks both directions lead to the same stage: that of ",
                       guessed_, " sends and receives is taken from the computations beside them"));
    }
  }

  // What relates the clocks of two nodes may be off by more than a transfer takes.
  void SayClocks() {
    if (profile_.nodes.size() < 2 || transfer_ns_.empty()) return;
    std::vector<int64_t> errors_ns;  // of the nodes
    for (const ProfiledNode& node : profile_.nodes) {
      std::vector<int64_t> known_ns;
      for (const ProfileClock& clock : node.clocks) {
        if (clock.error_ns) known_ns.push_back(*clock.error_ns);
      }
      if (known_ns.empty()) {
        Say(absl::StrCat("nobody knows how far the clock of ", node.host,
                         " is off the master's: transfers with other nodes may seem to take any time"));
        return;
      }
      errors_ns.push_back(Median(&known_ns));
    }
    std::sort(errors_ns.begin(), errors_ns.end());
    const int64_t error_ns = errors_ns[errors_ns.size() - 1] + errors_ns[errors_ns.size() - 2];
    const int64_t usual_ns = Median(&transfer_ns_);
    if (error_ns <= usual_ns) return;
    Say(
        absl::StrFormat("the clocks of two nodes may be %.2f ms apart, more than half of the operations of "
                        "communication take (%.2f ms): what communication costs is not to be relied on",
                        static_cast<double>(error_ns) * 1e-6, static_cast<double>(usual_ns) * 1e-6));
  }

  static int64_t Median(std::vector<int64_t>* values) {
    const auto middle = values->begin() + static_cast<ptrdiff_t>(values->size() / 2);
    std::nth_element(values->begin(), middle, values->end());
    return *middle;
  }

  const Profile& profile_;
  const std::map<uint64_t, RoledCommunicator> roles_;
  ProfiledJob job_;
  DeclaredWorker layout_;
  std::map<std::pair<int, int>, std::vector<const ProfiledProcess*>> members_;  // by (stage, dp rank)
  std::vector<Worker> workers_;
  std::set<int32_t> common_;  // steps
  ReceiveStarts receives_;
  std::optional<int64_t> zero_ns_;
  std::array<size_t, whatif::kOperationTypes> counts_{};
  std::vector<int64_t> transfer_ns_;
  std::vector<int32_t> idle_;  // workers without computations
  std::set<int32_t> waits_within_;
  size_t chunkless_ = 0;
  size_t guessed_ = 0;
  size_t others_ = 0;
  size_t unknown_ = 0;
  int64_t other_ns_ = 0;
  int64_t steps_ns_ = 0;
};

}  // namespace

absl::StatusOr<ProfiledJob> JoinProfile(const Profile& profile) {
  return Joiner(profile).Join();
}

}  // namespace c4::c4d
