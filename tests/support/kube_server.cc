#include "tests/support/kube_server.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "c4d_master/recovery/kube_words.h"

namespace c4::test {
namespace {

using Json = nlohmann::json;

constexpr char kAttempt[] = "jobset.sigs.k8s.io/restart-attempt";

const char* KindOf(const std::string& resource) {
  return resource == "nodes" ? "Node" : resource == "pods" ? "Pod" : resource == "leases" ? "Lease" : "Event";
}

void Say(httplib::Response* response, int status, const Json& json) {
  response->status = status;
  response->set_content(json.dump(), "application/json");
}

void Fail(httplib::Response* response, int status, const std::string& reason, const std::string& message) {
  Say(response, status,
      {{"kind", "Status"},
       {"apiVersion", "v1"},
       {"status", "Failure"},
       {"reason", reason},
       {"message", message},
       {"code", status}});
}

bool Selected(const Json& object, const std::string& selector) {
  const Json labels = object["metadata"].value("labels", Json::object());
  for (const absl::string_view part : absl::StrSplit(selector, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (labels.value(pair.first, "") != pair.second) return false;
  }
  return true;
}

// As the API merges lists of conditions: by type.
void MergeConditions(Json* status, const Json& patch) {
  for (const Json& item : patch.value("conditions", Json::array())) {
    Json& conditions = (*status)["conditions"];
    const auto same = std::find_if(conditions.begin(), conditions.end(),
                                   [&item](const Json& old) { return old["type"] == item["type"]; });
    if (same == conditions.end()) {
      conditions.push_back(item);
    } else {
      same->merge_patch(item);
    }
  }
}

std::string WhatIsWrong(const Json& object) {
  const Json spec = object.value("spec", Json::object());
  if (!spec.contains("taints")) return "";
  std::set<std::string> seen;
  for (const Json& taint : spec["taints"]) {
    const std::string value = taint.value("value", "");
    if (!value.empty() && !c4d::recovery::IsKubeLabelValue(value)) return "taint value: " + value;
    if (!seen.insert(taint.value("key", "") + taint.value("effect", "")).second) return "taint twice";
    const std::string effect = taint.value("effect", "");
    if (effect != "NoSchedule" && effect != "NoExecute" && effect != "PreferNoSchedule") return "effect";
  }
  return "";
}

}  // namespace

std::set<std::string> KubeServer::Allowed() {
  const char* source = getenv("C4_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  std::ifstream file(std::string(source == nullptr ? "." : source) + "/tests/data/kubernetes_calls.txt");
  std::set<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.front() != '#') lines.insert(line);
  }
  return lines;
}

KubeServer::KubeServer(const std::string& certificate, const std::string& key) : tls_(!certificate.empty()) {
  if (tls_) {
    server_ = std::make_unique<httplib::SSLServer>(certificate.c_str(), key.c_str());
  } else {
    server_ = std::make_unique<httplib::Server>();
  }
  const auto handle = [this](const httplib::Request& request, httplib::Response& response) {
    Handle(request, response);
  };
  server_->Get(".*", handle).Post(".*", handle).Patch(".*", handle).Put(".*", handle).Delete(".*", handle);
  port_ = server_->bind_to_any_port("127.0.0.1");
  thread_ = std::thread([this] { server_->listen_after_bind(); });
  while (!server_->is_running()) std::this_thread::yield();
}

KubeServer::~KubeServer() {
  server_->stop();
  thread_.join();
}

std::string KubeServer::Url() const {
  return (tls_ ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port_);
}

void KubeServer::Store(const std::string& key, Json object) {
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  objects_[key] = std::move(object);
}

void KubeServer::AddNode(const std::string& name, const std::string& host) {
  const std::lock_guard lock(mutex_);
  Store(
      "nodes/" + name,
      {{"kind", "Node"},
       {"apiVersion", "v1"},
       {"metadata", {{"name", name}, {"labels", {{"kubernetes.io/hostname", host.empty() ? name : host}}}}},
       {"spec", {{"podCIDR", "10.244.0.0/24"}}},
       {"status",
        {{"conditions",
          Json::array(
              {{{"type", "Ready"}, {"status", "True"}, {"lastTransitionTime", "2026-01-01T00:00:00Z"}}})}}}});
}

void KubeServer::AddPod(const std::string& name, const std::string& node, const std::string& controller,
                        const std::string& phase) {
  const std::lock_guard lock(mutex_);
  Json meta = {{"name", name},
               {"namespace", kJobNamespace},
               {"uid", "uid-" + std::to_string(++made_)},
               {"labels", {{"c4.dev/job", "demo"}}}};
  if (!controller.empty()) {
    meta["ownerReferences"] = Json::array({{{"kind", controller}, {"name", "w"}, {"controller", true}}});
  }
  Store("pods/" + name, {{"kind", "Pod"},
                         {"apiVersion", "v1"},
                         {"metadata", meta},
                         {"spec", {{"nodeName", node}}},
                         {"status", {{"phase", phase}}}});
}

Json KubeServer::Get(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(key);
  return found == objects_.end() ? Json() : found->second;
}

void KubeServer::Change(const std::string& key, const std::function<void(Json*)>& change) {
  const std::lock_guard lock(mutex_);
  Json object = objects_.at(key);
  change(&object);
  Store(key, std::move(object));
}

void KubeServer::Remove(const std::string& key) {
  const std::lock_guard lock(mutex_);
  objects_.erase(key);
}

std::vector<std::string> KubeServer::Names(const std::string& resource) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [key, object] : objects_) {
    if (absl::StartsWith(key, resource + "/")) names.push_back(object["metadata"]["name"]);
  }
  return names;
}

void KubeServer::SetHook(Hook hook) {
  const std::lock_guard lock(mutex_);
  hook_ = std::move(hook);
}
void KubeServer::SetToken(const std::string& token) {
  const std::lock_guard lock(mutex_);
  token_ = token;
}
void KubeServer::Forbid(const std::string& call) {
  const std::lock_guard lock(mutex_);
  allowed_.erase(call);
}
void KubeServer::SetPage(size_t most) {
  const std::lock_guard lock(mutex_);
  page_ = most;
}
void KubeServer::ExpireTokens(int times) {
  const std::lock_guard lock(mutex_);
  expire_ = times;
}
void KubeServer::HoldUpEvictions(int times) {
  const std::lock_guard lock(mutex_);
  held_up_ = times;
}
void KubeServer::EndSlowly() {
  const std::lock_guard lock(mutex_);
  slowly_ = true;
}
std::set<std::string> KubeServer::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}
std::vector<std::string> KubeServer::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}
void KubeServer::ClearLog() {
  const std::lock_guard lock(mutex_);
  log_.clear();
}

bool KubeServer::ParseTarget(const std::string& path, Target* target) const {
  std::vector<std::string> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
  size_t at = 0;
  const auto next = [&] { return at < parts.size() ? parts[at++] : std::string(); };
  const std::string root = next();
  if (root == "api") {
    target->group = "core";
  } else if (root == "apis") {
    target->group = next();
  } else {
    return false;
  }
  if (next() != "v1") return false;
  target->resource = next();
  if (target->resource == "namespaces") {
    target->space = next();
    target->resource = next();
  }
  target->name = next();
  target->subresource = next();
  const bool cluster = target->resource == "nodes" && target->group == "core";
  const bool spaced =
      ((target->resource == "pods" || target->resource == "events") && target->group == "core") ||
      (target->resource == "leases" && target->group == "coordination.k8s.io");
  return at == parts.size() && ((cluster && target->space.empty()) || (spaced && !target->space.empty()));
}

void KubeServer::Handle(const httplib::Request& request, httplib::Response& response) {
  Hook hook;
  {
    const std::lock_guard lock(mutex_);
    hook = hook_;
  }
  const bool answered = hook && hook(request, &response);
  const std::lock_guard lock(mutex_);
  if (!answered) Answer(request, &response);
  log_.push_back(request.method + " " + request.path + " " + std::to_string(response.status));
}

void KubeServer::Answer(const httplib::Request& request, httplib::Response* response) {
  if (request.get_header_value("Authorization") != "Bearer " + token_)
    return Fail(response, 401, "Unauthorized", "Unauthorized");
  Target target;
  if (!ParseTarget(request.path, &target))
    return Fail(response, 404, "NotFound", "the server could not find the requested resource");
  const std::string verb = request.method == "GET"     ? target.name.empty() ? "list" : "get"
                           : request.method == "POST"  ? "create"
                           : request.method == "PATCH" ? "patch"
                           : request.method == "PUT"   ? "update"
                                                       : "delete";
  const std::string where = target.space.empty()               ? "cluster"
                            : target.space == kJobNamespace    ? "job"
                            : target.space == kMasterNamespace ? "master"
                                                               : target.space;
  const std::string what = target.resource + (target.subresource.empty() ? "" : "/" + target.subresource);
  const std::string call = where + " " + target.group + " " + what + " " + verb;
  if (!allowed_.contains(call))
    return Fail(response, 403, "Forbidden", what + " is forbidden: User \"c4d\" cannot " + verb);
  calls_.insert(call);
  if (verb == "list") return List(request, target, response);
  if (verb == "create" && target.subresource.empty()) return Create(request, target, response);
  const std::string key = target.resource + "/" + target.name;
  if (!objects_.contains(key))
    return Fail(response, 404, "NotFound", target.resource + " \"" + target.name + "\" not found");
  if (target.subresource == "eviction") return Evict(request, target, response);
  if (verb == "patch") return Patch(request, target, response);
  if (verb == "get") return Say(response, 200, objects_[key]);
  Fail(response, 405, "MethodNotAllowed", "the server does not allow this method");
}

void KubeServer::List(const httplib::Request& request, const Target& target, httplib::Response* response) {
  size_t limit = 0;
  if (!absl::SimpleAtoi(request.get_param_value("limit"), &limit) || limit == 0) limit = page_;
  limit = std::min(limit, page_);
  std::vector<Json> all;
  for (const auto& [key, object] : objects_) {
    if (absl::StartsWith(key, target.resource + "/") &&
        Selected(object, request.get_param_value("labelSelector")))
      all.push_back(object);
  }
  size_t begin = 0;
  if (request.has_param("continue")) {
    if (expire_ > 0) {
      --expire_;
      return Fail(response, 410, "Expired", "The provided continue parameter is too old");
    }
    const std::string token = request.get_param_value("continue");
    if (!absl::SimpleAtoi(absl::StripPrefix(absl::string_view(token), "a+/="), &begin))
      return Fail(response, 400, "BadRequest", "continue key is not valid");
  }
  Json items = Json::array();
  for (size_t i = begin; i < std::min(all.size(), begin + limit); ++i) items.push_back(all[i]);
  Json meta = {{"resourceVersion", std::to_string(version_)}};
  // With what has to be encoded in an address.
  if (begin + limit < all.size()) meta["continue"] = "a+/=" + std::to_string(begin + limit);
  Say(response, 200,
      {{"kind", std::string(KindOf(target.resource)) + "List"}, {"metadata", meta}, {"items", items}});
}

void KubeServer::Create(const httplib::Request& request, const Target& target, httplib::Response* response) {
  Json body = Json::parse(request.body, nullptr, false);
  if (body.is_discarded() || body.value("kind", "") != KindOf(target.resource) ||
      body["metadata"].value("namespace", "") != target.space)
    return Fail(response, 400, "BadRequest", "the object is not of this place");
  const std::string name = body["metadata"].value("name", "");
  if (!c4d::recovery::IsKubeName(name)) return Fail(response, 422, "Invalid", "metadata.name: " + name);
  const std::string key = target.resource + "/" + name;
  if (objects_.contains(key)) return Fail(response, 409, "AlreadyExists", key + " already exists");
  Store(key, body);
  Say(response, 201, objects_[key]);
}

void KubeServer::Patch(const httplib::Request& request, const Target& target, httplib::Response* response) {
  const std::string key = target.resource + "/" + target.name;
  const std::string type = request.get_header_value("Content-Type");
  const bool status = target.subresource == "status";
  if (type != "application/merge-patch+json" && type != "application/strategic-merge-patch+json")
    return Fail(response, 415, "UnsupportedMediaType", "the body of the request was in an unknown format");
  Json patch = Json::parse(request.body, nullptr, false);
  if (!patch.is_object()) return Fail(response, 400, "BadRequest", "the patch is no object");
  Json object = objects_[key];
  const Json version = patch.value("metadata", Json::object()).value("resourceVersion", Json());
  if (!version.is_null() && version != object["metadata"]["resourceVersion"])
    return Fail(response, 409, "Conflict",
                "the object has been modified; please apply your changes to the latest");
  if (status) {
    // A merge patch would leave the node with this condition alone.
    if (type == "application/strategic-merge-patch+json") {
      MergeConditions(&object["status"], patch.value("status", Json::object()));
    } else {
      object["status"].merge_patch(patch.value("status", Json::object()));
    }
  } else {
    patch.erase("status");
    object.merge_patch(patch);
  }
  if (const std::string wrong = WhatIsWrong(object); !wrong.empty())
    return Fail(response, 422, "Invalid", wrong);
  Store(key, object);
  Say(response, 200, objects_[key]);
}

void KubeServer::Evict(const httplib::Request& request, const Target& target, httplib::Response* response) {
  const Json body = Json::parse(request.body, nullptr, false);
  if (body.is_discarded() || body.value("kind", "") != "Eviction" ||
      body.value("apiVersion", "") != "policy/v1" || body["metadata"].value("name", "") != target.name ||
      body["metadata"].value("namespace", "") != target.space)
    return Fail(response, 400, "BadRequest", "name in URL does not match name in Eviction object");
  const std::string key = "pods/" + target.name;
  const Json pod = objects_[key];
  const Json options = body.value("deleteOptions", Json::object());
  const std::string uid = options.value("preconditions", Json::object()).value("uid", "");
  if (!uid.empty() && uid != pod["metadata"]["uid"])
    return Fail(response, 409, "Conflict", "the UID in the precondition does not match");
  if (held_up_ > 0) {
    --held_up_;
    response->set_header("Retry-After", "1");
    return Fail(response, 429, "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget.");
  }
  if (slowly_) {
    Json ending = pod;
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
    Store(key, ending);
  } else {
    objects_.erase(key);
  }
  MakeAgain(pod);
  Say(response, 201, {{"kind", "Status"}, {"apiVersion", "v1"}, {"status", "Success"}, {"code", 201}});
}

void KubeServer::MakeAgain(const Json& pod) {
  if (!pod["metadata"].contains("ownerReferences")) return;
  Json made = pod;
  const std::string controller = pod["metadata"]["ownerReferences"][0]["kind"];
  std::string name = pod["metadata"]["name"];
  // A StatefulSet keeps names.
  if (controller != "StatefulSet") name = name.substr(0, name.find(".m")) + ".m" + std::to_string(++made_);
  made["metadata"]["name"] = name;
  made["metadata"]["uid"] = "uid-" + std::to_string(++made_);
  made["spec"].erase("nodeName");
  Json& labels = made["metadata"]["labels"];
  if (labels.contains(kAttempt)) {
    uint32_t attempt = 0;
    (void)absl::SimpleAtoi(labels[kAttempt].get<std::string>(), &attempt);
    labels[kAttempt] = std::to_string(attempt + 1);
  }
  for (const auto& [key, node] : objects_) {
    if (absl::StartsWith(key, "nodes/") && !node["spec"].value("unschedulable", false))
      made["spec"]["nodeName"] = node["metadata"]["name"];
  }
  Store("pods/" + name, made);
}

}  // namespace c4::test
