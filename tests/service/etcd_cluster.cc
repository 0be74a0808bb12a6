#include "tests/service/etcd_cluster.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "service/free_port.h"
#include "service/http_post.h"

namespace c4::service_test {
namespace {

constexpr char kEtcd[] = "/usr/bin/etcd";

}  // namespace

bool EtcdCluster::Installed() {
  return access(kEtcd, X_OK) == 0;
}

EtcdCluster::EtcdCluster(int members, std::vector<std::string> flags) : flags_(std::move(flags)) {
  std::mt19937 random{std::random_device()()};
  for (int i = 0; i < members; ++i) {
    const auto client = service::FreePort(&random);
    const auto peer = service::FreePort(&random);
    if (!client.ok() || !peer.ok()) {
      ADD_FAILURE() << client.status() << peer.status();
      return;
    }
    members_.push_back(
        {"127.0.0.1:" + std::to_string(*client), "http://127.0.0.1:" + std::to_string(*peer), nullptr});
  }
  for (int i = 0; i < members; ++i) Start(i);
  EXPECT_TRUE(AwaitQuorum(Seconds(40))) << Errors(0);
}

void EtcdCluster::Start(int member) {
  std::string cluster;
  for (size_t i = 0; i < members_.size(); ++i) {
    cluster += (i == 0 ? "" : ",") + ("m" + std::to_string(i)) + "=" + members_[i].peer;
  }
  const std::string name = "m" + std::to_string(member);
  const std::string client = "http://" + At(member).client;
  std::vector<std::string> command = {kEtcd,
                                      "--name",
                                      name,
                                      "--data-dir",
                                      scratch_.path() + "/" + name,
                                      "--listen-client-urls",
                                      client,
                                      "--advertise-client-urls",
                                      client,
                                      "--listen-peer-urls",
                                      At(member).peer,
                                      "--initial-advertise-peer-urls",
                                      At(member).peer,
                                      "--initial-cluster",
                                      cluster,
                                      "--initial-cluster-state",
                                      "new"};
  command.insert(command.end(), flags_.begin(), flags_.end());
  members_[static_cast<size_t>(member)].process =
      std::make_unique<Process>(command, std::vector<std::string>{"ETCD_UNSUPPORTED_ARCH=arm64"},
                                scratch_.path() + "/" + name + "." + std::to_string(++starts_));
}

void EtcdCluster::Kill(int member) {
  Signal(member, SIGKILL);
  EXPECT_TRUE(members_[static_cast<size_t>(member)].process->Wait(Seconds(10)));
}

bool EtcdCluster::Answers(int member) const {
  const auto answer = service::HttpCall({.url = "http://" + At(member).client + "/v3/kv/range",
                                         .body = R"({"key":"YQ=="})",
                                         .timeout = absl::Seconds(2),
                                         .allow_inside = true});
  return answer.ok() && answer->status == 200;
}

bool EtcdCluster::AwaitQuorum(Seconds limit) const {
  return Eventually(limit, [&] {
    for (int i = 0; i < members(); ++i) {
      if (Answers(i)) return true;
    }
    return false;
  });
}

std::string EtcdCluster::Call(const std::string& path, const std::string& body) const {
  const auto answer = service::HttpCall({.url = "http://" + At(0).client + path,
                                         .body = body,
                                         .timeout = absl::Seconds(5),
                                         .allow_inside = true});
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.ok() ? answer->body : "";
}

std::string EtcdCluster::Place() const {
  std::string place = "etcd://";
  for (int i = 0; i < members(); ++i) place += (i == 0 ? "" : ",") + At(i).client;
  return place;
}

}  // namespace c4::service_test
