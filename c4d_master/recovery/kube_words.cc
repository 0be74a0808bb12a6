#include "c4d_master/recovery/kube_words.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "c4d_master/json_fields.h"
#include "service/text.h"

namespace c4::c4d::recovery {

using service::Concat;
using Json = nlohmann::json;

const char kKubeTaint[] = "c4.dev/isolated";
const char kKubeCondition[] = "C4Isolated";

namespace {

constexpr char kJobKey[] = "c4.dev/job";
constexpr char kReasonKey[] = "c4.dev/reason";
constexpr char kCordonedKey[] = "c4.dev/cordoned";
constexpr char kAskedKey[] = "c4.dev/asked";
constexpr char kBegunKey[] = "c4.dev/begun";
constexpr char kCountedKey[] = "c4.dev/counted";
constexpr char kPodsKey[] = "c4.dev/pods";
constexpr char kAttemptLabel[] = "jobset.sigs.k8s.io/restart-attempt";
constexpr char kHostLabel[] = "kubernetes.io/hostname";
constexpr char kNoSchedule[] = "NoSchedule";
constexpr size_t kMaxName = 253;
constexpr size_t kMaxLabel = 63;
constexpr size_t kMaxText = 500;
constexpr size_t kMarkBytes = 8;
constexpr int kMarkBits = 48;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Readers that take what is missing, null or of another type for nothing.
const Json& At(const Json& json, const char* key) {
  static const Json kNothing;
  if (!json.is_object()) return kNothing;
  const auto found = json.find(key);
  return found == json.end() ? kNothing : *found;
}
std::string Text(const Json& json, const char* key) {
  const Json& value = At(json, key);
  return value.is_string() ? value.get<std::string>() : "";
}
bool Flag(const Json& json, const char* key) {
  const Json& value = At(json, key);
  return value.is_boolean() && value.get<bool>();
}
uint32_t Number(const std::string& text) {
  uint32_t number = 0;
  return absl::SimpleAtoi(text, &number) ? number : 0;
}

absl::Status Half(const std::string& what) {
  return absl::InvalidArgumentError(Concat("the API server's answer cannot be read: ", what));
}

absl::StatusOr<Json> Object(const std::string& text, const char* kind) {
  absl::StatusOr<Json> json = ParseJsonObject(text);
  if (!json.ok()) return Half(std::string(json.status().message()));
  const std::string given = Text(*json, "kind");
  if (given != kind) return Half(Concat("it is of kind \"", service::ToUtf8(given), "\", not ", kind));
  return json;
}

absl::StatusOr<KubeNode> NodeOf(const Json& json) {
  const Json& meta = At(json, "metadata");
  KubeNode node;
  node.name = Text(meta, "name");
  node.version = Text(meta, "resourceVersion");
  if (!IsKubeName(node.name) || node.version.empty()) return Half("a node without a name and a version");
  node.host = Text(At(meta, "labels"), kHostLabel);
  if (!IsKubeName(node.host)) node.host = node.name;
  node.ending = !At(meta, "deletionTimestamp").is_null();
  node.job = Text(At(meta, "annotations"), kJobKey);
  node.cordoned_by_c4 = Text(At(meta, "annotations"), kCordonedKey) == "true";
  node.unschedulable = Flag(At(json, "spec"), "unschedulable");
  const Json& taints = At(At(json, "spec"), "taints");
  if (!taints.is_null() && !taints.is_array()) return Half("a node whose taints are no list");
  for (const Json& item : taints) {
    if (Text(item, "key").empty()) return Half("a taint without a key");
    node.taints.push_back({Text(item, "key"), Text(item, "effect"), Dump(item)});
  }
  for (const Json& item : At(At(json, "status"), "conditions")) {
    const bool is_true = Text(item, "status") == "True";
    if (Text(item, "type") == kKubeCondition) node.condition = is_true;
    if (Text(item, "type") != "Ready") continue;
    node.ready = is_true;
    absl::Time since;
    std::string error;
    if (absl::ParseTime(absl::RFC3339_full, Text(item, "lastTransitionTime"), &since, &error))
      node.ready_since = since;
  }
  return node;
}

absl::StatusOr<KubePod> PodOf(const Json& json) {
  const Json& meta = At(json, "metadata");
  KubePod pod;
  pod.name = Text(meta, "name");
  pod.uid = Text(meta, "uid");
  if (!IsKubeName(pod.name) || pod.uid.empty()) return Half("a pod without a name and a uid");
  pod.node = Text(At(json, "spec"), "nodeName");
  const std::string phase = Text(At(json, "status"), "phase");
  pod.succeeded = phase == "Succeeded";
  pod.over = pod.succeeded || phase == "Failed";
  pod.ending = !At(meta, "deletionTimestamp").is_null();
  for (const Json& owner : At(meta, "ownerReferences")) {
    if (Flag(owner, "controller")) pod.controller = Text(owner, "kind");
  }
  uint32_t attempt = 0;
  if (absl::SimpleAtoi(Text(At(meta, "labels"), kAttemptLabel), &attempt)) pod.attempt = attempt;
  return pod;
}

template <typename Page, typename Reader>
absl::StatusOr<Page> PageOf(const std::string& text, const char* kind, Reader reader) {
  const absl::StatusOr<Json> json = Object(text, kind);
  if (!json.ok()) return json.status();
  const Json& items = At(*json, "items");
  if (!items.is_array() && !(items.is_null() && json->contains("items"))) return Half("a list without items");
  Page page;
  page.next = Text(At(*json, "metadata"), "continue");
  for (const Json& item : items) {
    auto read = reader(item);
    if (!read.ok()) return read.status();
    page.items.push_back(*std::move(read));
  }
  return page;
}

Json Taints(const KubeNode& node, bool with_ours) {
  Json taints = Json::array();
  for (const KubeTaint& taint : node.taints) {
    if (taint.key == kKubeTaint && !with_ours) continue;
    Json item = Json::parse(taint.json, nullptr, false);
    if (!item.is_discarded()) taints.push_back(std::move(item));
  }
  return taints;
}

std::string Seconds(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(absl::ToUnixSeconds(time)),
                          absl::UTCTimeZone());
}
std::string Microseconds(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
}

Json HoldSpec(const std::string& holder, int64_t duration_s, absl::Time now) {
  return {{"holderIdentity", holder}, {"leaseDurationSeconds", duration_s}, {"renewTime", Microseconds(now)}};
}

uint64_t HashOf(absl::string_view text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

bool IsLowerNameCharacter(char c) {
  return absl::ascii_islower(static_cast<unsigned char>(c)) ||
         absl::ascii_isdigit(static_cast<unsigned char>(c));
}

}  // namespace

bool KubeNode::tainted() const {
  return std::any_of(taints.begin(), taints.end(),
                     [](const KubeTaint& taint) { return taint.key == kKubeTaint; });
}

absl::StatusOr<KubeNode> ReadKubeNode(const std::string& text) {
  const absl::StatusOr<Json> json = Object(text, "Node");
  if (!json.ok()) return json.status();
  return NodeOf(*json);
}

absl::StatusOr<KubeNodes> ReadKubeNodes(const std::string& text) {
  return PageOf<KubeNodes>(text, "NodeList", NodeOf);
}

absl::StatusOr<KubePods> ReadKubePods(const std::string& text) {
  return PageOf<KubePods>(text, "PodList", PodOf);
}

absl::StatusOr<KubeLeaseState> ReadKubeLease(const std::string& text) {
  const absl::StatusOr<Json> json = Object(text, "Lease");
  if (!json.ok()) return json.status();
  const Json& meta = At(*json, "metadata");
  const Json& spec = At(*json, "spec");
  KubeLeaseState lease;
  lease.version = Text(meta, "resourceVersion");
  if (lease.version.empty()) return Half("a lease without a version");
  lease.holder = Text(spec, "holderIdentity");
  lease.renewed = Text(spec, "renewTime");
  const Json& duration = At(spec, "leaseDurationSeconds");
  if (duration.is_number_integer())
    lease.duration_s = std::clamp<int64_t>(duration.get<int64_t>(), 0, 86'400);
  const Json& transitions = At(spec, "leaseTransitions");
  if (transitions.is_number_integer())
    lease.transitions =
        static_cast<uint32_t>(std::clamp<int64_t>(transitions.get<int64_t>(), 0, 1'000'000'000));
  const Json& notes = At(meta, "annotations");
  lease.asked = Number(Text(notes, kAskedKey));
  lease.begun = Number(Text(notes, kBegunKey));
  lease.counted = Number(Text(notes, kCountedKey));
  lease.pods = Text(notes, kPodsKey);
  return lease;
}

std::string ReadKubeMessage(const std::string& text) {
  const absl::StatusOr<Json> json = ParseJsonObject(text);
  if (!json.ok()) return "";
  return service::ToUtf8(Text(*json, "message").substr(0, kMaxText));
}

absl::Status CheckKubeObject(const std::string& text) {
  const absl::StatusOr<Json> json = ParseJsonObject(text);
  if (!json.ok()) return Half(std::string(json.status().message()));
  return Text(*json, "kind").empty() ? Half("it is no object of the API") : absl::OkStatus();
}

std::string KubeMarked::MarkOf(const std::string& uid) {
  const uint64_t hash = HashOf(uid);
  std::string bytes;
  for (int bit = 0; bit < kMarkBits; bit += 8) bytes.push_back(static_cast<char>(hash >> bit));
  return absl::WebSafeBase64Escape(bytes);
}

KubeMarked::KubeMarked(absl::string_view marks) {
  for (; marks.size() >= kMarkBytes; marks.remove_prefix(kMarkBytes))
    marks_.emplace(marks.substr(0, kMarkBytes));
}

std::string KubePodMarks(const std::vector<KubePod>& pods) {
  std::set<std::string> marks;
  for (const KubePod& pod : pods) marks.insert(KubeMarked::MarkOf(pod.uid));
  return absl::StrJoin(marks, "");
}

std::string IsolatePatch(const KubeNode& node, const std::string& job, const std::string& reason) {
  Json taints = Taints(node, false);
  const absl::string_view verdict = reason;
  taints.push_back({{"key", kKubeTaint},
                    {"value", KubeLabelValue(absl::StripPrefix(verdict, "verdict "))},
                    {"effect", kNoSchedule}});
  return Dump({{"metadata",
                {{"resourceVersion", node.version},
                 {"annotations",
                  {{kJobKey, job},
                   {kReasonKey, service::ToUtf8(reason.substr(0, kMaxText))},
                   {kCordonedKey, "true"}}}}},
               {"spec", {{"unschedulable", true}, {"taints", std::move(taints)}}}});
}

std::string GiveBackPatch(const KubeNode& node) {
  Json spec = {{"taints", Taints(node, false)}};
  if (node.cordoned_by_c4) spec["unschedulable"] = nullptr;
  return Dump({{"metadata",
                {{"resourceVersion", node.version},
                 {"annotations", {{kJobKey, nullptr}, {kReasonKey, nullptr}, {kCordonedKey, nullptr}}}}},
               {"spec", std::move(spec)}});
}

std::string ConditionPatch(bool isolated, const std::string& message, absl::Time now) {
  return Dump({{"status",
                {{"conditions", Json::array({{{"type", kKubeCondition},
                                              {"status", isolated ? "True" : "False"},
                                              {"reason", isolated ? "Verdict" : "GivenBack"},
                                              {"message", service::ToUtf8(message.substr(0, kMaxText))},
                                              {"lastHeartbeatTime", Seconds(now)},
                                              {"lastTransitionTime", Seconds(now)}}})}}}});
}

std::string NodeEvent(const std::string& name, const KubeNode& node, bool isolated,
                      const std::string& message, absl::Time now) {
  return Dump(
      {{"apiVersion", "v1"},
       {"kind", "Event"},
       {"metadata", {{"name", name}, {"namespace", "default"}}},
       // As kubelets tell of themselves: `kubectl describe node` looks for it so.
       {"involvedObject", {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", node.name}, {"uid", node.name}}},
       {"type", isolated ? "Warning" : "Normal"},
       {"reason", isolated ? "C4Isolated" : "C4GivenBack"},
       {"message", service::ToUtf8(message.substr(0, kMaxText))},
       {"source", {{"component", "c4d"}}},
       {"reportingComponent", "c4d"},
       {"reportingInstance", "c4d"},
       {"firstTimestamp", Seconds(now)},
       {"lastTimestamp", Seconds(now)},
       {"count", 1}});
}

std::string EvictionBody(const std::string& kube_namespace, const KubePod& pod, int64_t grace_s) {
  return Dump({{"apiVersion", "policy/v1"},
               {"kind", "Eviction"},
               {"metadata", {{"name", pod.name}, {"namespace", kube_namespace}}},
               {"deleteOptions", {{"gracePeriodSeconds", grace_s}, {"preconditions", {{"uid", pod.uid}}}}}});
}

std::string LeaseBody(const std::string& kube_namespace, const std::string& name, const std::string& holder,
                      int64_t duration_s, absl::Time now) {
  Json spec = HoldSpec(holder, duration_s, now);
  spec["acquireTime"] = Microseconds(now);
  spec["leaseTransitions"] = 0;
  return Dump({{"apiVersion", "coordination.k8s.io/v1"},
               {"kind", "Lease"},
               {"metadata", {{"name", name}, {"namespace", kube_namespace}}},
               {"spec", std::move(spec)}});
}

std::string HoldPatch(const KubeLeaseState& lease, const std::string& holder, int64_t duration_s,
                      absl::Time now) {
  Json spec = HoldSpec(holder, duration_s, now);
  if (lease.holder != holder) {
    spec["acquireTime"] = Microseconds(now);
    spec["leaseTransitions"] = lease.transitions + 1;
  }
  return Dump({{"metadata", {{"resourceVersion", lease.version}}}, {"spec", std::move(spec)}});
}

std::string RestartPatch(const KubeLeaseState& lease) {
  return Dump({{"metadata",
                {{"resourceVersion", lease.version},
                 {"annotations",
                  {{kAskedKey, std::to_string(lease.asked)},
                   {kBegunKey, std::to_string(lease.begun)},
                   {kCountedKey, std::to_string(lease.counted)},
                   {kPodsKey, lease.pods}}}}}});
}

Event::Seen SightOf(const std::string& job, const KubeNode& node, bool in_use, absl::Duration gone_after,
                    absl::Time now) {
  Event::Seen seen;
  seen.node = node.host;
  seen.in_use = in_use;
  if (node.IsOurs(job)) {
    seen.sight = Event::Sight::kIsolated;
  } else if (node.unschedulable || node.tainted()) {
    seen.sight = Event::Sight::kOther;
  } else if (node.ending || (!node.ready && (!node.ready_since || now - *node.ready_since > gone_after))) {
    seen.sight = Event::Sight::kGone;
  }
  return seen;
}

bool IsKubeName(absl::string_view text) {
  if (text.empty() || text.size() > kMaxName) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '.');
  return std::all_of(parts.begin(), parts.end(), [](absl::string_view part) {
    return !part.empty() && IsLowerNameCharacter(part.front()) && IsLowerNameCharacter(part.back()) &&
           std::all_of(part.begin(), part.end(), [](char c) { return c == '-' || IsLowerNameCharacter(c); });
  });
}

std::string KubeLabelValue(absl::string_view text) {
  std::string value(text.substr(0, kMaxLabel));
  for (char& c : value) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_') c = '-';
  }
  const auto ends = [](char c) { return !absl::ascii_isalnum(static_cast<unsigned char>(c)); };
  while (!value.empty() && ends(value.back())) value.pop_back();
  value.erase(value.begin(), std::find_if_not(value.begin(), value.end(), ends));
  return value.empty() ? "verdict" : value;
}

bool IsKubeLabelValue(absl::string_view text) {
  return !text.empty() && text.size() <= kMaxLabel && KubeLabelValue(text) == text;
}

std::string KubeLeaseName(const std::string& job) {
  std::string name = absl::AsciiStrToLower(KubeLabelValue(job));
  for (char& c : name) {
    if (c == '_' || c == '.') c = '-';
  }
  if (name != job) name = Concat(name.substr(0, 40), "-", absl::Hex(HashOf(job) >> 32, absl::kZeroPad8));
  return "c4d-" + name;
}

std::string PercentEncoded(absl::string_view text) {
  std::string encoded;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("-._~", c)) {
      encoded.push_back(c);
    } else {
      encoded += Concat("%", absl::AsciiStrToUpper(
                                 absl::StrCat(absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2))));
    }
  }
  return encoded;
}

}  // namespace c4::c4d::recovery
