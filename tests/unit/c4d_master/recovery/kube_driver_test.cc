// The driver against a server that holds to the API's rules (tests/support/kube_server.h).
#include "c4d_master/recovery/kube_driver.h"

#include <chrono>
#include <gmock/gmock.h>

#include "absl/strings/match.h"
#include "c4d_master/recovery/kube_words.h"
#include "tests/support/kube_server.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::c4d::recovery {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;
using Outcome = Event::Outcome;
using Sight = Event::Sight;

class KubeDriverTest : public testing::Test {
 protected:
  KubeDriverTest() {
    for (const char* name : {"n1", "n2", "n3"}) server_.AddNode(name);
    server_.AddPod("w-0", "n1");
    server_.AddPod("w-1", "n2");
    config_.server = server_.Url();
    config_.token_file = directory_.Write("token", "token-1\n");
    config_.kube_namespace = test::KubeServer::kJobNamespace;
    config_.lease_namespace = test::KubeServer::kMasterNamespace;
  }

  DriverReply Run(const Command& command, absl::Duration timeout = absl::Seconds(20)) {
    if (driver_ == nullptr) driver_ = MakeKubeDriver(config_, "demo", "m1");
    return driver_->Run(command, timeout, {});
  }
  static Command Of(Command::Kind kind, const std::string& node) {
    return {.id = 3, .kind = kind, .incident = 1, .node = node, .reason = "verdict v_1:x"};
  }
  static Command Isolate(const std::string& node) { return Of(Command::Kind::kIsolate, node); }
  static Command GiveBack(const std::string& node) { return Of(Command::Kind::kGiveBack, node); }
  static Command Restart(uint32_t from, uint32_t to) {
    return {.id = 4, .kind = Command::Kind::kRestart, .incident = 1, .from = from, .to = to};
  }
  Json Taints(const std::string& node) {
    return server_.Get("nodes/" + node)["spec"].value("taints", Json::array());
  }
  std::string Condition(const std::string& node) {
    const Json object = server_.Get("nodes/" + node);
    for (const Json& item : object["status"]["conditions"]) {
      if (item["type"] == kKubeCondition) return item["status"];
    }
    return "none";
  }
  size_t Logged(const std::string& text) {
    const auto log = server_.log();
    return static_cast<size_t>(std::count_if(
        log.begin(), log.end(), [&text](const std::string& line) { return absl::StrContains(line, text); }));
  }
  // What the next requests of this method are answered with.
  void AnswerWith(const std::string& method, int status, const std::string& body, int times = 1'000'000) {
    server_.SetHook([=, left = std::make_shared<std::atomic<int>>(times)](const httplib::Request& request,
                                                                          httplib::Response* response) {
      if (request.method != method || absl::StrContains(request.path, "leases") || (*left)-- <= 0)
        return false;
      response->status = status;
      response->set_content(body, "application/json");
      return true;
    });
  }

  const test::TemporaryDirectory directory_;
  test::KubeServer server_;
  KubernetesConfig config_;
  std::unique_ptr<Driver> driver_;
};

TEST_F(KubeDriverTest, ANodeIsCordonedTaintedAndToldOf) {
  server_.Change("nodes/n1", [](Json* node) {
    (*node)["spec"]["taints"] = Json::parse(
        R"([{"key": "gpu", "effect": "NoSchedule"}, {"key": "x", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}])");
  });
  EXPECT_EQ(Run(Isolate("n1")).outcome, Outcome::kDone);
  const Json node = server_.Get("nodes/n1");
  EXPECT_EQ(node["spec"]["unschedulable"], true);
  EXPECT_EQ(node["spec"]["podCIDR"], "10.244.0.0/24");
  ASSERT_EQ(Taints("n1").size(), 3U);
  EXPECT_EQ(Taints("n1")[1]["timeAdded"], "2026-01-01T00:00:00Z");
  EXPECT_EQ(Taints("n1")[2],
            Json::parse(R"({"key": "c4.dev/isolated", "value": "v_1-x", "effect": "NoSchedule"})"));
  EXPECT_EQ(node["metadata"]["annotations"]["c4.dev/job"], "demo");
  EXPECT_EQ(Condition("n1"), "True");
  EXPECT_EQ(node["status"]["conditions"].size(), 2U) << "the kubelet's are left";
  ASSERT_EQ(server_.Names("events").size(), 1U);
  EXPECT_EQ(server_.Get("events/" + server_.Names("events")[0])["involvedObject"]["name"], "n1");
  // The same command again changes nothing.
  server_.ClearLog();
  EXPECT_EQ(Run(Isolate("n1")).outcome, Outcome::kDone);
  EXPECT_EQ(Logged("PATCH /api/v1/nodes"), 0U);
  EXPECT_EQ(server_.Names("events").size(), 1U);
}

TEST_F(KubeDriverTest, ANodeThatSomebodyElseCordonedIsNotTouched) {
  server_.Change("nodes/n1", [](Json* node) { (*node)["spec"]["unschedulable"] = true; });
  const Json before = server_.Get("nodes/n1");
  EXPECT_EQ(Run(Isolate("n1")).outcome, Outcome::kDone) << "it is out already";
  const DriverReply reply = Run(GiveBack("n1"));
  EXPECT_EQ(reply.outcome, Outcome::kRefused);
  EXPECT_THAT(reply.text, HasSubstr("kubectl uncordon n1"));
  EXPECT_EQ(server_.Get("nodes/n1"), before);
  EXPECT_THAT(server_.Names("events"), IsEmpty());
  // And one of another job's master.
  server_.Change("nodes/n2", [](Json* node) {
    (*node)["spec"] = Json::parse(
        R"({"unschedulable": true, "taints": [{"key": "c4.dev/isolated", "value": "v", "effect": "NoSchedule"}]})");
    (*node)["metadata"]["annotations"] = {{"c4.dev/job", "other"}, {"c4.dev/cordoned", "true"}};
  });
  EXPECT_EQ(Run(Isolate("n2")).outcome, Outcome::kDone);
  EXPECT_THAT(Run(GiveBack("n2")).text, HasSubstr("job other"));
  EXPECT_EQ(Logged("PATCH /api/v1/nodes"), 0U);
}

// Between our look and our patch a person cordons it.
TEST_F(KubeDriverTest, WhoWasFasterIsLookedAtAgain) {
  std::atomic<int> left = 1;
  server_.SetHook([&](const httplib::Request& request, httplib::Response*) {
    if (request.method == "PATCH" && request.path == "/api/v1/nodes/n1" && left-- > 0)
      server_.Change("nodes/n1", [](Json* node) { (*node)["spec"]["unschedulable"] = true; });
    return false;
  });
  EXPECT_EQ(Run(Isolate("n1")).outcome, Outcome::kDone);
  EXPECT_THAT(Taints("n1"), IsEmpty()) << "it is the person's";
  EXPECT_EQ(Logged("PATCH /api/v1/nodes/n1 409"), 1U);
  // The kubelet only writes its status: ours is made with the next version.
  left = 1;
  server_.SetHook([&](const httplib::Request& request, httplib::Response*) {
    if (request.method == "PATCH" && request.path == "/api/v1/nodes/n2" && left-- > 0)
      server_.Change("nodes/n2", [](Json* node) { (*node)["status"]["phase"] = "x"; });
    return false;
  });
  EXPECT_EQ(Run(Isolate("n2")).outcome, Outcome::kDone);
  EXPECT_EQ(Taints("n2").size(), 1U);
}

TEST_F(KubeDriverTest, OnlyWhatWeDidIsUndone) {
  server_.Change("nodes/n1", [](Json* node) {
    (*node)["spec"]["taints"] = Json::parse(R"([{"key": "gpu", "effect": "NoSchedule"}])");
  });
  ASSERT_EQ(Run(Isolate("n1")).outcome, Outcome::kDone);
  EXPECT_EQ(Run(GiveBack("n1")).outcome, Outcome::kDone);
  EXPECT_FALSE(server_.Get("nodes/n1")["spec"].contains("unschedulable"));
  EXPECT_EQ(Taints("n1"), Json::parse(R"([{"key": "gpu", "effect": "NoSchedule"}])"));
  EXPECT_EQ(Condition("n1"), "False");
  EXPECT_EQ(server_.Get("nodes/n1")["metadata"]["annotations"], Json::object());
  EXPECT_EQ(server_.Names("events").size(), 2U);
  EXPECT_EQ(Run(GiveBack("n1")).outcome, Outcome::kDone) << "again";
  // Ours by its taint, and cordoned by somebody: it stays cordoned.
  ASSERT_EQ(Run(Isolate("n2")).outcome, Outcome::kDone);
  server_.Change("nodes/n2", [](Json* node) { (*node)["metadata"]["annotations"].erase("c4.dev/cordoned"); });
  EXPECT_EQ(Run(GiveBack("n2")).outcome, Outcome::kDone);
  EXPECT_EQ(server_.Get("nodes/n2")["spec"]["unschedulable"], true);
  EXPECT_EQ(Run(GiveBack("n9")).outcome, Outcome::kRefused) << "there is none";
}

TEST_F(KubeDriverTest, ByTheNameThatTheNodeHasItself) {
  server_.AddNode("ip-10-0-0-1.internal", "gpu7");
  EXPECT_EQ(Run(Isolate("GPU7")).outcome, Outcome::kDone);
  EXPECT_EQ(Taints("ip-10-0-0-1.internal").size(), 1U);
  for (const char* name : {"", "../pods", "a b", "n1?x=y", "-n"}) {
    EXPECT_EQ(Run(Isolate(name)).outcome, Outcome::kRefused) << name;
  }
  EXPECT_EQ(Run(Isolate("n9")).outcome, Outcome::kRefused);
}

TEST_F(KubeDriverTest, ARestartEvictsThePodsOnce) {
  server_.AddPod("w-2", "n3", "Job", "Failed");
  EXPECT_EQ(Run(Restart(0, 1)).outcome, Outcome::kDone);
  EXPECT_EQ(server_.Names("pods").size(), 3U);
  EXPECT_EQ(Logged("/eviction 201"), 2U) << "what is over is left";
  EXPECT_TRUE(server_.Get("pods/w-0").is_null());
  const Json notes = server_.Get("leases/c4d-demo")["metadata"]["annotations"];
  EXPECT_EQ(notes["c4.dev/begun"], "1");
  EXPECT_EQ(Run(Restart(0, 1)).outcome, Outcome::kDone) << "again, and nothing is done";
  EXPECT_EQ(Logged("/eviction"), 2U);
  EXPECT_EQ(Run(Restart(1, 2)).outcome, Outcome::kDone);
  EXPECT_EQ(Logged("/eviction 201"), 4U);
  const DriverReply late = Run(Restart(0, 1));
  EXPECT_EQ(late.outcome, Outcome::kRefused);
  EXPECT_THAT(late.text, HasSubstr("late: incarnation 2"));
  EXPECT_EQ(Logged("/eviction"), 4U);
}

// The first time was cut off in the middle: the pods that were made meanwhile are the next incarnation's.
TEST_F(KubeDriverTest, ARestartGoesOnWhereItWas) {
  server_.SetHook([](const httplib::Request& request, httplib::Response* response) {
    if (!absl::StrContains(request.path, "w-1/eviction")) return false;
    response->status = 500;
    return true;
  });
  EXPECT_EQ(Run(Restart(0, 1), absl::Seconds(1)).outcome, Outcome::kUnknown);
  EXPECT_TRUE(server_.Get("pods/w-0").is_null());
  server_.SetHook({});
  server_.ClearLog();
  EXPECT_EQ(Run(Restart(0, 1)).outcome, Outcome::kDone);
  EXPECT_EQ(Logged("/eviction"), 1U);
  EXPECT_TRUE(server_.Get("pods/w-1").is_null());
}

TEST_F(KubeDriverTest, ABudgetHoldsAnEvictionUp) {
  server_.HoldUpEvictions(1);
  EXPECT_EQ(Run(Restart(0, 1)).outcome, Outcome::kDone);
  EXPECT_EQ(Logged("/eviction 429"), 1U);
  server_.HoldUpEvictions(1000);
  const DriverReply reply = Run(Restart(1, 2), absl::Milliseconds(300));
  EXPECT_EQ(reply.outcome, Outcome::kUnknown);
  EXPECT_THAT(reply.text, HasSubstr("PodDisruptionBudget"));
}

TEST_F(KubeDriverTest, APodThatIsGoneOrAnothersIsEvictedAlready) {
  server_.EndSlowly();
  server_.SetHook([this](const httplib::Request& request, httplib::Response*) {
    if (absl::StrContains(request.path, "w-0/eviction")) server_.Remove("pods/w-0");
    if (absl::StrContains(request.path, "w-1/eviction"))
      server_.Change("pods/w-1", [](Json* pod) { (*pod)["metadata"]["uid"] = "another"; });
    return false;
  });
  EXPECT_EQ(Run(Restart(0, 1)).outcome, Outcome::kDone);
  EXPECT_EQ(Logged("w-0/eviction 404"), 1U);
  EXPECT_EQ(Logged("w-1/eviction 409"), 1U);
  EXPECT_FALSE(server_.Get("pods/w-1").contains("deletionTimestamp"));
}

TEST_F(KubeDriverTest, WhatNobodyMakesAgainIsNotEvicted) {
  server_.AddPod("bare", "n3", "");
  const DriverReply reply = Run(Restart(0, 1));
  EXPECT_EQ(reply.outcome, Outcome::kRefused);
  EXPECT_THAT(reply.text, HasSubstr("pod bare has no controller"));
  for (const char* name : {"bare", "w-0", "w-1"}) server_.Remove(std::string("pods/") + name);
  EXPECT_THAT(Run(Restart(0, 1), absl::Milliseconds(300)).text, HasSubstr("has no pod of c4.dev/job=demo"));
  server_.AddPod("w-0", "n1", "Job", "Succeeded");
  EXPECT_THAT(Run(Restart(0, 1)).text, HasSubstr("have succeeded"));
  EXPECT_EQ(Logged("/eviction"), 0U);
}

TEST_F(KubeDriverTest, JobSetCountsItself) {
  config_.selector = "jobset.sigs.k8s.io/jobset-name=big";
  for (const char* name : {"w-0", "w-1"}) {
    server_.Change(std::string("pods/") + name, [](Json* pod) {
      (*pod)["metadata"]["labels"] = {{"jobset.sigs.k8s.io/jobset-name", "big"},
                                      {"jobset.sigs.k8s.io/restart-attempt", "4"}};
    });
  }
  server_.AddPod("of-another-job", "n3");
  EXPECT_EQ(Run(Restart(0, 1)).incarnation, 5U);
  EXPECT_EQ(Run(Restart(0, 1)).incarnation, 5U) << "again";
  EXPECT_FALSE(server_.Get("pods/of-another-job").is_null());
}

TEST_F(KubeDriverTest, AllNodesInPagesAlsoWhenTheListExpires) {
  for (int i = 4; i <= 9; ++i) server_.AddNode("n" + std::to_string(i));
  const auto spec = [this](const char* name, const char* json) {
    server_.Change(std::string("nodes/") + name, [json](Json* node) { (*node)["spec"] = Json::parse(json); });
  };
  ASSERT_EQ(Run(Isolate("n3")).outcome, Outcome::kDone);
  spec("n4", R"({"unschedulable": true})");
  spec("n5", R"({"taints": [{"key": "c4.dev/isolated", "value": "v", "effect": "NoSchedule"}]})");
  const auto not_ready = [this](const char* name, const std::string& since) {
    server_.Change(std::string("nodes/") + name, [&since](Json* node) {
      Json& condition = (*node)["status"]["conditions"][0];
      condition["status"] = "Unknown";
      condition["lastTransitionTime"] = since;
    });
  };
  not_ready("n6", "2026-01-01T00:00:00Z");
  not_ready("n7", absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone()));
  server_.SetPage(2);
  server_.ExpireTokens(1);
  const auto seen = driver_->Look(absl::Seconds(10), {});
  ASSERT_TRUE(seen.ok()) << seen.status();
  std::map<std::string, Sight> sights;
  for (const Event::Seen& node : seen->nodes) sights[node.node] = node.sight;
  EXPECT_EQ(seen->nodes.size(), 9U) << "none twice";
  const std::map<std::string, Sight> expected = {
      {"n1", Sight::kFree},  {"n2", Sight::kFree},  {"n3", Sight::kIsolated},
      {"n4", Sight::kOther}, {"n5", Sight::kOther}, {"n6", Sight::kGone},
      {"n7", Sight::kFree},  {"n8", Sight::kFree},  {"n9", Sight::kFree}};
  EXPECT_EQ(sights, expected);
  EXPECT_TRUE(seen->nodes[0].in_use);
  EXPECT_FALSE(seen->nodes[7].in_use);
  server_.ExpireTokens(1000);
  EXPECT_FALSE(driver_->Look(absl::Seconds(10), {}).ok());
  server_.ExpireTokens(0);
  config_.node_selector = "kubernetes.io/hostname=n8";
  EXPECT_EQ(MakeKubeDriver(config_, "demo", "m1")->Look(absl::Seconds(10), {})->nodes.size(), 1U);
  config_.node_selector = "pool=none";
  EXPECT_FALSE(MakeKubeDriver(config_, "demo", "m1")->Look(absl::Seconds(10), {}).ok());
}

TEST_F(KubeDriverTest, ATokenIsReadAgainAndARoleIsSaid) {
  ASSERT_EQ(Run(Isolate("n1")).outcome, Outcome::kDone);
  server_.SetToken("token-2");
  DriverReply reply = Run(Isolate("n2"));
  EXPECT_EQ(reply.outcome, Outcome::kRefused);
  EXPECT_THAT(reply.text, HasSubstr("does not take the token"));
  directory_.Write("token", "token-2");
  EXPECT_EQ(Run(Isolate("n2")).outcome, Outcome::kDone);
  directory_.Write("token", "a\r\nX-Other: b");
  EXPECT_THAT(Run(Isolate("n3")).text, HasSubstr("holds no token"));
  std::filesystem::remove(directory_.File("token"));
  EXPECT_EQ(Run(Isolate("n3")).outcome, Outcome::kRefused);
  directory_.Write("token", "token-2");
  server_.Forbid("cluster core nodes patch");
  reply = Run(Isolate("n3"));
  EXPECT_EQ(reply.outcome, Outcome::kRefused);
  EXPECT_THAT(reply.text, HasSubstr("may not patch nodes"));
  // Without the condition and the event the node is out all the same.
  server_.Forbid("cluster core nodes/status patch");
  server_.Forbid("default core events create");
  EXPECT_EQ(Run(GiveBack("n9")).outcome, Outcome::kRefused);
}

TEST_F(KubeDriverTest, TheServerFailsIsBusyOrSaysWhatItShouldNot) {
  ASSERT_EQ(Run(Isolate("n3")).outcome, Outcome::kDone);
  AnswerWith("GET", 503, "", 1);
  EXPECT_EQ(Run(Isolate("n1")).outcome, Outcome::kDone) << "it was better the second time";
  AnswerWith("PATCH", 500, R"({"kind": "Status", "message": "etcd is away"})");
  const DriverReply reply = Run(Isolate("n2"), absl::Milliseconds(300));
  EXPECT_EQ(reply.outcome, Outcome::kUnknown);
  EXPECT_THAT(reply.text, HasSubstr("etcd is away"));
  for (const char* body :
       {"", "<html>Sign in</html>", R"({"kind": "Node", "metadata": {"na)", R"({"kind": "Node"})",
        R"({"kind": "Pod", "metadata": {"name": "n2", "resourceVersion": "1"}})", "[]", "{}"}) {
    for (const char* method : {"GET", "PATCH"}) {
      AnswerWith(method, 200, body);
      EXPECT_EQ(Run(Isolate("n2"), absl::Seconds(2)).outcome, Outcome::kUnknown) << method << " " << body;
      EXPECT_FALSE(method[0] == 'G' && driver_->Look(absl::Seconds(2), {}).ok()) << body;
    }
  }
  AnswerWith("PATCH", 422, R"({"message": "taints: too many"})");
  EXPECT_EQ(Run(Isolate("n2")).outcome, Outcome::kRefused);
  AnswerWith("GET", 301, "");
  EXPECT_EQ(Run(Isolate("n2")).outcome, Outcome::kRefused);
  // An admission controller drops what was asked for.
  AnswerWith("PATCH", 200, server_.Get("nodes/n2").dump());
  EXPECT_THAT(Run(Isolate("n2")).text, HasSubstr("admission"));
}

TEST_F(KubeDriverTest, NothingHangs) {
  ASSERT_EQ(Run(Isolate("n1")).outcome, Outcome::kDone);
  std::atomic<bool> let_go = false;
  server_.SetHook([&let_go](const httplib::Request&, httplib::Response*) {
    while (!let_go) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return false;
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(Run(Isolate("n2"), absl::Milliseconds(300)).outcome, Outcome::kUnknown);
  std::atomic<bool> stop = false;
  std::thread stopper([&stop] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    stop = true;
  });
  EXPECT_EQ(driver_->Run(Restart(0, 1), absl::Seconds(600), [&stop] { return stop.load(); }).outcome,
            Outcome::kUnknown);
  stopper.join();
  EXPECT_FALSE(driver_->Look(absl::Milliseconds(100), {}).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  driver_.reset();
  let_go = true;
  // Nobody is there at all.
  config_.server = "http://127.0.0.1:1";
  EXPECT_EQ(Run(Isolate("n2"), absl::Milliseconds(200)).outcome, Outcome::kUnknown);
}

TEST_F(KubeDriverTest, ACheckIsAProgramOfTheOperators) {
  EXPECT_THAT(Run(Of(Command::Kind::kCheck, "n1")).text, HasSubstr("\"check\" of \"kubernetes\""));
  config_.check = {"/bin/sh", "-c", "[ $0 = n1 ] || { echo 'GPU 3 is bad' >&2; exit 1; }", "{node}"};
  driver_.reset();
  EXPECT_EQ(Run(Of(Command::Kind::kCheck, "n1")).outcome, Outcome::kDone);
  EXPECT_THAT(Run(Of(Command::Kind::kCheck, "n2")).text, HasSubstr("GPU 3 is bad"));
  EXPECT_EQ(Run(Of(Command::Kind::kCheck, "--x")).outcome, Outcome::kRefused);
}

TEST_F(KubeDriverTest, OfTwoMastersOneActs) {
  ASSERT_EQ(Run(Isolate("n1")).outcome, Outcome::kDone);
  config_.lease_ns = kSecond;
  driver_ = MakeKubeDriver(config_, "demo", "m1");
  ASSERT_EQ(Run(Isolate("n1")).outcome, Outcome::kDone);
  const auto second = MakeKubeDriver(config_, "demo", "m2");
  const DriverReply reply = second->Run(Isolate("n2"), absl::Seconds(20), {});
  EXPECT_EQ(reply.outcome, Outcome::kRefused);
  EXPECT_THAT(reply.text, HasSubstr("m1 holds the lease c4/c4d-demo"));
  EXPECT_THAT(Taints("n2"), IsEmpty());
  EXPECT_TRUE(second->Look(absl::Seconds(10), {}).ok());
  driver_.reset();  // it ends, and the other one goes on
  const auto begin = std::chrono::steady_clock::now();
  while (second->Run(Isolate("n2"), absl::Seconds(20), {}).outcome != Outcome::kDone &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(30)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(Taints("n2").size(), 1U);
  EXPECT_EQ(server_.Get("leases/c4d-demo")["spec"]["holderIdentity"], "m2");
}

// The driver asks for what its role allows, and for all of it: the list is deploy/kubernetes's as well.
TEST_F(KubeDriverTest, ItsRoleIsWhatItNeeds) {
  EXPECT_EQ(Run(Isolate("n1")).outcome, Outcome::kDone);
  EXPECT_EQ(Run(Restart(0, 1)).outcome, Outcome::kDone);
  EXPECT_EQ(Run(GiveBack("n1")).outcome, Outcome::kDone);
  EXPECT_TRUE(driver_->Look(absl::Seconds(10), {}).ok());
  EXPECT_EQ(server_.calls(), test::KubeServer::Allowed());
  EXPECT_EQ(Logged(" 403"), 0U);
}

TEST(KubeDriverTls, TheServersCertificateHasToHold) {
  const test::TemporaryDirectory directory;
  const std::string key = directory.File("key.pem"), certificate = directory.File("cert.pem");
  const auto make = [](const std::string& key_file, const std::string& file, const char* name) {
    const std::string command =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=test "
        "-keyout " +
        key_file + " -out " + file + " -addext subjectAltName=" + name + " 2>/dev/null";
    return system(command.c_str());  // NOLINT(concurrency-mt-unsafe)
  };
  ASSERT_EQ(make(key, certificate, "IP:127.0.0.1"), 0);
  ASSERT_EQ(make(directory.File("other.key"), directory.File("other.pem"), "IP:127.0.0.1"), 0);
  test::KubeServer server(certificate, key);
  server.AddNode("n1");
  KubernetesConfig config;
  config.server = server.Url();
  config.token_file = directory.Write("token", "token-1");
  config.ca_file = certificate;
  config.kube_namespace = test::KubeServer::kJobNamespace;
  config.lease_namespace = test::KubeServer::kMasterNamespace;
  const auto seen = MakeKubeDriver(config, "demo", "m1")->Look(absl::Seconds(10), {});
  EXPECT_TRUE(seen.ok()) << seen.status();
  config.ca_file = directory.File("other.pem");
  const auto refused = MakeKubeDriver(config, "demo", "m1")->Look(absl::Milliseconds(300), {});
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("certificate does not hold"));
  EXPECT_THAT(server.log(), Not(IsEmpty()));
}

TEST(KubeDriverName, AJobThatIsNoLabel) {
  KubernetesConfig config;
  const test::TemporaryDirectory directory;
  test::KubeServer server;
  server.AddNode("n1");
  config.server = server.Url();
  config.token_file = directory.Write("token", "token-1");
  config.kube_namespace = test::KubeServer::kJobNamespace;
  config.lease_namespace = test::KubeServer::kMasterNamespace;
  const auto seen = MakeKubeDriver(config, "my job/1", "m1")->Look(absl::Seconds(10), {});
  EXPECT_THAT(std::string(seen.status().message()), HasSubstr("give \"selector\" or \"jobset\""));
}

}  // namespace
}  // namespace c4::c4d::recovery
