// What the injector prints and writes into the plan file.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "fabric/inject/injector.h"

namespace c4::fabric {
namespace {

using Json = nlohmann::json;

bool TakesAny(const Path& path, const std::vector<Link>& links) {
  for (const Link& link : links) {
    if (Takes(path, link)) return true;
  }
  return false;
}

Json FlowJson(const Flow& flow, const std::vector<Link>& links) {
  return {{"source", flow.tuple.source},           {"source_port", flow.tuple.source_port},
          {"destination", flow.tuple.destination}, {"destination_port", flow.tuple.destination_port},
          {"from_rank", flow.from_rank},           {"to_rank", flow.to_rank},
          {"data", TakesAny(flow.data, links)},    {"acks", TakesAny(flow.acks, links)},
          {"sent_bytes", flow.sent_bytes},         {"moved_bytes", flow.moved_bytes},
          {"queued_bytes", flow.queued_bytes}};
}

Json Common(const Applied& applied, const char* event) {
  return {{"event", event},
          {"id", applied.id},
          {"kind", KindName(applied.injection.kind)},
          {"target", applied.injection.target},
          {"incarnation", applied.incarnation}};
}

std::string Amount(const Injection& injection) {
  switch (injection.kind) {
    case Kind::kSlowLink:
    case Kind::kSlowNic:
      return absl::StrFormat(" to %g Mbit/s", injection.rate_mbps);
    case Kind::kSlowRank:
      return absl::StrFormat(" to %g %% of a core", injection.percent);
    case Kind::kJitter:
      return absl::StrFormat(" of %g ms every %g ms", injection.pause_ms, injection.every_ms);
    default:
      return "";
  }
}

}  // namespace

std::string AppliedText(const Applied& applied) {
  std::string text =
      absl::StrFormat("%.3f inject %d: %s %s%s", applied.unix_s, applied.id, KindName(applied.injection.kind),
                      applied.injection.target, Amount(applied.injection));
  if (applied.injection.for_s > 0) absl::StrAppendFormat(&text, " for %g s", applied.injection.for_s);
  if (!applied.ranks.empty()) absl::StrAppend(&text, "; rank ", absl::StrJoin(applied.ranks, ", "));
  if (!applied.pids.empty()) absl::StrAppend(&text, "; process ", absl::StrJoin(applied.pids, ", "));
  if (!applied.links.empty()) {
    int data = 0, acks = 0;
    for (const Flow& flow : applied.flows) {
      if (TakesAny(flow.data, applied.links)) ++data;
      if (TakesAny(flow.acks, applied.links)) ++acks;
    }
    absl::StrAppend(
        &text, "; links ",
        absl::StrJoin(applied.links, ", ",
                      [](std::string* out, const Link& link) { absl::StrAppend(out, LinkName(link)); }),
        " with the data of ", data, " and the acknowledgements of ", acks, " connections");
  }
  return text;
}

std::string AppliedJson(const Applied& applied) {
  Json json = Common(applied, "inject");
  const Injection& injection = applied.injection;
  json["unix_s"] = applied.unix_s;
  json["done_unix_s"] = applied.done_unix_s;
  json["for_s"] = injection.for_s;
  if (injection.rate_mbps > 0) json["rate_mbps"] = injection.rate_mbps;
  if (injection.percent > 0) json["percent"] = injection.percent;
  if (injection.kind == Kind::kJitter) {
    json["pause_ms"] = injection.pause_ms;
    json["every_ms"] = injection.every_ms;
  }
  json["ranks"] = applied.ranks;
  json["pids"] = applied.pids;
  json["hosts"] = Json::array();
  for (const int host : applied.hosts) json["hosts"].push_back(HostName(host));
  json["links"] = Json::array();
  for (const Link& link : applied.links) json["links"].push_back(LinkName(link));
  json["flows"] = Json::array();
  for (const Flow& flow : applied.flows) json["flows"].push_back(FlowJson(flow, applied.links));
  return json.dump();
}

std::string HealedText(const Applied& applied, double unix_s) {
  return absl::StrFormat("%.3f heal %d: %s %s", unix_s, applied.id, KindName(applied.injection.kind),
                         applied.injection.target);
}

std::string HealedJson(const Applied& applied, double unix_s) {
  Json json = Common(applied, "heal");
  json["unix_s"] = unix_s;
  return json.dump();
}

}  // namespace c4::fabric
