// What the API server of Kubernetes says of nodes, pods and leases, read; and the patches that C4 sends it
// (docs/recovery.md): taint, cordon and condition of a node, an event, an eviction, its own lease. Objects
// are read for what recovery wants to know of them; of a node's taints everything is kept, for a patch gives
// the whole list back.
//
// Pure: no network, no clock. InvalidArgument: it is no JSON, half of it, or not what was asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "c4d_master/recovery/model.h"
#include "service/status.h"

namespace c4::c4d::recovery {

extern const char kKubeTaint[];      // "c4.dev/isolated", of effect NoSchedule
extern const char kKubeCondition[];  // "C4Isolated"

struct KubeTaint {
  std::string key;
  std::string effect;
  std::string json;  // all of it
};

struct KubeNode {
  std::string name;
  std::string host;     // the label kubernetes.io/hostname, else the name
  std::string version;  // resourceVersion
  bool unschedulable = false;
  bool ready = false;
  std::optional<absl::Time> ready_since;  // or not ready
  bool ending = false;                    // it is being deleted
  bool condition = false;                 // ours, and True
  std::vector<KubeTaint> taints;
  std::string job;              // the annotation c4.dev/job: whose master isolated it
  bool cordoned_by_c4 = false;  // the annotation c4.dev/cordoned

  bool tainted() const;  // by C4, for whatever job
  bool IsOurs(const std::string& of_job) const { return tainted() && job == of_job; }
};
absl::StatusOr<KubeNode> ReadKubeNode(const std::string& json);

// One page of a list. `next`: the token that the next page is asked for by; empty: there is none.
struct KubeNodes {
  std::vector<KubeNode> items;
  std::string next;
};
absl::StatusOr<KubeNodes> ReadKubeNodes(const std::string& json);

struct KubePod {
  std::string name;
  std::string uid;
  std::string node;        // empty: not placed yet
  std::string controller;  // "Job"; empty: nobody makes it again
  bool over = false;       // Succeeded or Failed
  bool succeeded = false;
  bool ending = false;              // it is being deleted
  std::optional<uint32_t> attempt;  // JobSet's count of restarts
};
struct KubePods {
  std::vector<KubePod> items;
  std::string next;
};
absl::StatusOr<KubePods> ReadKubePods(const std::string& json);

struct KubeLeaseState {
  std::string version;
  std::string holder;   // empty: nobody
  std::string renewed;  // as it stands there
  int64_t duration_s = 0;
  uint32_t transitions = 0;
  // Our annotations. Incarnations as the master counts them.
  uint32_t asked = 0;    // whose begin was asked for last
  uint32_t begun = 0;    // for which all pods of before were evicted
  uint32_t counted = 0;  // what JobSet counts then; 0: nothing counts
  std::string pods;      // KubePodMarks of those to evict, while asked is above begun
};
absl::StatusOr<KubeLeaseState> ReadKubeLease(const std::string& json);

// What an answer other than 2xx says; empty: nothing that can be read.
std::string ReadKubeMessage(const std::string& json);
// Whether an answer of 2xx is an object of the API's at all.
absl::Status CheckKubeObject(const std::string& json);

// A few bytes for each pod's uid, sorted, so that the pods of an incarnation can be told from the next one's.
std::string KubePodMarks(const std::vector<KubePod>& pods);
class KubeMarked {
 public:
  explicit KubeMarked(absl::string_view marks);
  bool Has(const KubePod& pod) const { return marks_.contains(MarkOf(pod.uid)); }
  size_t size() const { return marks_.size(); }

 private:
  friend std::string KubePodMarks(const std::vector<KubePod>& pods);
  static std::string MarkOf(const std::string& uid);

  std::set<std::string, std::less<>> marks_;
};

// Merge patches, which hold only for the version of the node that was read.
std::string IsolatePatch(const KubeNode& node, const std::string& job, const std::string& reason);
std::string GiveBackPatch(const KubeNode& node);
// A strategic merge patch, of the subresource status.
std::string ConditionPatch(bool isolated, const std::string& message, absl::Time now);
std::string NodeEvent(const std::string& name, const KubeNode& node, bool isolated,
                      const std::string& message, absl::Time now);
// `grace_s`: how long its processes may take to end.
std::string EvictionBody(const std::string& kube_namespace, const KubePod& pod, int64_t grace_s);

// A new lease, and a merge patch of one: who holds it. The other: the annotations.
std::string LeaseBody(const std::string& kube_namespace, const std::string& name, const std::string& holder,
                      int64_t duration_s, absl::Time now);
std::string HoldPatch(const KubeLeaseState& lease, const std::string& holder, int64_t duration_s,
                      absl::Time now);
std::string RestartPatch(const KubeLeaseState& lease);

// `gone_after`: so long a node may be without being ready.
Event::Seen SightOf(const std::string& job, const KubeNode& node, bool in_use, absl::Duration gone_after,
                    absl::Time now);

// A name of an object: a DNS subdomain in lower case, fit for a path.
bool IsKubeName(absl::string_view text);
// A label's value that says as much of the text as one may; never empty.
std::string KubeLabelValue(absl::string_view text);
bool IsKubeLabelValue(absl::string_view text);
// "c4d-JOB", with what a name may not hold replaced and made different by a hash.
std::string KubeLeaseName(const std::string& job);
// For a query of an address.
std::string PercentEncoded(absl::string_view text);

}  // namespace c4::c4d::recovery
