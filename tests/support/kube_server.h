// An API server of Kubernetes for tests, as far as the driver goes: nodes, pods, leases and events under the
// API's rules: a bearer token (401), what its role allows (403), names (404), versions in patches (409),
// lists in pages whose tokens expire (410), kinds of patches (415), values (422), evictions that a budget
// holds up (429). Controllers make evicted pods again, with other names, on nodes that may be used.
//
// It answers from its construction to its destruction, on threads of its own; all members from any thread.
#pragma once

#include <functional>
#include <httplib.h>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

namespace c4::test {

class KubeServer {
 public:
  using Json = nlohmann::json;

  // With TLS where a certificate and its key are given.
  explicit KubeServer(const std::string& certificate = "", const std::string& key = "");
  ~KubeServer();
  KubeServer(const KubeServer&) = delete;
  KubeServer& operator=(const KubeServer&) = delete;

  std::string Url() const;
  static constexpr char kToken[] = "token-1";
  static constexpr char kJobNamespace[] = "train";
  static constexpr char kMasterNamespace[] = "c4";

  // Objects by "nodes/n1", "pods/NAME", "leases/NAME", "events/NAME".
  void AddNode(const std::string& name, const std::string& host = "");
  // Of the job's label; "" for a controller: a bare pod.
  void AddPod(const std::string& name, const std::string& node, const std::string& controller = "Job",
              const std::string& phase = "Running");
  Json Get(const std::string& key) const;
  void Change(const std::string& key, const std::function<void(Json*)>& change);
  void Remove(const std::string& key);
  std::vector<std::string> Names(const std::string& resource) const;

  // Asked before anything else, without a lock: true: it has answered.
  using Hook = std::function<bool(const httplib::Request&, httplib::Response*)>;
  void SetHook(Hook hook);
  void SetToken(const std::string& token);
  void Forbid(const std::string& call);  // "cluster core nodes patch"
  void SetPage(size_t most);
  void ExpireTokens(int times);     // so many tokens are too old
  void HoldUpEvictions(int times);  // by a budget
  void EndSlowly();                 // evicted pods stay, with a time of deletion
  // Calls that were allowed, and all that were made with their status: "PATCH /api/v1/nodes/n1 200".
  std::set<std::string> calls() const;
  std::vector<std::string> log() const;
  void ClearLog();
  // The lines of tests/data/kubernetes_calls.txt.
  static std::set<std::string> Allowed();

 private:
  struct Target {
    std::string group, space, resource, name, subresource;
  };
  void Handle(const httplib::Request& request, httplib::Response& response);
  void Answer(const httplib::Request& request, httplib::Response* response);
  bool ParseTarget(const std::string& path, Target* target) const;
  void List(const httplib::Request& request, const Target& target, httplib::Response* response);
  void Create(const httplib::Request& request, const Target& target, httplib::Response* response);
  void Patch(const httplib::Request& request, const Target& target, httplib::Response* response);
  void Evict(const httplib::Request& request, const Target& target, httplib::Response* response);
  void MakeAgain(const Json& pod);
  void Store(const std::string& key, Json object);

  mutable std::mutex mutex_;
  std::map<std::string, Json> objects_;
  int64_t version_ = 100;
  int64_t made_ = 0;
  std::string token_ = kToken;
  std::set<std::string> allowed_ = Allowed();
  std::set<std::string> calls_;
  std::vector<std::string> log_;
  Hook hook_;
  size_t page_ = 1000;
  int expire_ = 0;
  int held_up_ = 0;
  bool slowly_ = false;
  bool tls_ = false;
  int port_ = 0;
  std::unique_ptr<httplib::Server> server_;
  std::thread thread_;
};

}  // namespace c4::test
