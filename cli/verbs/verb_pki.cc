// c4 pki: a small authority, keys and tokens, for clusters that have nothing of their own.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <optional>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/verb.h"
#include "service/certificate.h"
#include "service/pki.h"
#include "service/run_dir.h"
#include "service/token.h"

namespace c4::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kSummary[] = "keys, tokens and certificates that say who is who";
constexpr char kUsage[] =
    "c4 pki: keys, tokens and certificates that say who is who\n\n"
    "usage: c4 pki VERB [OPTIONS] ...; `c4 pki VERB --help` lists the options\n\n"
    "  init DIR      make an authority: DIR/ca.pem and DIR/ca.key\n"
    "  issue PREFIX  make a certificate and its key for one program\n"
    "  renew FILE    make a certificate valid for longer\n"
    "  key FILE      make a key that signs and checks tokens\n"
    "  token         sign a token for one program or person\n"
    "  show FILE     say what a certificate, token or key is, without its secret\n";
constexpr size_t kMaxFileBytes = 1024 * 1024;
constexpr double kLongestHours = 24 * 366;

std::string Dumped(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace);
}

// For whom a token or certificate is; the same words for both.
struct Subject {
  std::string role;
  std::string host;
  std::string job;
  std::string name;

  void Declare(Options* options) {
    options->Text("--role", &role, "ROLE", "job, agent, job-master, path-master, operator or reader");
    options->Text("--host", &host, "HOST", "of an agent: the only host that it may speak for");
    options->Text("--job", &job, "JOB", "the only job that it is good for");
    options->Text("--name", &name, "NAME", "of an operator or reader, for the audit");
  }
  absl::StatusOr<service::Identity> Read() const {
    const std::optional<service::Role> known = service::RoleFromWord(role);
    if (!known.has_value()) {
      return absl::InvalidArgumentError(
          "say with --role which of job, agent, job-master, path-master, operator and reader");
    }
    return service::Identity{.role = *known, .host = host, .job = job, .name = name};
  }
};

int Ended(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  fprintf(stderr, "c4 pki: %s\n", std::string(status.message()).c_str());
  return kExitFailed;
}

int Init(const Arguments& arguments) {
  std::string directory;
  std::string name = "C4 authority";
  int days = 3650;
  Options options("pki init", "make an authority: DIR/ca.pem and DIR/ca.key");
  options.Text("--name", &name, "NAME", "what its certificate says");
  options.Whole("--days", &days, 1, 3650, "how long it is valid");
  options.Word("DIR", &directory, "a new folder, or one without an authority");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  return Ended(service::InitAuthority(directory, name, days));
}

int Issue(const Arguments& arguments) {
  std::string directory, prefix;
  std::vector<std::string> names;
  Subject subject;
  int days = 30;
  Options options("pki issue", "make a certificate and its key for one program");
  options.Text("--dir", &directory, "DIR", "of the authority");
  bool json = false;
  options.Flag("--json", &json, "one JSON document: {\"ca\",\"certificate\",\"key\"}");
  subject.Declare(&options);
  options.List("--also", &names, "NAME", "a further name of the certificate, DNS:host or IP:address");
  options.Whole("--days", &days, 1, 3650, "how long it is valid");
  options.Word("PREFIX", &prefix, "writes PREFIX.pem and PREFIX.key");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (directory.empty()) return UsageError("pki issue", "name the authority's folder with --dir");
  const absl::StatusOr<service::Identity> identity = subject.Read();
  if (!identity.ok()) return UsageError("pki issue", std::string(identity.status().message()));
  const auto files = service::IssueCertificate(directory, *identity, names, days, prefix);
  if (!files.ok()) return Ended(files.status());
  if (json) {
    const Json document = {{"ca", files->ca}, {"certificate", files->certificate}, {"key", files->key}};
    printf("%s\n", Dumped(document).c_str());
    return kExitOk;
  }
  printf("--tls-ca %s --tls-cert %s --tls-key %s\n", files->ca.c_str(), files->certificate.c_str(),
         files->key.c_str());
  return kExitOk;
}

int Renew(const Arguments& arguments) {
  std::string directory, certificate;
  int days = 30;
  Options options("pki renew", "make a certificate valid for longer; daemons take it up by themselves");
  options.Text("--dir", &directory, "DIR", "of the authority");
  options.Whole("--days", &days, 1, 3650, "how long from now on");
  options.Word("FILE", &certificate, "the certificate, which is replaced");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (directory.empty()) return UsageError("pki renew", "name the authority's folder with --dir");
  return Ended(service::RenewCertificate(directory, certificate, days));
}

int Key(const Arguments& arguments) {
  std::string path;
  Options options("pki key", "make a key that signs and checks tokens (daemons: --key-file)");
  options.Word("FILE", &path, "a new file, or one whose keys are to be changed: the new one goes first");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  const absl::StatusOr<std::string> line = service::NewKeyLine();
  if (!line.ok()) return Ended(line.status());
  absl::StatusOr<std::string> old = service::ReadSecretFile(path, kMaxFileBytes);
  if (absl::IsNotFound(old.status())) old = std::string();
  if (!old.ok()) return Ended(old.status());
  if (!old->empty()) {
    if (const auto keys = service::ParseKeys(*old, path); !keys.ok()) return Ended(keys.status());
  }
  return Ended(service::WriteFileAtomically(path, absl::StrCat(*line, "\n", *old), 0600));
}

int Token(const Arguments& arguments) {
  std::string key_file, out;
  Subject subject;
  double hours = 24;
  bool json = false;
  Options options("pki token", "sign a token for one program or person");
  options.Text("--key-file", &key_file, "FILE", "the key that the daemons have", "C4_KEY_FILE");
  subject.Declare(&options);
  options.Real("--hours", &hours, 0.01, kLongestHours, "HOURS", "how long it is valid");
  options.Flag("--json", &json, "what is printed as a JSON document: {\"token\"}");
  options.Text("--out", &out, "FILE", "write it here, 0600, in place of what is there; default: print it");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (key_file.empty()) return UsageError("pki token", "name the key with --key-file");
  const absl::StatusOr<service::Identity> identity = subject.Read();
  if (!identity.ok()) return UsageError("pki token", std::string(identity.status().message()));
  const absl::StatusOr<std::string> text = service::ReadSecretFile(key_file, kMaxFileBytes);
  if (!text.ok()) return Ended(text.status());
  const absl::StatusOr<service::TokenKeys> keys = service::ParseKeys(*text, key_file);
  if (!keys.ok()) return Ended(keys.status());
  const int64_t now_s = time(nullptr);
  const absl::StatusOr<std::string> token =
      service::IssueToken(keys->front(), {.identity = *identity,
                                          .not_before_s = now_s,
                                          .expires_s = now_s + static_cast<int64_t>(hours * 3600)});
  if (!token.ok()) return Ended(token.status());
  if (!out.empty()) return Ended(service::WriteFileAtomically(out, *token + "\n", 0600));
  printf("%s\n", json ? Dumped({{"token", *token}}).c_str() : token->c_str());
  return kExitOk;
}

int Show(const Arguments& arguments) {
  std::string path;
  bool json = false;
  Options options("pki show", "say what a certificate, token or key is, without its secret");
  options.Flag("--json", &json, "one JSON document: {\"is\",...}");
  options.Word("FILE", &path, "the file");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  const absl::StatusOr<std::string> content =
      service::ReadSmallFile(path, kMaxFileBytes, service::Links::kFollow);
  if (!content.ok()) return Ended(content.status());
  if (content->find("-----BEGIN CERTIFICATE") != std::string::npos) {
    const std::string text = service::DescribeCertificateFile(path);
    printf("%s\n",
           json ? Dumped({{"is", "certificate"}, {"text", text}}).c_str() : ("certificate " + text).c_str());
    return kExitOk;
  }
  const std::string line(absl::StripAsciiWhitespace(*content));
  if (const auto claims = service::ReadTokenClaims(line); claims.ok()) {
    const std::string who = service::Describe(claims->identity);
    const std::string until = absl::FormatTime("%Y-%m-%d %H:%M:%S UTC",
                                               absl::FromUnixSeconds(claims->expires_s), absl::UTCTimeZone());
    if (json) {
      const Json document = {
          {"is", "token"}, {"for", who}, {"key", claims->key_id}, {"expires_unix_s", claims->expires_s}};
      printf("%s\n", Dumped(document).c_str());
    } else {
      printf("token: %s, key %s, until %s\n", who.c_str(), claims->key_id.c_str(), until.c_str());
    }
    return kExitOk;
  }
  const auto keys = service::ParseKeys(*content, path);
  if (!keys.ok()) {
    return Ended(absl::InvalidArgumentError(absl::StrCat(path, " is no certificate, token or key file")));
  }
  if (json) {
    Json document = {{"is", "keys"}, {"ids", Json::array()}, {"signs", keys->front().id}};
    for (const service::TokenKey& key : *keys) document["ids"].push_back(key.id);
    printf("%s\n", Dumped(document).c_str());
    return kExitOk;
  }
  for (const service::TokenKey& key : *keys) {
    printf("key %s%s\n", key.id.c_str(), &key == &keys->front() ? ": signs" : "");
  }
  return kExitOk;
}

struct Part {
  const char* word;
  int (*run)(const Arguments& arguments);
};

constexpr Part kParts[] = {{"init", Init}, {"issue", Issue}, {"renew", Renew},
                           {"key", Key},   {"token", Token}, {"show", Show}};

int RunPki(const Arguments& arguments) {
  if (!arguments.empty()) {
    const Part* const part = std::find_if(std::begin(kParts), std::end(kParts), [&](const Part& candidate) {
      return arguments.front() == candidate.word;
    });
    if (part != std::end(kParts)) return part->run({arguments.begin() + 1, arguments.end()});
    if (const std::optional<int> exit_code = HelpOrVersion(arguments.front(), kUsage)) return *exit_code;
  }
  return UsageError("pki", "say first: init, issue, renew, key, token or show");
}

}  // namespace

constinit const Verb kPkiVerb = {"pki", kSummary, RunPki};

}  // namespace c4::cli
