#include "fabric/inject/injector.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "fabric/emulator/command.h"

namespace c4::fabric {
namespace {

constexpr double kUsualSlowMbps = 20;     // where links are not shaped
constexpr double kUsualSlowPercent = 10;  // where hosts have no quota
// A link is worth breaking when it carries at least this share of what the busiest one does.
constexpr double kBusyShare = 0.05;
// How often a job is looked at until it communicates.
constexpr int kLooks = 6;

// A number stands for a process only as long as that lives: first it is held, then looked at.
absl::Status SignalOne(uid_t owner, pid_t pid, int signal) {
  const int held = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (held < 0 && errno == ESRCH) return absl::OkStatus();
  absl::Status done;
  if (held < 0) {
    done = absl::ErrnoToStatus(errno, absl::StrCat("cannot signal process ", pid));
  } else if (!IsOwners(owner, pid)) {
    done = absl::PermissionDeniedError(
        absl::StrCat("process ", pid, ", which the job's file names, is not of its owner, user ", owner,
                     ": nothing was done to it"));
  } else if (syscall(SYS_pidfd_send_signal, held, signal, nullptr, 0) != 0 && errno != ESRCH) {
    done = absl::ErrnoToStatus(errno, absl::StrCat("cannot signal process ", pid));
  }
  if (held >= 0) close(held);
  return done;
}

// All of them or, where one may not be, none of those after it.
absl::Status Signal(uid_t owner, const std::vector<pid_t>& pids, int signal) {
  for (const pid_t pid : pids) {
    if (absl::Status done = SignalOne(owner, pid, signal); !done.ok()) return done;
  }
  return absl::OkStatus();
}

// Bit `signal - 1` of SigCgt in /proc/PID/status.
bool Catches(pid_t pid, int signal) {
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(ReadText(absl::StrCat("/proc/", pid, "/status")), '\n'))) {
    uint64_t mask = 0;
    if (line.starts_with("SigCgt:\t") && absl::SimpleHexAtoi(line.substr(8), &mask)) {
      return (mask >> (signal - 1) & 1) != 0;
    }
  }
  return false;
}

const JobView::Rank* FindRank(const JobView& view, int rank) {
  for (const JobView::Rank& candidate : view.ranks) {
    if (candidate.rank == rank) return &candidate;
  }
  return nullptr;
}

}  // namespace

// Pauses processes again and again until it goes; they run when it has gone.
class Injector::Jitter {
 public:
  Jitter(uid_t owner, std::vector<pid_t> pids, double pause_ms, double every_ms)
      : owner_(owner), pids_(std::move(pids)), pause_(pause_ms), rest_(every_ms - pause_ms), thread_([this] {
          Run();
        }) {}
  ~Jitter() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  Jitter(const Jitter&) = delete;
  Jitter& operator=(const Jitter&) = delete;

 private:
  using Milliseconds = std::chrono::duration<double, std::milli>;

  bool Wait(Milliseconds time) {
    std::unique_lock lock(mutex_);
    return !wake_.wait_for(lock, time, [this] { return ending_; });
  }
  void Run() {
    bool going_on = true;
    while (going_on) {
      Signal(owner_, pids_, SIGSTOP).IgnoreError();
      going_on = Wait(pause_);
      Signal(owner_, pids_, SIGCONT).IgnoreError();
      if (going_on) going_on = Wait(rest_);
    }
  }

  const uid_t owner_;
  const std::vector<pid_t> pids_;
  const Milliseconds pause_, rest_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread thread_;
};

// A fault on its way: what Inject fills in step by step.
struct Injector::Choice {
  Applied applied;
  JobView view;
  std::optional<Fabric> fabric;
};

Injector::Injector(Options options) : options_(std::move(options)), random_(options_.seed) {}

Injector::~Injector() = default;

// Not std::uniform_int_distribution, whose results differ between standard libraries.
size_t Injector::Draw(size_t count) {
  return static_cast<size_t>(random_() % count);
}

absl::Status Injector::ChooseRank(Choice* choice) {
  std::string target = choice->applied.injection.target;
  int rank = -1;
  if (target.empty()) {
    rank = choice->view.ranks[Draw(choice->view.ranks.size())].rank;
  } else if (!absl::SimpleAtoi(target.starts_with("rank") ? target.substr(4) : target, &rank)) {
    rank = -1;
  }
  const JobView::Rank* found = FindRank(choice->view, rank);
  if (found == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("job ", choice->view.job, " has no rank '", target,
                                                   "': ranks are rank0 to rank",
                                                   choice->view.ranks.size() - 1));
  }
  Applied& applied = choice->applied;
  applied.injection.target = absl::StrCat("rank", rank);
  applied.ranks = {rank};
  applied.hosts = {found->host};
  applied.pids = ProcessesOfRank(*found);
  if (applied.pids.empty())
    return absl::FailedPreconditionError(absl::StrCat("rank ", rank, " is not running"));
  return absl::OkStatus();
}

absl::Status Injector::ChooseHost(Choice* choice) {
  Applied& applied = choice->applied;
  std::set<int> in_use;
  for (const JobView::Rank& rank : choice->view.ranks) in_use.insert(rank.host);
  std::string& target = applied.injection.target;
  int host = -1;
  if (target.empty()) {
    const std::vector<int> hosts(in_use.begin(), in_use.end());
    host = hosts[Draw(hosts.size())];
  } else if (target.starts_with("rank")) {
    int rank = -1;
    if (absl::SimpleAtoi(target.substr(4), &rank) && FindRank(choice->view, rank) != nullptr) {
      host = FindRank(choice->view, rank)->host;
    }
  } else if (!absl::SimpleAtoi(target.starts_with("host") ? target.substr(4) : target, &host)) {
    host = -1;
  }
  if (!in_use.contains(host)) {
    return absl::InvalidArgumentError(absl::StrCat("no rank of job ", choice->view.job, " runs on '", target,
                                                   "': hosts in use are host0 to host", *in_use.rbegin()));
  }
  target = HostName(host);
  applied.hosts = {host};
  for (const JobView::Rank& rank : choice->view.ranks) {
    if (rank.host == host) applied.ranks.push_back(rank.rank);
  }
  return absl::OkStatus();
}

absl::Status Injector::ChooseLink(Choice* choice, bool look_at_traffic) {
  Applied& applied = choice->applied;
  const FabricSpec& spec = choice->fabric->spec();
  std::string& target = applied.injection.target;
  if (target.empty() && !look_at_traffic) return absl::OkStatus();
  if (target.empty()) {
    // What moves now; of a job that pauses for long, what has moved.
    std::map<std::string, uint64_t> bytes;
    for (int look = 0; look < kLooks && bytes.empty(); ++look) {
      const absl::StatusOr<std::vector<Flow>> flows = FlowsOf(spec, choice->view);
      if (!flows.ok()) return flows.status();
      for (const Flow& flow : *flows) {
        const uint64_t carried = look + 1 < kLooks ? flow.moved_bytes : flow.sent_bytes;
        for (const Link& link : flow.data.links) {
          if (link.kind == Link::Kind::kUplink && carried > 0) bytes[LinkName(link)] += carried;
        }
      }
    }
    uint64_t most = 0;
    for (const auto& [name, moved] : bytes) most = std::max(most, moved);
    std::erase_if(bytes, [most](const auto& entry) {
      return static_cast<double>(entry.second) < kBusyShare * static_cast<double>(most);
    });
    if (bytes.empty()) {
      return absl::FailedPreconditionError(absl::StrCat("no leaf-spine link has carried data of job ",
                                                        choice->view.job,
                                                        " yet: wait until it communicates, or name a link"));
    }
    target = std::next(bytes.begin(), static_cast<std::ptrdiff_t>(Draw(bytes.size())))->first;
  }
  const absl::StatusOr<std::vector<Link>> links = ParseLink(spec, target);
  if (!links.ok()) return links.status();
  if (TargetOf(applied.injection.kind) == TargetKind::kUplink && links->front().kind != Link::Kind::kUplink) {
    return absl::InvalidArgumentError(absl::StrCat(KindName(applied.injection.kind),
                                                   " takes a leaf-spine link, not '", target,
                                                   "'; slow-nic slows a host's"));
  }
  applied.links = *links;
  return absl::OkStatus();
}

absl::StatusOr<Injector::Choice> Injector::Choose(const Injection& injection, bool look_at_traffic) {
  if (absl::Status fault = CheckInjection(injection); !fault.ok()) return fault;
  absl::StatusOr<JobView> view = FindJob(options_.base_dir, options_.job);
  if (!view.ok()) return view.status();
  if (view->ranks.empty()) return absl::FailedPreconditionError("the job has no ranks yet");
  Choice choice;
  choice.applied.injection = injection;
  choice.applied.incarnation = view->incarnation;
  choice.applied.fabric = view->fabric;
  choice.applied.owner = view->owner;
  choice.view = *std::move(view);
  if (NeedsFabric(injection.kind)) {
    if (choice.view.fabric.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("job ", choice.view.job, " runs over loopback: ", KindName(injection.kind),
                       " needs a job that was started with `c4 run --fabric`"));
    }
    if (absl::Status fault = CheckRights(); !fault.ok()) return fault;
  }
  if (!choice.view.fabric.empty() && CheckRights().ok()) {
    absl::StatusOr<Fabric> fabric = Fabric::Open(choice.view.fabric);
    if (!fabric.ok()) return fabric.status();
    choice.fabric = *std::move(fabric);
  }
  absl::Status chosen;
  switch (TargetOf(injection.kind)) {
    case TargetKind::kRank:
      chosen = ChooseRank(&choice);
      break;
    case TargetKind::kHost:
      chosen = ChooseHost(&choice);
      break;
    case TargetKind::kUplink:
    case TargetKind::kAnyLink:
      chosen = ChooseLink(&choice, look_at_traffic);
      break;
  }
  if (!chosen.ok()) return chosen;
  return choice;
}

absl::Status Injector::Check(const Injection& injection) {
  const std::mt19937_64 before = random_;
  absl::Status status = Choose(injection, /*look_at_traffic=*/false).status();
  random_ = before;
  return status;
}

absl::StatusOr<Applied> Injector::Inject(const Injection& injection) {
  absl::StatusOr<Choice> choice = Choose(injection, /*look_at_traffic=*/true);
  if (!choice.ok()) return choice.status();
  Applied& applied = choice->applied;
  Injection& chosen = applied.injection;
  if (choice->fabric.has_value()) {
    const FabricSpec& spec = choice->fabric->spec();
    if (chosen.kind == Kind::kSlowNic || chosen.kind == Kind::kNodeLoss) {
      for (int port = 0; port < PortsPerHost(spec); ++port) {
        applied.links.push_back(HostLinkOf(spec, applied.hosts.front(), port));
      }
    }
    const bool slows = chosen.kind == Kind::kSlowLink || chosen.kind == Kind::kSlowNic;
    if (slows && chosen.rate_mbps == 0) {
      chosen.rate_mbps = spec.rate_mbps > 0 ? spec.rate_mbps / 10 : kUsualSlowMbps;
    }
    if (chosen.kind == Kind::kSlowRank && chosen.percent == 0) {
      const double quota_percent = HostQuotaPercent(spec, applied.hosts.front());
      chosen.percent = quota_percent > 0 ? quota_percent / 3 : kUsualSlowPercent;
    }
    // Before the fault: afterwards the tables may tell another story.
    if (!applied.links.empty()) {
      absl::StatusOr<std::vector<Flow>> flows = FlowsOf(spec, choice->view);
      if (!flows.ok()) return flows.status();
      for (Flow& flow : *flows) {
        const bool met = std::any_of(applied.links.begin(), applied.links.end(), [&](const Link& link) {
          return Takes(flow.data, link) || Takes(flow.acks, link);
        });
        if (met) applied.flows.push_back(std::move(flow));
      }
    }
  }
  applied.id = ++last_id_;
  applied.unix_s = UnixNow();
  if (absl::Status done = Apply(&*choice); !done.ok()) {
    Undo(applied).IgnoreError();
    return done;
  }
  applied.done_unix_s = UnixNow();
  if (!EndsTheJob(chosen.kind)) in_force_[applied.id] = applied;
  if (absl::Status written = AppendPlan(AppliedJson(applied)); !written.ok()) return written;
  return applied;
}

absl::Status Injector::Apply(Choice* choice) {
  Applied& applied = choice->applied;
  const Injection& injection = applied.injection;
  switch (injection.kind) {
    case Kind::kStop:
      return Signal(applied.owner, applied.pids, SIGSTOP);
    case Kind::kKill:
      return Signal(applied.owner, applied.pids, SIGKILL);
    case Kind::kMismatch: {
      std::erase_if(applied.pids, [](pid_t pid) { return !Catches(pid, SIGUSR2); });
      if (applied.pids.empty()) {
        return absl::FailedPreconditionError(absl::StrCat(
            injection.target,
            " does not handle SIGUSR2, which would end it: only the example trainer can be told to "
            "call a collective with another count"));
      }
      return Signal(applied.owner, applied.pids, SIGUSR2);
    }
    case Kind::kJitter:
      jitter_[applied.id] =
          std::make_unique<Jitter>(applied.owner, applied.pids, injection.pause_ms, injection.every_ms);
      return absl::OkStatus();
    case Kind::kAgentStop:
    case Kind::kNodeLoss: {
      const size_t host = static_cast<size_t>(applied.hosts.front());
      const pid_t agent = host < choice->view.agents.size() ? choice->view.agents[host] : 0;
      if (agent != 0) applied.pids.push_back(agent);
      if (injection.kind == Kind::kAgentStop) {
        if (agent == 0) return absl::FailedPreconditionError("the job has no agent there");
        return Signal(applied.owner, applied.pids, SIGSTOP);
      }
      for (const int rank : applied.ranks) {
        const std::vector<pid_t> pids = ProcessesOfRank(*FindRank(choice->view, rank));
        applied.pids.insert(applied.pids.end(), pids.begin(), pids.end());
      }
      if (absl::Status done = choice->fabric->Isolate(applied.hosts.front(), true); !done.ok()) return done;
      if (absl::Status done = choice->fabric->Cut(injection.target); !done.ok()) return done;
      return Signal(applied.owner, applied.pids, SIGSTOP);
    }
    case Kind::kSlowRank:
      return choice->fabric->SetQuota(applied.hosts.front(), injection.percent);
    case Kind::kSlowLink:
    case Kind::kSlowNic:
      return choice->fabric->Slow(injection.target, injection.rate_mbps);
    case Kind::kCut:
      return choice->fabric->Cut(injection.target);
  }
  return absl::InternalError("unknown kind");
}

absl::Status Injector::Undo(const Applied& applied) {
  const Injection& injection = applied.injection;
  jitter_.erase(applied.id);
  if (EndsTheJob(injection.kind) || injection.kind == Kind::kJitter) return absl::OkStatus();
  if (NeedsFabric(injection.kind)) {
    absl::StatusOr<Fabric> fabric = Fabric::Open(applied.fabric);
    if (absl::IsNotFound(fabric.status())) return absl::OkStatus();  // it went with the job that made it
    if (!fabric.ok()) return fabric.status();
    absl::Status done;
    if (injection.kind == Kind::kSlowRank) done = fabric->SetQuota(applied.hosts.front(), -1);
    if (injection.kind == Kind::kSlowLink || injection.kind == Kind::kSlowNic) {
      done = fabric->Heal(injection.target, FaultKind::kSlow);
    }
    if (injection.kind == Kind::kCut || injection.kind == Kind::kNodeLoss) {
      done = fabric->Heal(injection.target, FaultKind::kCut);
    }
    if (done.ok() && injection.kind == Kind::kNodeLoss) done = fabric->Isolate(applied.hosts.front(), false);
    if (!done.ok()) return done;
  }
  return Signal(applied.owner, applied.pids, SIGCONT);
}

absl::Status Injector::Heal(int id) {
  const auto found = in_force_.find(id);
  if (found == in_force_.end()) return absl::NotFoundError(absl::StrCat("no fault ", id, " is in force"));
  const Applied applied = found->second;
  in_force_.erase(found);
  if (absl::Status done = Undo(applied); !done.ok()) return done;
  return AppendPlan(HealedJson(applied, UnixNow()));
}

absl::Status Injector::HealAll() {
  absl::Status first;
  while (!in_force_.empty()) {
    const absl::Status done = Heal(in_force_.rbegin()->first);
    if (first.ok()) first = done;
  }
  return first;
}

absl::Status HealJob(const std::string& base_dir, const std::string& job) {
  const absl::StatusOr<JobView> view = FindJob(base_dir, job);
  if (!view.ok()) return view.status();
  absl::Status first;
  if (!view->fabric.empty()) {
    absl::StatusOr<Fabric> fabric = Fabric::Open(view->fabric);
    first = fabric.ok() ? fabric->HealAll() : fabric.status();
  }
  for (const JobView::Rank& rank : view->ranks) {
    const absl::Status done = Signal(view->owner, ProcessesOfRank(rank), SIGCONT);
    if (first.ok()) first = done;
  }
  for (const pid_t agent : view->agents) {
    if (agent == 0) continue;
    const absl::Status done = Signal(view->owner, {agent}, SIGCONT);
    if (first.ok()) first = done;
  }
  return first;
}

}  // namespace c4::fabric
