#include "c4d_master/recovery/kube_driver.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "c4d_master/recovery/check_program.h"
#include "c4d_master/recovery/kube_api.h"
#include "c4d_master/recovery/kube_lease.h"
#include "c4d_master/recovery/kube_words.h"
#include "service/clock.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::c4d::recovery {
namespace {

using service::Concat;
using SteadyClock = std::chrono::steady_clock;

constexpr absl::Duration kNap = absl::Milliseconds(200);
constexpr absl::Duration kNoPods = absl::Seconds(3);  // so long may a controller take to make pods
constexpr absl::Duration kAfter =
    absl::Seconds(5);         // for the condition and the event, which are not the matter
constexpr int kPage = 250;    // objects
constexpr int kMaxLists = 4;  // that expired
constexpr int kMaxConflicts = 20;
constexpr size_t kMaxItems = 100'000;
constexpr size_t kMaxPods = 20'000;  // their marks stand in one annotation, of 256 KiB at most

DriverReply Done(uint32_t incarnation = 0) {
  return {.outcome = Event::Outcome::kDone, .text = "", .incarnation = incarnation};
}
DriverReply Refused(const std::string& why) {
  return {.outcome = Event::Outcome::kRefused, .text = service::ToUtf8(why)};
}
DriverReply Unknown(const std::string& why) {
  return {.outcome = Event::Outcome::kUnknown, .text = service::ToUtf8(why)};
}
DriverReply Of(const absl::Status& status) {
  const bool refused = absl::IsFailedPrecondition(status) || absl::IsNotFound(status);
  return refused ? Refused(std::string(status.message())) : Unknown(std::string(status.message()));
}

absl::Time Now() {
  return absl::FromUnixNanos(service::SystemClock().UnixNs());
}

class KubeDriver final : public Driver {
 public:
  KubeDriver(const KubernetesConfig& config, const std::string& job, const std::string& holder)
      : config_(config),
        job_(job),
        selector_(config.selector.empty() && IsKubeLabelValue(job) ? "c4.dev/job=" + job : config.selector),
        api_(config),
        lease_(&api_, config, config.lease.empty() ? KubeLeaseName(job) : config.lease,
               holder.empty() ? KubeHolder() : holder) {}

  DriverReply Run(const Command& command, absl::Duration timeout, const Stop& stop) override {
    const KubeDeadline deadline = {SteadyClock::now() + absl::ToChronoNanoseconds(timeout), stop};
    if (command.kind != Command::Kind::kRestart && !IsKubeName(absl::AsciiStrToLower(command.node)))
      return Refused("its name is none that Kubernetes gives");
    if (const absl::Status held = lease_.Hold(deadline); !held.ok()) return Of(held);
    switch (command.kind) {
      case Command::Kind::kIsolate:
        return Isolate(command, deadline);
      case Command::Kind::kRestart:
        return Restart(command, deadline);
      case Command::Kind::kCheck:
        return CheckByProgram(config_.check, "kubernetes", absl::AsciiStrToLower(command.node),
                              absl::FromChrono(deadline.until - SteadyClock::now()), stop);
      case Command::Kind::kGiveBack:
        return GiveBack(command, deadline);
    }
    return Unknown("a command that this driver does not know");
  }

  absl::StatusOr<Inventory> Look(absl::Duration timeout, const Stop& stop) override {
    const KubeDeadline deadline = {SteadyClock::now() + absl::ToChronoNanoseconds(timeout), stop};
    const absl::StatusOr<std::vector<KubePod>> pods = AskPods(deadline);
    if (!pods.ok()) return pods.status();
    std::set<std::string> in_use;
    for (const KubePod& pod : *pods) {
      if (!pod.over && !pod.node.empty()) in_use.insert(pod.node);
    }
    const absl::StatusOr<std::vector<KubeNode>> nodes = AskNodes(config_.node_selector, deadline);
    if (!nodes.ok()) return nodes.status();
    if (nodes->empty()) {
      return absl::UnavailableError(Concat("the cluster has no node of ", config_.node_selector,
                                           "; see \"node_selector\" of \"kubernetes\""));
    }
    Inventory inventory;
    for (const KubeNode& node : *nodes) {
      inventory.nodes.push_back(
          SightOf(job_, node, in_use.contains(node.name), absl::Nanoseconds(config_.gone_ns), Now()));
    }
    return inventory;
  }

 private:
  // All pages of a list. One that expired while it was read (410) is begun anew: half of each is neither.
  template <typename Page, typename Item>
  absl::StatusOr<std::vector<Item>> List(const std::string& path, const std::string& selector,
                                         const char* what, absl::StatusOr<Page> (*read)(const std::string&),
                                         const KubeDeadline& deadline) const {
    std::vector<Item> all;
    std::string next;
    int lists = 1;
    while (true) {
      std::string page = Concat(path, "?limit=", kPage);
      if (!selector.empty()) page += "&labelSelector=" + PercentEncoded(selector);
      if (!next.empty()) page += "&continue=" + PercentEncoded(next);
      const absl::StatusOr<std::string> text =
          api_.Ask({.method = "GET", .path = page, .body = "", .what = what}, deadline);
      if (absl::IsOutOfRange(text.status()) && lists++ < kMaxLists) {
        all.clear();
        next.clear();
        continue;
      }
      if (!text.ok()) return text.status();
      absl::StatusOr<Page> items = read(*text);
      if (!items.ok()) return items.status();
      if (all.size() + items->items.size() > kMaxItems)
        return absl::ResourceExhaustedError(Concat("the API server lists more than ", kMaxItems, " objects"));
      std::move(items->items.begin(), items->items.end(), std::back_inserter(all));
      if (items->next.empty()) return all;
      if (items->items.empty())
        return absl::InvalidArgumentError("the API server's answer is an empty page of a list that goes on");
      next = items->next;
    }
  }

  absl::StatusOr<std::vector<KubeNode>> AskNodes(const std::string& selector,
                                                 const KubeDeadline& deadline) const {
    return List<KubeNodes, KubeNode>("/api/v1/nodes", selector, "list nodes", ReadKubeNodes, deadline);
  }

  absl::StatusOr<std::vector<KubePod>> AskPods(const KubeDeadline& deadline) const {
    if (selector_.empty()) {
      return absl::FailedPreconditionError(
          Concat("the master's job, ", job_,
                 ", can be no label's value; give \"selector\" or \"jobset\" to \"kubernetes\""));
    }
    return List<KubePods, KubePod>(Concat("/api/v1/namespaces/", config_.kube_namespace, "/pods"), selector_,
                                   Concat("list pods in namespace ", config_.kube_namespace).c_str(),
                                   ReadKubePods, deadline);
  }

  // By its name, or the one that it has itself.
  absl::StatusOr<KubeNode> AskNode(const std::string& given, const KubeDeadline& deadline) const {
    const std::string name = absl::AsciiStrToLower(given);
    const absl::StatusOr<std::string> text = api_.Ask(
        {.method = "GET", .path = "/api/v1/nodes/" + name, .body = "", .what = "get nodes"}, deadline);
    if (text.ok()) {
      absl::StatusOr<KubeNode> node = ReadKubeNode(*text);
      if (node.ok() && node->name != name)
        return absl::InvalidArgumentError("the API server's answer is about another node");
      return node;
    }
    if (!absl::IsNotFound(text.status())) return text.status();
    if (IsKubeLabelValue(name)) {
      const auto nodes = AskNodes("kubernetes.io/hostname=" + name, deadline);
      if (!nodes.ok()) return nodes.status();
      if (nodes->size() == 1) return nodes->front();
    }
    return absl::NotFoundError(Concat("the cluster has no node ", name));
  }

  // Decides about a node as it is read, and changes that version of it: who was faster is looked at again.
  // `decide`: a patch, or the answer; `made`: the patch has done what it was for.
  using Decision = std::variant<std::string, DriverReply>;
  DriverReply Change(const std::string& name, const std::function<Decision(const KubeNode&)>& decide,
                     bool (*made)(const KubeNode&, const std::string& job), const KubeDeadline& deadline,
                     KubeNode* changed) const {
    for (int i = 0; i < kMaxConflicts; ++i) {
      const absl::StatusOr<KubeNode> node = AskNode(name, deadline);
      if (!node.ok()) return Of(node.status());
      *changed = *node;
      Decision decision = decide(*node);
      if (auto* reply = std::get_if<DriverReply>(&decision)) return *reply;
      // Reading may have taken long.
      if (!lease_.held()) return Unknown("the lease was lost meanwhile; see who holds it");
      const absl::StatusOr<std::string> text = api_.Ask({.method = "PATCH",
                                                         .path = "/api/v1/nodes/" + node->name,
                                                         .body = std::get<std::string>(decision),
                                                         .type = kMergePatch,
                                                         .what = "patch nodes"},
                                                        deadline);
      if (absl::IsAborted(text.status())) {
        deadline.Nap(kNap / 10);
        continue;
      }
      if (!text.ok()) return Of(text.status());
      // What came of it, not what was asked for: an admission controller may have changed it.
      const absl::StatusOr<KubeNode> now = ReadKubeNode(*text);
      if (!now.ok()) return Of(now.status());
      *changed = *now;
      if (made(*now, job_)) return Done();
      return Refused(Concat("the API server took the change of node ", node->name,
                            " and did not make it; see the cluster's admission controllers"));
    }
    return Unknown(Concat("node ", name, " is changed by somebody else all the time"));
  }

  DriverReply Isolate(const Command& command, const KubeDeadline& deadline) const {
    KubeNode node;
    const auto decide = [&](const KubeNode& read) -> Decision {
      // Out by somebody else's hand is out as well, and stays theirs. Ours that a person uncordoned is not
      // out.
      if (read.unschedulable || (read.tainted() && !read.IsOurs(job_))) return Done();
      return IsolatePatch(read, job_, command.reason);
    };
    const auto made = [](const KubeNode& now, const std::string& job) {
      return now.unschedulable && now.IsOurs(job);
    };
    const DriverReply reply = Change(command.node, decide, made, deadline, &node);
    if (reply.outcome == Event::Outcome::kDone && node.IsOurs(job_))
      Tell(node, true, command, Concat("C4 has taken it from job ", job_, ": ", command.reason), deadline);
    return reply;
  }

  DriverReply GiveBack(const Command& command, const KubeDeadline& deadline) const {
    KubeNode node;
    const auto decide = [&](const KubeNode& read) -> Decision {
      if (read.IsOurs(job_)) return GiveBackPatch(read);
      if (read.tainted())
        return Refused(
            Concat(read.name, " was isolated by C4 for job ", read.job, "; its master gives it back"));
      if (read.unschedulable) {
        return Refused(Concat(read.name,
                              " is cordoned by somebody else; it is theirs to give back (`kubectl uncordon ",
                              read.name, "`)"));
      }
      return Done();
    };
    const auto made = [](const KubeNode& now, const std::string& job) { return !now.IsOurs(job); };
    const DriverReply reply = Change(command.node, decide, made, deadline, &node);
    if (reply.outcome == Event::Outcome::kDone && node.condition)
      Tell(node, false, command, Concat("C4 has given it back: ", command.reason), deadline);
    return reply;
  }

  // For people and other programs; the node is out, or back, without it.
  void Tell(const KubeNode& node, bool isolated, const Command& command, const std::string& message,
            const KubeDeadline& deadline) const {
    const KubeDeadline short_time = {
        std::min(deadline.until, SteadyClock::now() + absl::ToChronoNanoseconds(kAfter)), deadline.stop};
    if (node.condition != isolated) {
      const absl::Status told = api_.Ask({.method = "PATCH",
                                          .path = Concat("/api/v1/nodes/", node.name, "/status"),
                                          .body = ConditionPatch(isolated, message, Now()),
                                          .type = kStrategicPatch,
                                          .what = "patch nodes/status"},
                                         short_time)
                                    .status();
      if (!told.ok())
        service::LogWarning("recovery: node ", node.name, " has no condition ", kKubeCondition, ": ",
                            std::string(told.message()));
    }
    // The same command again gives the same name, which is there already.
    const std::string name = Concat(node.name.substr(0, 150), ".", KubeLeaseName(job_), ".", command.id, ".",
                                    isolated ? "out" : "back");
    const absl::Status told = api_.Ask({.method = "POST",
                                        .path = "/api/v1/namespaces/default/events",
                                        .body = NodeEvent(name, node, isolated, message, Now()),
                                        .what = "create events in namespace default"},
                                       short_time)
                                  .status();
    if (!told.ok() && !absl::IsAborted(told))
      service::LogWarning("recovery: no event tells of node ", node.name, ": ", std::string(told.message()));
  }

  DriverReply Restart(const Command& command, const KubeDeadline& deadline) {
    for (int i = 0; i < kMaxConflicts; ++i) {
      absl::StatusOr<KubeLeaseState> state = lease_.Read(deadline);
      if (!state.ok()) return Of(state.status());
      if (state->begun == command.to) return Done(state->counted);
      if (state->begun > command.to || state->asked > command.to) {
        return Refused(Concat("it is late: incarnation ", std::max(state->begun, state->asked),
                              " has begun; where that was another job of this name, delete the job's lease"));
      }
      if (state->asked < command.to) {
        const absl::StatusOr<std::vector<KubePod>> pods = RunningPods(deadline);
        if (!pods.ok()) return Of(pods.status());
        state->asked = command.to;
        state->pods = KubePodMarks(*pods);
        state->counted = 0;
        for (const KubePod& pod : *pods) {
          if (pod.attempt) state->counted = std::max(state->counted, *pod.attempt + 1);
        }
        const absl::Status written = lease_.Write(*state, deadline);
        if (absl::IsAborted(written)) continue;  // renewed meanwhile, mostly
        if (!written.ok()) return Of(written);
      }
      const DriverReply evicted = Evict(KubeMarked(state->pods), deadline);
      if (evicted.outcome != Event::Outcome::kDone) return evicted;
      return WriteBegun(command, deadline);
    }
    return Unknown("the job's lease is changed by somebody else all the time");
  }

  DriverReply WriteBegun(const Command& command, const KubeDeadline& deadline) {
    for (int i = 0; i < kMaxConflicts; ++i) {
      absl::StatusOr<KubeLeaseState> state = lease_.Read(deadline);
      if (!state.ok()) return Of(state.status());
      if (state->asked != command.to) return Refused("it is late: another restart was asked for meanwhile");
      state->begun = command.to;
      state->pods.clear();
      const absl::Status written = lease_.Write(*state, deadline);
      if (written.ok()) return Done(state->counted);
      if (!absl::IsAborted(written)) return Of(written);
    }
    return Unknown("the job's lease is changed by somebody else all the time");
  }

  // Those that end with the incarnation. FailedPrecondition: it is not begun again by evicting them.
  absl::StatusOr<std::vector<KubePod>> RunningPods(const KubeDeadline& deadline) const {
    const SteadyClock::time_point patient_until = SteadyClock::now() + absl::ToChronoNanoseconds(kNoPods);
    absl::StatusOr<std::vector<KubePod>> pods = AskPods(deadline);
    while (pods.ok() && pods->empty() && SteadyClock::now() < patient_until && !deadline.over()) {
      deadline.Nap(kNap);
      if (!deadline.over()) pods = AskPods(deadline);
    }
    if (!pods.ok()) return pods.status();
    const auto refused = [](const std::string& why) { return absl::FailedPreconditionError(why); };
    if (pods->empty()) {
      return refused(Concat("namespace ", config_.kube_namespace, " has no pod of ", selector_,
                            "; see \"namespace\", \"selector\" and \"jobset\" of \"kubernetes\""));
    }
    if (std::all_of(pods->begin(), pods->end(), [](const KubePod& pod) { return pod.succeeded; }))
      return refused("all pods of the job have succeeded; it is not begun again");
    std::erase_if(*pods, [](const KubePod& pod) { return pod.over; });
    if (pods->size() > kMaxPods) return refused(Concat("the job has more than ", kMaxPods, " pods"));
    for (const KubePod& pod : *pods) {
      if (!pod.controller.empty()) continue;
      return refused(
          Concat("pod ", pod.name,
                 " has no controller that would make it again; run it by a Job, a JobSet or a StatefulSet"));
    }
    return pods;
  }

  // Those of the marked pods that are there still. A pod that is being deleted counts as evicted: its
  // controller makes another one, and a node that does not answer never says that it is gone.
  DriverReply Evict(const KubeMarked& marked, const KubeDeadline& deadline) {
    absl::StatusOr<std::vector<KubePod>> pods = AskPods(deadline);
    if (!pods.ok()) return Of(pods.status());
    std::erase_if(*pods,
                  [&marked](const KubePod& pod) { return pod.over || pod.ending || !marked.Has(pod); });
    std::string why;
    while (!pods->empty()) {
      std::vector<KubePod> later;
      absl::Duration pause = kNap;
      for (const KubePod& pod : *pods) {
        if (const absl::Status held = lease_.Hold(deadline); !held.ok()) return Of(held);
        absl::Duration retry_after = absl::ZeroDuration();
        const absl::Status evicted = EvictOne(pod, deadline, &retry_after);
        if (evicted.ok()) continue;
        if (!absl::IsResourceExhausted(evicted)) return Of(evicted);
        later.push_back(pod);
        pause = std::max(pause, retry_after);
        why = Concat(pod.name, " (", std::string(evicted.message()), ")");
      }
      pods = std::move(later);
      if (pods->empty()) break;
      deadline.Nap(pause);
      if (deadline.over()) {
        return Unknown(Concat(pods->size(), " of the job's pods may not be evicted yet, as ", why,
                              "; see its PodDisruptionBudget"));
      }
    }
    return Done();
  }

  absl::Status EvictOne(const KubePod& pod, const KubeDeadline& deadline, absl::Duration* retry_after) const {
    const absl::Status evicted =
        api_.Ask({.method = "POST",
                  .path =
                      Concat("/api/v1/namespaces/", config_.kube_namespace, "/pods/", pod.name, "/eviction"),
                  .body = EvictionBody(config_.kube_namespace, pod, config_.grace_ns / kSecond),
                  .what = Concat("create pods/eviction in namespace ", config_.kube_namespace),
                  .retry_after = retry_after},
                 deadline)
            .status();
    // It is gone, or its name is another pod's by now.
    if (absl::IsNotFound(evicted) || absl::IsAborted(evicted)) return absl::OkStatus();
    return evicted;
  }

  const KubernetesConfig config_;
  const std::string job_;
  const std::string selector_;
  const KubeApi api_;
  KubeLease lease_;
};

}  // namespace

std::unique_ptr<Driver> MakeKubeDriver(const KubernetesConfig& config, const std::string& job,
                                       const std::string& holder) {
  return std::make_unique<KubeDriver>(config, job, holder);
}

}  // namespace c4::c4d::recovery
