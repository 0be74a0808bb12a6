// What the API server says, whole, cut off and wrong; what the recovery file says of Kubernetes.
#include "c4d_master/recovery/kube_words.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "c4d_master/recovery/kube_config.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::c4d::recovery {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kNode[] = R"({"kind": "Node", "metadata": {"name": "n1", "resourceVersion": "7",
  "labels": {"kubernetes.io/hostname": "gpu1"}, "annotations": {"c4.dev/job": "demo", "c4.dev/cordoned": "true"}},
  "spec": {"unschedulable": true, "taints": [{"key": "c4.dev/isolated", "value": "v", "effect": "NoSchedule"}]},
  "status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                            {"type": "C4Isolated", "status": "True"}]}})";

TEST(KubeWordsTest, ANode) {
  const auto node = ReadKubeNode(kNode);
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->host, "gpu1");
  EXPECT_TRUE(node->IsOurs("demo"));
  EXPECT_FALSE(node->IsOurs("other"));
  EXPECT_TRUE(node->condition);
  EXPECT_TRUE(node->cordoned_by_c4);
  EXPECT_FALSE(node->ready);
  const std::string whole = kNode;
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_TRUE(absl::IsInvalidArgument(ReadKubeNode(whole.substr(0, size)).status())) << size;
  for (
      const char* wrong :
      {"[]", "null", R"({"kind": "Node", "metadata": []})", R"({"kind": "NodeList", "items": []})",
       R"({"kind": "Node", "metadata": {"name": "../x", "resourceVersion": "1"}})",
       R"({"kind": "Node", "metadata": {"name": "n", "resourceVersion": "1"}, "spec": {"taints": 5}})",
       R"({"kind": "Node", "metadata": {"name": "n", "resourceVersion": "1"}, "spec": {"taints": ["x"]}})"}) {
    EXPECT_FALSE(ReadKubeNode(wrong).ok()) << wrong;
  }
}

TEST(KubeWordsTest, PodsAndLists) {
  const auto pods = ReadKubePods(R"({"kind": "PodList", "metadata": {"continue": "t"}, "items": [
    {"metadata": {"name": "a", "uid": "1", "labels": {"jobset.sigs.k8s.io/restart-attempt": "3"},
     "ownerReferences": [{"kind": "X"}, {"kind": "Job", "controller": true}]},
     "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}},
    {"metadata": {"name": "b", "uid": "2", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Failed"}}]})");
  ASSERT_TRUE(pods.ok()) << pods.status();
  EXPECT_EQ(pods->next, "t");
  EXPECT_EQ(pods->items[0].controller, "Job");
  EXPECT_EQ(pods->items[0].attempt, 3U);
  EXPECT_TRUE(pods->items[1].over && pods->items[1].ending && pods->items[1].controller.empty());
  EXPECT_TRUE(ReadKubePods(R"({"kind": "PodList", "items": null})")->items.empty());
  EXPECT_FALSE(ReadKubePods(R"({"kind": "PodList"})").ok()) << "half of it";
  EXPECT_FALSE(ReadKubePods(R"({"kind": "PodList", "items": [{"metadata": {"name": "a"}}]})").ok());
  const KubeMarked marked(KubePodMarks({pods->items[0]}));
  EXPECT_TRUE(marked.Has(pods->items[0]));
  EXPECT_FALSE(marked.Has(pods->items[1]));
  EXPECT_EQ(KubeMarked(KubePodMarks(pods->items)).size(), 2U);
}

TEST(KubeWordsTest, ALease) {
  const auto lease = ReadKubeLease(R"({"kind": "Lease", "metadata": {"resourceVersion": "4", "annotations":
    {"c4.dev/asked": "3", "c4.dev/begun": "x", "c4.dev/pods": "abc"}},
    "spec": {"holderIdentity": "m", "leaseDurationSeconds": -5, "leaseTransitions": 99999999999999}})");
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(lease->asked, 3U);
  EXPECT_EQ(lease->begun, 0U);
  EXPECT_EQ(lease->duration_s, 0);
  const Json patch = Json::parse(RestartPatch(*lease));
  EXPECT_EQ(patch["metadata"]["resourceVersion"], "4");
  EXPECT_EQ(patch["metadata"]["annotations"]["c4.dev/pods"], "abc");
  EXPECT_FALSE(Json::parse(HoldPatch(*lease, "m", 15, absl::UnixEpoch()))["spec"].contains("acquireTime"));
  EXPECT_EQ(Json::parse(HoldPatch(*lease, "n", 15, absl::UnixEpoch()))["spec"]["renewTime"],
            "1970-01-01T00:00:00.000000Z");
}

TEST(KubeWordsTest, PatchesHoldForOneVersion) {
  const auto node = ReadKubeNode(kNode);
  const Json patch = Json::parse(GiveBackPatch(*node));
  EXPECT_EQ(patch["metadata"]["resourceVersion"], "7");
  EXPECT_TRUE(patch["spec"].contains("unschedulable") && patch["spec"]["unschedulable"].is_null());
  EXPECT_EQ(patch["spec"]["taints"], Json::array());
  EXPECT_EQ(Json::parse(IsolatePatch(*node, "j", "verdict \xff\"x"))["spec"]["taints"].size(), 1U)
      << "ours once";
  EXPECT_EQ(
      Json::parse(EvictionBody("ns", {.name = "p", .uid = "u"}, 5))["deleteOptions"]["gracePeriodSeconds"],
      5);
}

TEST(KubeWordsTest, Names) {
  EXPECT_TRUE(IsKubeName("ip-10-0-0-1.ec2.internal"));
  for (const char* name : {"", "A", "a_b", "a..b", "-a", "a-", "a/b", ".", "a b"})
    EXPECT_FALSE(IsKubeName(name)) << name;
  EXPECT_EQ(KubeLabelValue("--a b/c--"), "a-b-c");
  EXPECT_EQ(KubeLabelValue("::"), "verdict");
  EXPECT_EQ(KubeLabelValue(std::string(100, 'a')).size(), 63U);
  EXPECT_EQ(KubeLeaseName("demo"), "c4d-demo");
  EXPECT_NE(KubeLeaseName("my_job"), KubeLeaseName("my-job"));
  for (const char* job : {"", "My Job", "a.b", "\xff", "/", "1234.0"})
    EXPECT_TRUE(IsKubeName(KubeLeaseName(job))) << job;
  EXPECT_EQ(PercentEncoded("a=b,c in (d)&x"), "a%3Db%2Cc%20in%20%28d%29%26x");
}

absl::StatusOr<KubernetesConfig> Config(const std::string& json) {
  KubernetesConfig config;
  const absl::Status read = ReadKubernetes(Json::parse(json), &config);
  if (!read.ok()) return read;
  return config;
}

TEST(KubeConfigTest, WhatTheFileSays) {
  const auto config = Config(R"({"server": "https://10.0.0.1:6443/", "namespace": "train", "jobset": "big",
                                 "grace_s": 0, "check": ["/bin/true", "{node}"]})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server, "https://10.0.0.1:6443");
  EXPECT_EQ(config->selector, "jobset.sigs.k8s.io/jobset-name=big");
  EXPECT_TRUE(Config("{}").ok());
  EXPECT_TRUE(Config(R"({"server": "http://127.0.0.1:8001"})").ok()) << "kubectl proxy";
  for (const auto& [json, words] : std::vector<std::pair<const char*, const char*>>{
           {R"({"server": "http://10.0.0.1:6443"})", "only with TLS"},
           {R"({"server": "https://"})", "server"},
           {R"({"server": "https://h:1\r\nX: y"})", "server"},
           {R"({"server": 5})", "server"},
           {R"({"selector": "a=b", "jobset": "c"})", "give one"},
           {R"({"selector": ""})", "every pod"},
           {R"({"selector": "a\nb"})", "a line of labels"},
           {R"({"jobset": "Big"})", "jobset"},
           {R"({"namespace": "a/b"})", "no name of Kubernetes"},
           {R"({"token_file": "token"})", "whole path"},
           {R"({"check": ["check"]})", "whole path first"},
           {R"({"lease_s": 1})", "lease_s"},
           {R"({"tokne_file": "/x"})", "unknown key"},
           {R"([])", "give an object"}}) {
    EXPECT_THAT(std::string(Config(json).status().message()), HasSubstr(words)) << json;
  }
}

TEST(KubeConfigTest, WhatAPodIsGiven) {
  const test::TemporaryDirectory directory;
  KubernetesConfig config;
  unsetenv("KUBERNETES_SERVICE_HOST");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_THAT(std::string(PrepareKubernetes(&config).message()), HasSubstr("no pod of Kubernetes"));
  setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);  // NOLINT(concurrency-mt-unsafe)
  setenv("KUBERNETES_SERVICE_PORT", "443", 1);      // NOLINT(concurrency-mt-unsafe)
  config.token_file = directory.File("none");
  EXPECT_THAT(std::string(PrepareKubernetes(&config).message()), HasSubstr("\"token_file\""));
  EXPECT_EQ(config.server, "https://[fd00::1]:443");
  config.token_file = config.ca_file = directory.Write("token", "t");
  EXPECT_THAT(std::string(PrepareKubernetes(&config).message()), HasSubstr("\"namespace\""));
  config.kube_namespace = "train";
  EXPECT_TRUE(PrepareKubernetes(&config).ok());
  EXPECT_EQ(config.lease_namespace, "train");
}

}  // namespace
}  // namespace c4::c4d::recovery
