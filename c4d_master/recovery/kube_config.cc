#include "c4d_master/recovery/kube_config.h"

#include <cstdlib>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "c4d_master/json_fields.h"
#include "c4d_master/recovery/kube_words.h"
#include "service/http_post.h"
#include "service/run_dir.h"
#include "service/text.h"

namespace c4::c4d::recovery {
namespace {

using service::Concat;
using Json = nlohmann::json;

constexpr char kAccount[] = "/var/run/secrets/kubernetes.io/serviceaccount/";
constexpr double kDay = 86'400;
constexpr size_t kMaxSelector = 1000;
constexpr size_t kMaxNameBytes = 256;

bool IsSelector(const std::string& text) {
  if (text.size() > kMaxSelector) return false;
  for (const char c : text) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

// A token goes to no other machine in clear.
bool IsThisMachine(const std::string& server) {
  for (const char* begin : {"http://127.0.0.1:", "http://localhost:", "http://[::1]:"}) {
    if (absl::StartsWith(server, begin)) return true;
  }
  return false;
}

std::string Environment(const char* name) {
  const char* value = getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing writes the environment
  return value == nullptr ? "" : value;
}

absl::Status CheckFile(const std::string& path, const char* key) {
  if (access(path.c_str(), R_OK) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Concat("there is no file ", path, " that this user may read; say with \"", key,
             "\" of \"kubernetes\" where it is (a pod of a service account has one)"));
}

}  // namespace

absl::Status ReadKubernetes(const Json& json, KubernetesConfig* config) {
  JsonFields fields(json, "\"kubernetes\"");
  std::string jobset;
  fields.Text("server", &config->server);
  fields.Text("token_file", &config->token_file);
  fields.Text("ca_file", &config->ca_file);
  fields.Text("namespace", &config->kube_namespace);
  fields.Text("lease_namespace", &config->lease_namespace);
  fields.Text("lease", &config->lease);
  fields.Text("selector", &config->selector);
  fields.Text("jobset", &jobset);
  fields.Text("node_selector", &config->node_selector);
  fields.Texts("check", &config->check);
  fields.Seconds("grace_s", 0, 3600, &config->grace_ns);
  fields.Seconds("gone_s", 1, kDay, &config->gone_ns);
  fields.Seconds("lease_s", 5, 3600, &config->lease_ns);
  if (fields.Has("selector") && fields.Has("jobset")) {
    fields.Fail("\"selector\" and \"jobset\" both say which pods are the job's; give one");
  }
  if (fields.Has("jobset")) {
    if (!IsKubeName(jobset)) fields.Fail("\"jobset\" is the name of a JobSet, in lower case");
    config->selector = "jobset.sigs.k8s.io/jobset-name=" + jobset;
  }
  if (fields.Has("selector") && config->selector.empty()) {
    fields.Fail("\"selector\" is empty, which is every pod of the namespace; give labels, \"app=train\"");
  }
  if (!IsSelector(config->selector) || !IsSelector(config->node_selector)) {
    fields.Fail("a selector is a line of labels, \"app=train,tier in (a,b)\", of 1000 bytes at most");
  }
  for (const std::string* name : {&config->kube_namespace, &config->lease_namespace, &config->lease}) {
    if (!name->empty() && !IsKubeName(*name)) {
      fields.Fail(Concat("\"", service::ToUtf8(*name),
                         "\" is no name of Kubernetes; give lower case letters, digits and -"));
    }
  }
  for (const std::string* path : {&config->token_file, &config->ca_file}) {
    if (!path->empty() && path->front() != '/') fields.Fail(Concat("give the whole path of ", *path));
  }
  if (!config->check.empty() && !config->check.front().starts_with('/')) {
    fields.Fail("\"check\" is a list of words, the program by its whole path first");
  }
  C4_RETURN_IF_NOT_OK(fields.Done());
  if (config->server.empty()) return absl::OkStatus();
  if (absl::EndsWith(config->server, "/")) config->server.pop_back();
  if (!absl::StartsWith(config->server, "https://") && !IsThisMachine(config->server)) {
    fields.Fail(Concat("\"server\" is ", service::ToUtf8(config->server),
                       "; give https://host:port, for a token goes to another machine only with TLS"));
    return fields.status();
  }
  return service::Annotate(service::CheckHttpUrl(config->server, true), "\"server\" of \"kubernetes\"");
}

absl::Status PrepareKubernetes(KubernetesConfig* config) {
  if (config->server.empty()) {
    std::string host = Environment("KUBERNETES_SERVICE_HOST");
    const std::string port = Environment("KUBERNETES_SERVICE_PORT");
    if (host.empty() || port.empty()) {
      return absl::InvalidArgumentError(
          "this is no pod of Kubernetes (KUBERNETES_SERVICE_HOST and _PORT are not set); give \"server\" of "
          "\"kubernetes\", https://host:port");
    }
    if (absl::StrContains(host, ':')) host = Concat("[", host, "]");
    config->server = Concat("https://", host, ":", port);
    C4_RETURN_IF_NOT_OK(
        service::Annotate(service::CheckHttpUrl(config->server, true), "KUBERNETES_SERVICE_HOST and _PORT"));
  }
  if (config->token_file.empty()) config->token_file = Concat(kAccount, "token");
  C4_RETURN_IF_NOT_OK(CheckFile(config->token_file, "token_file"));
  if (absl::StartsWith(config->server, "https://")) {
    if (config->ca_file.empty()) config->ca_file = Concat(kAccount, "ca.crt");
    C4_RETURN_IF_NOT_OK(CheckFile(config->ca_file, "ca_file"));
  }
  if (config->kube_namespace.empty() || config->lease_namespace.empty()) {
    const auto own =
        service::ReadSmallFile(Concat(kAccount, "namespace"), kMaxNameBytes, service::Links::kFollow);
    const std::string name(absl::StripAsciiWhitespace(own.value_or("")));
    if (config->kube_namespace.empty()) config->kube_namespace = name;
    // Of a master outside: beside the job.
    if (config->lease_namespace.empty())
      config->lease_namespace = name.empty() ? config->kube_namespace : name;
    if (!IsKubeName(config->kube_namespace)) {
      return absl::InvalidArgumentError(
          "nothing says in which namespace the job's pods are; give \"namespace\" of \"kubernetes\"");
    }
  }
  return absl::OkStatus();
}

}  // namespace c4::c4d::recovery
