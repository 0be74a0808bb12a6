#include "c4d_master/alerts/targets.h"

#include <algorithm>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "c4d_master/json_fields.h"
#include "service/http_post.h"
#include "service/text.h"
#include "service/token.h"

namespace c4::c4d {
namespace {

using service::Concat;
using Kind = AlertTarget::Kind;

constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMaxSecretBytes = 4096;
constexpr size_t kMinSecretBytes = 16;
constexpr double kMaxTimeoutSeconds = 60;
constexpr double kMaxRetrySeconds = 30.0 * 86400;

absl::Status CheckCommand(const std::vector<std::string>& command, JsonFields* fields) {
  if (command.empty()) {
    fields->Fail("\"command\" is a list of words, the program first: [\"/usr/local/bin/page\"]");
  } else if (!command.front().starts_with('/')) {
    fields->Fail(Concat("\"command\" runs ", command.front(),
                        "; give the program's whole path, no shell looks for it"));
  }
  return fields->status();
}

}  // namespace

absl::Status CheckAlertName(const std::string& what, const std::string& name) {
  const bool fits =
      !name.empty() && name.size() <= kMaxNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
      });
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Concat(what, " \"", service::ToUtf8(name), "\": a name is 1 to 64 letters, digits, '-', '_' or '.'"));
}

absl::StatusOr<AlertTarget> ReadTarget(const nlohmann::json& json, const std::string& name) {
  JsonFields fields(json, Concat("alert target ", name));
  AlertTarget target;
  target.name = name;
  const int ways = static_cast<int>(fields.Has("webhook")) + static_cast<int>(fields.Has("command")) +
                   static_cast<int>(fields.Has("alertmanager")) + static_cast<int>(fields.Has("otlp"));
  if (ways != 1) {
    fields.Fail(
        "give one of \"webhook\" (https://...), \"command\" (a list of words), \"alertmanager\" and "
        "\"otlp\"");
  }
  if (fields.Has("command")) target.kind = Kind::kCommand;
  if (fields.Has("alertmanager")) target.kind = Kind::kAlertmanager;
  if (fields.Has("otlp")) target.kind = Kind::kOtlp;
  fields.Texts("command", &target.command);
  fields.Text("webhook", &target.url);
  fields.Text("alertmanager", &target.url);
  fields.Text("otlp", &target.url);
  fields.Text("secret_file", &target.secret_file);
  fields.Text("ca_file", &target.ca_file);
  fields.Flag("allow_private", &target.allow_private);
  fields.Seconds("timeout_s", 0.1, kMaxTimeoutSeconds, &target.timeout_ns);
  fields.Seconds("retry_for_s", 0, kMaxRetrySeconds, &target.retry_for_ns);
  fields.Flag("retry_refused", &target.retry_refused);
  fields.Seconds("refresh_s", 1, 240, &target.refresh_ns);
  C4_RETURN_IF_NOT_OK(fields.Done());
  if (target.kind == Kind::kCommand) {
    C4_RETURN_IF_NOT_OK(CheckCommand(target.command, &fields));
    for (const char* key : {"secret_file", "ca_file", "allow_private"}) {
      if (fields.Has(key))
        fields.Fail(Concat("\"", key, "\" is for what goes over the network; leave it out"));
    }
    if (!fields.status().ok()) return fields.status();
    return target;
  }
  if (target.kind != Kind::kWebhook && !target.secret_file.empty()) {
    fields.Fail(Concat(target.kind == Kind::kOtlp ? "OTLP" : "Alertmanager",
                       " knows no signatures; leave \"secret_file\" out"));
    return fields.status();
  }
  if (const absl::Status usable = service::CheckHttpUrl(target.url, target.allow_private); !usable.ok()) {
    fields.Fail(Concat(target.kind == Kind::kWebhook ? "\"webhook\": "
                       : target.kind == Kind::kOtlp  ? "\"otlp\": "
                                                     : "\"alertmanager\": ",
                       usable.message()));
    return fields.status();
  }
  return target;
}

absl::Status PrepareTarget(AlertTarget* target) {
  const std::string place = Concat("alert target ", target->name);
  if (!target->command.empty() && access(target->command.front().c_str(), X_OK) != 0) {
    return absl::InvalidArgumentError(
        Concat(place, ": \"command\" names ", target->command.front(),
               ", which is not there or may not be executed by this user; install it or correct the path"));
  }
  if (!target->ca_file.empty() && access(target->ca_file.c_str(), R_OK) != 0) {
    return absl::InvalidArgumentError(
        Concat(place, ": \"ca_file\" names ", target->ca_file, ", which cannot be read; correct the path"));
  }
  if (target->secret_file.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> secret = service::ReadSecretFile(target->secret_file, kMaxSecretBytes);
  if (!secret.ok()) return service::Annotate(secret.status(), place);
  target->secret = std::string(absl::StripAsciiWhitespace(*secret));
  if (target->secret.size() < kMinSecretBytes) {
    return absl::InvalidArgumentError(
        Concat(place, ": the secret in ", target->secret_file, " is shorter than ", kMinSecretBytes,
               " bytes, so that it can be guessed; write a longer one: openssl rand -hex 32"));
  }
  return absl::OkStatus();
}

std::string WayText(const AlertTarget& target) {
  switch (target.kind) {
    case Kind::kCommand:
      return absl::StrJoin(target.command, " ");
    case Kind::kAlertmanager:
      return Concat("Alertmanager at ", target.url);
    case Kind::kOtlp:
      return Concat("OTLP at ", target.url);
    case Kind::kWebhook:
      break;
  }
  return target.url.substr(0, target.url.find('?'));
}

}  // namespace c4::c4d
