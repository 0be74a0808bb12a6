#include "c4d_master/detectors/hang_evidence.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using service::CommunicatorText;
using service::RankListText;
using service::SecondsText;

constexpr size_t kMaxConnections = 4;  // that are told of; the rest is counted

// "rank 2", or what else identifies a process that has no rank.
std::string Name(const Process& process) {
  return process.rank >= 0 ? service::Concat("rank ", process.rank)
                           : service::Concat("process ", process.key.pid);
}

std::string Operations(uint64_t count) {
  return service::Concat(count, count == 1 ? " operation" : " operations");
}

std::string StateText(ProcessState state) {
  switch (state) {
    case ProcessState::kStopped:
      return "stopped by a signal";
    case ProcessState::kTraced:
      return "held by a debugger";
    case ProcessState::kZombie:
      return "dead, not yet collected by its parent,";
    case ProcessState::kGone:
      return "gone without having left in order";
    case ProcessState::kBlocked:
      return "blocked in the kernel (uninterruptible)";
    default:
      return std::string(service::ProcessStateWord(static_cast<int>(state)));
  }
}

std::string ProcessStateEvidence(const HangCase& hang) {
  const Process& process = *hang.culprit->process;
  const Health& health = process.health;
  std::string text =
      service::Concat(Name(process), " is process ", process.key.pid, " on ", hang.culprit->host->name);
  if (!process.program.empty()) absl::StrAppend(&text, " (", process.program, ")");
  absl::StrAppend(&text, ": ", StateText(health.state));
  if (health.state_since_at_ns != kNever) {
    absl::StrAppend(&text, " for ", SecondsText(hang.culprit->host->as_of_ns - health.state_since_at_ns));
  }
  if (!health.wait_channel.empty()) absl::StrAppend(&text, ", kernel wait channel ", health.wait_channel);
  return text;
}

Evidence CountersEvidence(const HangCase& hang) {
  const Process& process = *hang.culprit->process;
  const Membership& membership = *hang.membership;
  if (hang.point_to_point) {
    return {hang.absent ? "absent" : "inside",
            service::Concat(Name(process),
                            hang.absent ? " has not called the send or receive that answers "
                                        : " cannot go on with the send or receive that answers ",
                            RankListText(hang.waiting_ranks), " in communicator ",
                            CommunicatorText(hang.communicator->id), "; its last call was ",
                            LastCallText(process))};
  }
  std::string text = service::Concat(Name(process), " has called ", Operations(membership.called.count),
                                     " of communicator ", CommunicatorText(hang.communicator->id));
  if (!hang.communicator->calls_only) absl::StrAppend(&text, " and finished ", membership.finished.count);
  if (hang.absent && membership.called.count > hang.operation) {
    absl::StrAppend(
        &text, ": its GPU has not begun operation ", hang.operation,
        ", and waits in no other operation either: it is busy with a kernel or copy of the program");
  } else if (hang.absent) {
    absl::StrAppend(&text, ": it has not called operation ", hang.operation);
  } else {
    absl::StrAppend(&text, ": it is inside operation ", hang.operation, " and cannot go on");
  }
  const std::string last_call = LastCallText(process);
  if (!last_call.empty()) absl::StrAppend(&text, "; its last call was ", last_call);
  return {hang.absent ? "absent" : "inside", text};
}

std::string WaitingEvidence(const HangCase& hang) {
  std::string text =
      service::Concat(RankListText(hang.waiting_ranks), hang.waiting_ranks.size() == 1 ? " waits" : " wait",
                      hang.point_to_point ? " in send or receive " : " in operation ", hang.operation);
  for (const Member* member : hang.waiting) {
    if (hang.point_to_point) break;
    if (member->state->started.count != hang.operation + 1) continue;
    absl::StrAppend(&text, " (", OperationText(member->state->last_started), ")");
    break;
  }
  absl::StrAppend(&text, " for ", SecondsText(hang.communicator->StandstillNs()));
  if (!hang.waiting_elsewhere.empty()) {
    absl::StrAppend(&text, "; through other communicators ", RankListText(hang.waiting_elsewhere),
                    hang.waiting_elsewhere.size() == 1 ? " waits" : " wait", " for it as well");
  }
  return text;
}

// What the culprit's neighbours see on their connections with it.
void AddConnections(const JobSnapshot& snapshot, const HangCase& hang, std::vector<Evidence>* evidence) {
  size_t found = 0;
  for (const Member* member : hang.waiting) {
    const ProcessRef& ref = snapshot.processes[member->process];
    for (const QueuePair& queue_pair : member->own->queue_pairs) {
      if (queue_pair.peer != hang.membership->rank) continue;
      std::string text;
      if (queue_pair.sends && queue_pair.posted_bytes > queue_pair.completed_bytes) {
        text =
            service::Concat(Name(*ref.process), " has ", queue_pair.posted_bytes - queue_pair.completed_bytes,
                            " bytes towards it that are not acknowledged");
      } else if (!queue_pair.sends && queue_pair.posted_messages > queue_pair.completed_messages) {
        const uint64_t open = queue_pair.posted_messages - queue_pair.completed_messages;
        text = service::Concat(Name(*ref.process), " has ", open, open == 1 ? " receive" : " receives",
                               " posted from it that ", open == 1 ? "is" : "are", " not answered");
      } else {
        continue;
      }
      if (++found > kMaxConnections) continue;
      if (!queue_pair.local.empty() && !queue_pair.remote.empty()) {
        absl::StrAppend(&text, " (", queue_pair.local, queue_pair.sends ? " to " : " from ",
                        queue_pair.remote, ")");
      }
      if (queue_pair.last_progress_at_ns != kNever) {
        absl::StrAppend(&text, ", the last byte moved ",
                        SecondsText(ref.host->as_of_ns - queue_pair.last_progress_at_ns), " ago");
      }
      evidence->push_back({"connection", text});
    }
  }
  if (found > kMaxConnections) {
    evidence->push_back(
        {"connection", service::Concat("the same on ", found - kMaxConnections, " more connections")});
  }
}

}  // namespace

std::string OperationText(const OperationInfo& info) {
  std::string text = absl::StrFormat("%s of %u x %s", service::FunctionWord(static_cast<int>(info.function)),
                                     info.count, service::DataTypeWord(info.data_type));
  // all_reduce, reduce and reduce_scatter are the ones that reduce.
  if (info.function == 1 || info.function == 2 || info.function == 5) {
    absl::StrAppend(&text, ", ", std::string(service::ReductionWord(info.reduction)));
  }
  if (info.root >= 0) absl::StrAppend(&text, info.function >= 9 ? ", peer " : ", root ", info.root);
  return text;
}

std::string LastCallText(const Process& process) {
  const Membership* last = nullptr;
  const Membership* last_p2p = nullptr;
  for (const Membership& membership : process.communicators) {
    if (membership.p2p_called.count != 0 &&
        (last_p2p == nullptr || membership.p2p_called.last_at_ns > last_p2p->p2p_called.last_at_ns)) {
      last_p2p = &membership;
    }
    if (membership.called.count == 0) continue;
    if (last == nullptr || membership.called.last_at_ns > last->called.last_at_ns) last = &membership;
  }
  if (last_p2p != nullptr && (last == nullptr || last_p2p->p2p_called.last_at_ns > last->called.last_at_ns)) {
    return service::Concat("send or receive ", last_p2p->p2p_called.count - 1, " (",
                           OperationText(last_p2p->last_p2p_called), ") of communicator ",
                           CommunicatorText(last_p2p->communicator_id));
  }
  if (last == nullptr) return "";
  return service::Concat("operation ", last->called.count - 1, " (", OperationText(last->last_called),
                         ") of communicator ", CommunicatorText(last->communicator_id));
}

std::vector<Evidence> HangEvidence(const JobSnapshot& snapshot, const HangCase& hang,
                                   const HangThresholds& thresholds) {
  std::vector<Evidence> evidence;
  evidence.push_back({"process-state", ProcessStateEvidence(hang)});
  evidence.push_back(CountersEvidence(hang));
  evidence.push_back({"waiting", WaitingEvidence(hang)});
  if (hang.communicator->calls_only) {
    evidence.push_back(
        {"calls only",
         "when NCCL's kernels begin and end is not seen on all ranks (profiler plugin, NCCL 2.27 "
         "or later): who has called what is all that this verdict goes by"});
  }
  AddConnections(snapshot, hang, &evidence);
  const Health& health = hang.culprit->process->health;
  if (!CannotRun(health.state) && health.last_progress_at_ns != kNever) {
    evidence.push_back(
        {"progress",
         service::Concat("its CPU time and I/O last moved ",
                         SecondsText(hang.culprit->host->as_of_ns - health.last_progress_at_ns), " ago")});
  }
  if (!CannotRun(health.state) && DoesIo(*hang.culprit, thresholds)) {
    evidence.push_back(
        {"progress", service::Concat(health.state == ProcessState::kBlocked
                                         ? "it is blocked in the kernel, as a rule by a file system or a disk"
                                         : "it reads or writes files",
                                     ": it is given ", SecondsText(thresholds.io_limit_ns),
                                     " before that counts as a hang")});
  }
  const int64_t usual_ns = hang.communicator->longest_standstill_ns;
  evidence.push_back(
      {"rhythm",
       service::Concat(
           "the communicator has stood still for ", SecondsText(hang.communicator->StandstillNs()), "; ",
           usual_ns == 0 ? std::string("no standstill of note is usual for it")
                         : service::Concat("the longest that is usual for it is ", SecondsText(usual_ns)),
           ", a suspicion begins after ", SecondsText(SuspectAfterNs(*hang.communicator, thresholds)))});
  return evidence;
}

std::string HangAction(const HangCase& hang) {
  const Process& process = *hang.culprit->process;
  const std::string& host = hang.culprit->host->name;
  const std::string isolate =
      service::Concat("isolate ", host, " and restart the job from its last checkpoint");
  const uint32_t pid = process.key.pid;
  switch (process.health.state) {
    case ProcessState::kStopped:
      return service::Concat("`kill -CONT ", pid, "` on ", host,
                             " lets the job go on; if it is stopped again, ", isolate);
    case ProcessState::kTraced:
      return service::Concat("detach the debugger that holds process ", pid, " on ", host,
                             " (TracerPid in /proc/", pid, "/status names it), or ", isolate);
    case ProcessState::kZombie:
    case ProcessState::kGone:
      return service::Concat(
          "process ", pid, " will not come back: look for its end in the job's output and in `dmesg` on ",
          host, " (out of memory, GPU error), then restart the job from its last checkpoint");
    case ProcessState::kBlocked:
      return service::Concat(
          "process ", pid, " on ", host, " waits in the kernel",
          process.health.wait_channel.empty() ? "" : service::Concat(" (", process.health.wait_channel, ")"),
          ": look at its file systems and devices; if they do not come back, ", isolate);
    default:
      return service::Concat("see what process ", pid, " on ", host, " does (`py-spy dump --pid ", pid,
                             "`, `gdb -p ", pid, "`): data loading or a checkpoint ends by itself; else ",
                             isolate);
  }
}

}  // namespace c4::c4d
