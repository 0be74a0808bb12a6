// What the API server of Kubernetes answers: names and annotations are others' words. The same bytes as each
// of the answers: refused, or names that fit a path, and patches that are JSON and keep what is not ours.
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "c4d_master/recovery/kube_words.h"
#include "tests/fuzz/check.h"

using namespace c4::c4d::recovery;  // NOLINT(google-build-using-namespace): a test's one file

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto check_node = [](const KubeNode& node) {
    C4_FUZZ_CHECK(IsKubeName(node.name) && IsKubeName(node.host) && !node.version.empty());
    const auto seen = SightOf("7", node, false, absl::Minutes(1), absl::UnixEpoch());
    if (node.unschedulable || node.tainted()) C4_FUZZ_CHECK(seen.sight != Event::Sight::kFree);
    if (seen.sight == Event::Sight::kIsolated) C4_FUZZ_CHECK(node.IsOurs("7"));
    size_t others = 0;
    for (const KubeTaint& taint : node.taints) others += taint.key == kKubeTaint ? 0 : 1;
    const auto out = nlohmann::json::parse(IsolatePatch(node, "7", node.job));
    C4_FUZZ_CHECK(out["spec"]["taints"].size() == others + 1);
    C4_FUZZ_CHECK(nlohmann::json::parse(GiveBackPatch(node))["spec"]["taints"].size() == others);
  };
  if (const auto node = ReadKubeNode(text); node.ok()) check_node(*node);
  if (const auto nodes = ReadKubeNodes(text); nodes.ok()) {
    for (const KubeNode& node : nodes->items) check_node(node);
  }
  if (const auto pods = ReadKubePods(text); pods.ok()) {
    const KubeMarked marked(KubePodMarks(pods->items));
    C4_FUZZ_CHECK(marked.size() <= pods->items.size());
    for (const KubePod& pod : pods->items) {
      C4_FUZZ_CHECK(IsKubeName(pod.name) && marked.Has(pod));
      (void)nlohmann::json::parse(EvictionBody("ns", pod, 5));
    }
  }
  if (const auto lease = ReadKubeLease(text); lease.ok()) {
    C4_FUZZ_CHECK(!lease->version.empty() && lease->duration_s >= 0);
    (void)nlohmann::json::parse(HoldPatch(*lease, "m", 15, absl::UnixEpoch()));
    (void)nlohmann::json::parse(RestartPatch(*lease));
    (void)KubeMarked(lease->pods);
  }
  (void)ReadKubeMessage(text);
  C4_FUZZ_CHECK(IsKubeLabelValue(KubeLabelValue(text)));
  C4_FUZZ_CHECK(IsKubeName(KubeLeaseName(text)));
  C4_FUZZ_CHECK(PercentEncoded(text).find_first_of(" &#?/\r\n") == std::string::npos);
  return 0;
}
