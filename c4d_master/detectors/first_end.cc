#include "c4d_master/detectors/first_end.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <sys/wait.h>
#include <unordered_map>

#include "ccl/include/nccl.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr int64_t kExactNs = kSecondNs / 1000;     // of a time that was seen as it passed
constexpr int64_t kStatusNs = 3 * kSecondNs / 10;  // within which an agent tells how a process ended
constexpr int kShellSignal = 128;                  // a shell's exit status for a child that a signal killed

bool IsFromOutside(int signal) {
  return signal == SIGTERM || signal == SIGKILL || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
}

// Results that tell of the rank itself. A lost peer, or a call that does not match others', tells of somebody
// else.
bool IsOwnFault(int32_t result) {
  return result == ncclUnhandledCudaError || result == ncclSystemError || result == ncclInternalError;
}

Manner MannerOfStatus(int32_t status) {
  if (WIFSIGNALED(status)) return IsFromOutside(WTERMSIG(status)) ? Manner::kOutside : Manner::kOwn;
  const int code = WEXITSTATUS(status);
  if (code == 0) return Manner::kInOrder;
  return code > kShellSignal && IsFromOutside(code - kShellSignal) ? Manner::kOutside : Manner::kOwn;
}

bool GaveUpPhase(const Membership& membership) {
  return membership.phase == Phase::kFailed || membership.phase == Phase::kAborted;
}

// Whether it had been inside an operation for `wait_ns` by then.
bool WaitedFor(const Process& process, int64_t at_ns, int64_t wait_ns) {
  return std::any_of(process.communicators.begin(), process.communicators.end(), [&](const Membership& m) {
    const bool collective = m.started.count > m.finished.count && at_ns - m.started.last_at_ns >= wait_ns;
    return collective ||
           (m.p2p_started.count > m.p2p_finished.count && at_ns - m.p2p_started.last_at_ns >= wait_ns);
  });
}

const char* SignalName(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? "?" : name;
}

}  // namespace

const Membership* LastWords(const Process& process) {
  const Membership* first = nullptr;
  for (const Membership& membership : process.communicators) {
    if (membership.gave_up.at_ns == kNever) continue;
    if (first == nullptr || membership.gave_up.at_ns < first->gave_up.at_ns) first = &membership;
  }
  return first;
}

End EndOf(const JobSnapshot& snapshot, uint32_t process, int64_t look_ns, int64_t wait_ns) {
  const ProcessRef& ref = snapshot.processes[process];
  const Health& health = ref.process->health;
  const bool exact = health.exit_at_ns != kNever;
  End end;
  end.process = process;
  end.at_ns = exact ? health.exit_at_ns : health.state_since_at_ns;
  end.error_ns = exact ? ref.host->clock_error_ns.value_or(look_ns) + kExactNs : look_ns;
  if (health.exit_status.has_value()) end.manner = MannerOfStatus(*health.exit_status);
  if (DiedForMemory(ref)) end.manner = Manner::kOwn;
  const Membership* const words = LastWords(*ref.process);
  if (words != nullptr && words->gave_up.at_ns < end.at_ns) {
    // A program that aborts its communicators and ends has found a fault, its own or that of others: who does
    // so first, and has not waited for anybody, has found its own.
    const bool aborted =
        words->gave_up.result == ncclSuccess && !WaitedFor(*ref.process, words->gave_up.at_ns, wait_ns);
    if (IsOwnFault(words->gave_up.result)) {
      end.manner = Manner::kOwn;
    } else if (!aborted) {
      end.manner = Manner::kVictim;
    }
    if (end.manner != Manner::kVictim) end.at_ns = words->gave_up.at_ns;
  } else if (words == nullptr &&
             std::any_of(ref.process->communicators.begin(), ref.process->communicators.end(), GaveUpPhase)) {
    end.manner = Manner::kVictim;  // the library does not say more
  }
  return end;
}

bool EndedBefore(const JobSnapshot& snapshot, const End& a, const End& b) {
  // One host has one clock; what an agent did not see exactly is off by its looks.
  const auto error_ns = [&](const End& end) {
    const ProcessRef& ref = snapshot.processes[end.process];
    const bool same =
        ref.host == snapshot.processes[a.process].host && ref.host == snapshot.processes[b.process].host;
    return same && ref.process->health.exit_at_ns != kNever ? kExactNs : end.error_ns;
  };
  return b.at_ns - a.at_ns > std::max(error_ns(a), error_ns(b));
}

std::vector<End> FirstOf(const JobSnapshot& snapshot, const std::vector<End>& ends) {
  // Nobody can be before whom the earliest of a host is not: as many to be compared as there are hosts, and
  // for who is not among the first the earliest of all is nearly always enough.
  std::unordered_map<const Host*, const End*> of_host;
  for (const End& end : ends) {
    const End*& earliest = of_host.try_emplace(snapshot.processes[end.process].host, &end).first->second;
    if (end.at_ns < earliest->at_ns) earliest = &end;
  }
  std::vector<const End*> earliest;
  earliest.reserve(of_host.size());
  for (const auto& entry : of_host) earliest.push_back(entry.second);
  std::sort(earliest.begin(), earliest.end(), [](const End* a, const End* b) { return a->at_ns < b->at_ns; });
  std::vector<End> first;
  for (const End& end : ends) {
    const auto later = std::partition_point(earliest.begin(), earliest.end(),
                                            [&](const End* other) { return other->at_ns < end.at_ns; });
    if (std::none_of(earliest.begin(), later,
                     [&](const End* other) { return EndedBefore(snapshot, *other, end); })) {
      first.push_back(end);
    }
  }
  return first;
}

bool IsHeardWhole(const JobSnapshot& snapshot, const End& end, int64_t after_ns) {
  const ProcessRef& own = snapshot.processes[end.process];
  const Health& health = own.process->health;
  if (!health.exit_status.has_value() && own.host->as_of_ns - health.state_since_at_ns < kStatusNs)
    return false;
  return std::all_of(snapshot.processes.begin(), snapshot.processes.end(), [&](const ProcessRef& ref) {
    return ref.stale || ref.process->ended || ref.host->as_of_ns >= end.at_ns + after_ns;
  });
}

bool DiedForMemory(const ProcessRef& ref) {
  constexpr int64_t kNearNs = 10 * kSecondNs;  // much memory takes the kernel a while to give back
  const Health& health = ref.process->health;
  const int64_t ended_ns = health.exit_at_ns != kNever ? health.exit_at_ns : health.state_since_at_ns;
  return std::any_of(ref.host->memory_kills.begin(), ref.host->memory_kills.end(), [&](const auto& kill) {
    return kill.first == ref.process->key.pid && std::abs(kill.second - ended_ns) <= kNearNs;
  });
}

std::string ExitText(const ProcessRef& ref) {
  if (DiedForMemory(ref)) return "killed by the kernel for want of memory";
  const Process& process = *ref.process;
  if (!process.health.exit_status.has_value()) return "gone";
  const int32_t status = *process.health.exit_status;
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return Concat("killed by SIG", SignalName(signal), " (signal ", signal,
                  WCOREDUMP(status) ? ", core dumped)" : ")");
  }
  return Concat("exited with status ", WEXITSTATUS(status));
}

std::string WhereToLook(const ProcessRef& ref) {
  const Process& process = *ref.process;
  if (DiedForMemory(ref)) {
    return "what took its host's memory, or its control group's (`dmesg`): its own data, or who else ran "
           "there";
  }
  const Membership* const words = LastWords(process);
  if (words != nullptr && words->gave_up.result == ncclUnhandledCudaError) {
    return "its output for the CUDA error, and its host's `dmesg` for an Xid of its GPU";
  }
  const std::optional<int32_t> status = process.health.exit_status;
  if (!status.has_value()) return "the job's output, and its host's `dmesg` (out of memory, GPU error)";
  if (!WIFSIGNALED(*status)) return "its own output: it ended itself, in Python by an exception as a rule";
  switch (WTERMSIG(*status)) {
    case SIGKILL:
      return "its host's `dmesg`: the kernel kills so for want of memory (or somebody did)";
    case SIGBUS:
      return "room in /dev/shm and memory errors in its host's `dmesg`";
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
    case SIGQUIT:
      return "who ended it: its launcher's log, the scheduler";
    default:
      return "its own output and its core dump (`coredumpctl`): it ended by a fault of its own";
  }
}

}  // namespace c4::c4d
