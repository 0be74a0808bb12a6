#include "cli/text/drain_text.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace c4::cli {
namespace {

using nlohmann::json;
using Names = google::protobuf::RepeatedPtrField<std::string>;

constexpr int kMostMoves = 20;
constexpr int kJsonIndent = 2;

std::vector<std::string> ListOf(const Names& names) {
  return {names.begin(), names.end()};
}

const char* KindWord(v1::PathEventKind kind) {
  switch (kind) {
    case v1::PATH_EVENT_KIND_MOVE:
      return "moved";
    case v1::PATH_EVENT_KIND_LINK_DOWN:
      return "down";
    case v1::PATH_EVENT_KIND_LINK_BACK:
      return "back";
    case v1::PATH_EVENT_KIND_HELD:
      return "held";
    case v1::PATH_EVENT_KIND_DRAINED:
      return "drained";
    case v1::PATH_EVENT_KIND_UNDRAINED:
      return "given-back";
    case v1::PATH_EVENT_KIND_EXPERIMENT:
      return "experiment";
    default:
      return "other";
  }
}

// What lies between switches; all, where nothing does.
std::string Between(const Names& links) {
  std::vector<std::string> between;
  for (int i = 1; i + 1 < links.size(); ++i) between.push_back(links[i]);
  return links.empty()     ? "not known"
         : between.empty() ? absl::StrJoin(links, " ")
                           : absl::StrJoin(between, " ");
}

std::string MoveText(const v1::PathEvent& move) {
  return absl::StrFormat("queue pair %d of %s: %s to %s (%s)", move.queue_pair(), move.connection(),
                         Between(move.from_links()), Between(move.to_links()), move.why());
}

json EventJson(const v1::PathEvent& event) {
  json entry = {{"age_s", static_cast<double>(event.age_ns()) * 1e-9},
                {"kind", KindWord(event.kind())},
                {"why", event.why()}};
  if (!event.cable().empty()) entry["cable"] = event.cable();
  if (!event.job().empty()) entry["job"] = event.job();
  if (event.connection().empty()) return entry;
  entry["connection"] = event.connection();
  entry["queue_pair"] = event.queue_pair();
  entry["from_links"] = ListOf(event.from_links());
  entry["to_links"] = ListOf(event.to_links());
  return entry;
}

}  // namespace

std::string DrainText(const v1::DrainPathsRequest& asked, const v1::DrainPathsReply& reply) {
  if (!reply.refused().empty()) return absl::StrCat("refused: ", reply.refused(), "\n");
  const std::string done = asked.undrain()
                               ? (asked.dry_run() ? "would be used again" : "used again")
                               : (asked.dry_run() ? "would not be used any more" : "not used any more");
  std::string text = reply.cables().empty()
                         ? absl::StrCat(asked.target(),
                                        asked.undrain() ? ": no link is used that was not before"
                                                        : ": none of its links was in use",
                                        "\n")
                         : absl::StrCat(absl::StrJoin(reply.cables(), ", "), ": ", done, "\n");
  const int planned = asked.dry_run() ? static_cast<int>(reply.to_come()) : reply.moves_size();
  absl::StrAppend(&text, planned, planned == 1 ? " queue pair" : " queue pairs",
                  asked.dry_run() ? " would move" : " move");
  if (!asked.dry_run() && reply.to_come() > 0)
    absl::StrAppend(&text, ", ", reply.to_come(), " of them later");
  text += '\n';
  for (int i = 0; i < reply.moves_size() && i < kMostMoves; ++i) {
    absl::StrAppend(&text, "  ", MoveText(reply.moves(i)), "\n");
  }
  if (reply.moves_size() > kMostMoves)
    absl::StrAppend(&text, "  ", reply.moves_size() - kMostMoves, " more: --json\n");
  for (const std::string& connection : reply.stranded()) {
    absl::StrAppend(&text, connection, " has no other way that is known: it stays where it is\n");
  }
  return text;
}

std::string DrainJson(const v1::DrainPathsRequest& asked, const v1::DrainPathsReply& reply) {
  json moves = json::array();
  for (const v1::PathEvent& move : reply.moves()) moves.push_back(EventJson(move));
  return json({{"target", asked.target()},
               {"dry_run", asked.dry_run()},
               {"refused", reply.refused()},
               {"cables", ListOf(reply.cables())},
               {"moves", std::move(moves)},
               {"to_come", reply.to_come()},
               {"stranded", ListOf(reply.stranded())}})
      .dump(kJsonIndent);
}

std::string HistoryText(const v1::ListPathHistoryReply& reply) {
  if (reply.events().empty())
    return "nothing has befallen links or queue pairs since this path master began\n";
  std::string text;
  if (reply.forgotten() > 0) absl::StrAppend(&text, reply.forgotten(), " older events are forgotten\n");
  for (const v1::PathEvent& event : reply.events()) {
    absl::StrAppendFormat(&text, "%8.0f s ago  %-10s  ", static_cast<double>(event.age_ns()) * 1e-9,
                          KindWord(event.kind()));
    if (event.kind() == v1::PATH_EVENT_KIND_MOVE) {
      absl::StrAppend(&text, MoveText(event), "\n");
    } else {
      absl::StrAppend(&text, event.cable().empty() ? event.job() : event.cable(), ": ", event.why(), "\n");
    }
  }
  return text;
}

std::string HistoryJson(const v1::ListPathHistoryReply& reply) {
  json events = json::array();
  for (const v1::PathEvent& event : reply.events()) events.push_back(EventJson(event));
  return json({{"events", std::move(events)}, {"forgotten", reply.forgotten()}}).dump(kJsonIndent);
}

}  // namespace c4::cli
