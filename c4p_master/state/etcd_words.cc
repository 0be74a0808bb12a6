#include "c4p_master/state/etcd_words.h"

#include <cstdint>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "service/status.h"
#include "service/text.h"

namespace c4::c4p {
namespace {

using Json = nlohmann::json;
using service::Concat;

constexpr char kLease[] = "leader";
constexpr char kEpoch[] = "epoch";
constexpr char kRecords[] = "state/";
constexpr size_t kMostText = 300;
constexpr int kServerError = 500;
constexpr int64_t kPermissionDenied = 7;  // of gRPC

std::string Base64(std::string_view text) {
  return absl::Base64Escape(absl::string_view(text.data(), text.size()));
}

Json Put(const std::string& key, const std::string& value) {
  return {{"requestPut", {{"key", Base64(key)}, {"value", Base64(value)}}}};
}

// Integers of 64 bits come as text.
int64_t IntegerOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) return 0;
  int64_t number = 0;
  if (found->is_number_integer()) return found->get<int64_t>();
  return found->is_string() && absl::SimpleAtoi(found->get<std::string>(), &number) ? number : 0;
}

absl::Status NoAnswer(const std::string& what) {
  return absl::FailedPreconditionError(Concat("what answers is no etcd of version 3.4 or later: ", what));
}

absl::StatusOr<Json> Parse(const std::string& answer) {
  Json json = Json::parse(answer, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("header")) return NoAnswer("its answer has no header");
  return json;
}

absl::StatusOr<std::string> TextOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) return std::string();
  std::string text;
  if (!found->is_string() || !absl::Base64Unescape(found->get<std::string>(), &text)) {
    return NoAnswer(Concat("its ", key, " is no base64"));
  }
  return text;
}

}  // namespace

absl::StatusOr<EtcdPlace> ParseEtcdPlace(const std::string& text) {
  constexpr std::string_view kScheme = "etcd://";
  constexpr std::string_view kTlsScheme = "etcds://";
  const auto refuse = [&] {
    return absl::InvalidArgumentError(Concat(
        "--store ", text, " is no etcd[s]://HOST:PORT[,HOST:PORT...][/PREFIX], as etcd://10.0.0.1:2379"));
  };
  const bool tls = text.starts_with(kTlsScheme);
  if (!tls && !text.starts_with(kScheme)) return refuse();
  const std::string rest = text.substr((tls ? kTlsScheme : kScheme).size());
  const size_t slash = rest.find('/');
  EtcdPlace place;
  if (slash != std::string::npos && slash + 1 < rest.size()) place.prefix = rest.substr(slash + 1);
  if (!place.prefix.ends_with('/')) place.prefix += '/';
  for (const absl::string_view part : absl::StrSplit(rest.substr(0, slash), ',')) {
    const std::string one(part);
    const size_t colon = one.rfind(':');
    uint32_t port = 0;
    if (colon == std::string::npos || colon == 0 || !absl::SimpleAtoi(one.substr(colon + 1), &port) ||
        port == 0 || port > UINT16_MAX || one.find_first_of("@?# ") != std::string::npos) {
      return refuse();
    }
    place.endpoints.push_back((tls ? "https://" : "http://") + one);
  }
  return place;
}

std::string EtcdReadLease(const std::string& prefix) {
  return Json({{"key", Base64(prefix + kLease)}}).dump();
}

std::string EtcdWriteLease(const std::string& prefix, const Leadership::Step& step) {
  const Json lease = {{"holder", service::ToUtf8(step.record.holder)},
                      {"epoch", std::to_string(step.record.epoch)},
                      {"renewals", std::to_string(step.record.renewals)}};
  Json success = Json::array({Put(prefix + kLease, lease.dump())});
  if (step.takes) success.push_back(Put(prefix + kEpoch, std::to_string(step.record.epoch)));
  return Json({{"compare", Json::array({{{"key", Base64(prefix + kLease)},
                                         {"target", "MOD"},
                                         {"result", "EQUAL"},
                                         {"modRevision", std::to_string(step.revision)}}})},
               {"success", std::move(success)}})
      .dump();
}

std::string EtcdWrite(const std::string& prefix, uint64_t epoch, const std::vector<StateChange>& changes) {
  Json success = Json::array();
  for (const StateChange& change : changes) {
    const std::string key = prefix + kRecords + change.key;
    success.push_back(change.value ? Put(key, *change.value)
                                   : Json({{"requestDeleteRange", {{"key", Base64(key)}}}}));
  }
  return Json({{"compare", Json::array({{{"key", Base64(prefix + kEpoch)},
                                         {"target", "VALUE"},
                                         {"result", "EQUAL"},
                                         {"value", Base64(std::to_string(epoch))}}})},
               {"success", std::move(success)}})
      .dump();
}

std::string EtcdLogIn(const EtcdPlace& place) {
  return Json({{"name", place.user}, {"password", place.password}})
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string EtcdCompact(int64_t revision) {
  return Json({{"revision", std::to_string(revision)}}).dump();
}

std::string EtcdList(const std::string& prefix, const std::string& from, size_t most) {
  // One past the last key that begins so.
  std::string end = prefix + kRecords;
  ++end.back();
  return Json({{"key", Base64(from.empty() ? prefix + kRecords : from)},
               {"range_end", Base64(end)},
               {"limit", std::to_string(most)}})
      .dump();
}

absl::StatusOr<LeaseSeen> ReadEtcdLease(const std::string& answer) {
  const absl::StatusOr<Json> json = Parse(answer);
  if (!json.ok()) return json.status();
  LeaseSeen seen;
  const auto found = json->find("kvs");
  if (found == json->end() || !found->is_array() || found->empty()) return seen;
  const absl::StatusOr<std::string> value = TextOf(found->front(), "value");
  if (!value.ok()) return value.status();
  const Json lease = Json::parse(*value, nullptr, /*allow_exceptions=*/false);
  const auto holder = lease.is_object() ? lease.find("holder") : lease.end();
  if (!lease.is_object() || holder == lease.end() || !holder->is_string() || IntegerOf(lease, "epoch") <= 0) {
    return absl::DataLossError(
        "what stands in etcd as the lease of path masters is none; see who else writes there, or give "
        "another "
        "PREFIX in --store");
  }
  seen.record = {holder->get<std::string>(), static_cast<uint64_t>(IntegerOf(lease, "epoch")),
                 static_cast<uint64_t>(IntegerOf(lease, "renewals"))};
  seen.revision = IntegerOf(found->front(), "mod_revision");
  return seen;
}

absl::StatusOr<EtcdWritten> ReadEtcdWritten(const std::string& answer) {
  const absl::StatusOr<Json> json = Parse(answer);
  if (!json.ok()) return json.status();
  EtcdWritten written;
  const auto succeeded = json->find("succeeded");
  written.written = succeeded != json->end() && succeeded->is_boolean() && succeeded->get<bool>();
  written.revision = IntegerOf((*json)["header"], "revision");
  if (written.written && written.revision <= 0) return NoAnswer("a write has no revision");
  return written;
}

absl::StatusOr<EtcdPage> ReadEtcdPage(const std::string& prefix, const std::string& answer) {
  const absl::StatusOr<Json> json = Parse(answer);
  if (!json.ok()) return json.status();
  EtcdPage page;
  const auto found = json->find("kvs");
  if (found == json->end() || !found->is_array()) return page;
  const std::string records = prefix + kRecords;
  std::string last;
  for (const Json& one : *found) {
    const absl::StatusOr<std::string> key = TextOf(one, "key");
    absl::StatusOr<std::string> value = TextOf(one, "value");
    if (!key.ok()) return key.status();
    if (!value.ok()) return value.status();
    if (!key->starts_with(records)) return NoAnswer("it lists what nobody asked for");
    page.records.emplace_back(key->substr(records.size()), *std::move(value));
    last = *key;
  }
  const auto more = json->find("more");
  if (more != json->end() && more->is_boolean() && more->get<bool>() && !last.empty()) {
    page.next = last + '\0';
  }
  return page;
}

absl::StatusOr<std::string> ReadEtcdToken(const std::string& answer) {
  const absl::StatusOr<Json> json = Parse(answer);
  if (!json.ok()) return json.status();
  const auto token = json->find("token");
  if (token == json->end() || !token->is_string()) return NoAnswer("a login gives no token");
  return token->get<std::string>();
}

bool LooksLikeEtcd(const std::string& answer) {
  constexpr size_t kHead = 64;
  return answer.starts_with('{') && answer.substr(0, kHead).find("\"header\"") != std::string::npos;
}

absl::Status ExplainEtcdError(const EtcdPlace& place, const std::string& endpoint, int http_status,
                              const std::string& body) {
  const std::string etcd = Concat("etcd at ", endpoint);
  // A trailer may stand behind the text.
  const Json json = Json::parse(body.substr(0, body.rfind('}') + 1), nullptr, /*allow_exceptions=*/false);
  const std::string said =
      service::ToUtf8(json.is_object() && json.contains("error") && json["error"].is_string()
                          ? json["error"].get<std::string>().substr(0, kMostText)
                          : body.substr(0, kMostText));
  const std::string answers = Concat(etcd, " answers ", http_status, ": ", said);
  const auto says = [&](const char* text) { return said.find(text) != std::string::npos; };
  const int64_t code = json.is_object() ? IntegerOf(json, "code") : 0;
  if (code == 0) {
    // A proxy in between may say that etcd does not answer.
    if (http_status >= kServerError) return absl::UnavailableError(answers);
    return absl::FailedPreconditionError(Concat(
        "what answers at ", endpoint, " is no etcd of version 3.4 or later with its JSON gateway (answer ",
        http_status, ": ", said, "); see --store"));
  }
  if (says("space exceeded")) {
    return absl::ResourceExhaustedError(
        Concat(etcd, " is out of space (", said,
               "), so that no path master can lead: make room with `etcdctl compact REVISION` and "
               "`etcdctl defrag`, or give it a larger --quota-backend-bytes; then `etcdctl alarm disarm`"));
  }
  if (says("user name is empty") && place.user.empty()) {
    return absl::PermissionDeniedError(Concat(
        etcd, " asks who we are (", said,
        "): write NAME:PASSWORD of one of its users into a file that only this master's user can read, "
        "and give it as --store-user-file"));
  }
  if (says("authentication is not enabled")) {
    return absl::NotFoundError(
        Concat(etcd, " knows no users (", said,
               "), so that anyone may write there, though --store-user-file is given"));
  }
  if (says("invalid user ID or password")) {
    return absl::PermissionDeniedError(Concat(etcd, " refuses its user ", service::ToUtf8(place.user), " (",
                                              said, "): see name and password in --store-user-file"));
  }
  if (says("user name is empty") || says("invalid auth token") || says("revision of auth store is old")) {
    return absl::UnauthenticatedError(answers);
  }
  if (code == kPermissionDenied) {
    return absl::PermissionDeniedError(
        Concat(etcd, " does not let its user ", service::ToUtf8(place.user), " use the keys below ",
               service::ToUtf8(place.prefix), " (", said,
               "): `etcdctl role grant-permission ROLE readwrite --prefix=true ",
               service::ToUtf8(place.prefix), "`"));
  }
  if (says("has been compacted")) return absl::OutOfRangeError(answers);
  return absl::UnavailableError(answers);
}

}  // namespace c4::c4p
