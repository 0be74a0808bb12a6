// The language that exec, webhook and local drivers speak.
#include <nlohmann/json.hpp>

#include "c4d_master/json_fields.h"
#include "c4d_master/recovery/driver.h"
#include "service/text.h"

namespace c4::c4d::recovery {
namespace {

using service::Concat;
using Json = nlohmann::ordered_json;

constexpr size_t kMaxNodes = 100'000;
constexpr size_t kMaxNameBytes = 256;
constexpr double kMaxUnixSeconds = 1e11;
constexpr double kMaxIncarnation = 1e9;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, nlohmann::detail::error_handler_t::replace);
}

}  // namespace

const char* VerbOf(Command::Kind kind) {
  switch (kind) {
    case Command::Kind::kIsolate:
      return "isolate";
    case Command::Kind::kRestart:
      return "restart";
    case Command::Kind::kCheck:
      return "check";
    case Command::Kind::kGiveBack:
      return "give-back";
  }
  return "";
}

std::string RequestJson(const std::string& job, const Command& command) {
  Json json = {{"verb", VerbOf(command.kind)}, {"job", job},
               {"command", command.id},        {"attempt", command.attempt},
               {"incident", command.incident}, {"reason", command.reason}};
  if (command.kind != Command::Kind::kRestart) {
    json["node"] = command.node;
    return Dump(json);
  }
  json["from"] = command.from;
  json["to"] = command.to;
  json["exclude"] = command.exclude;
  json["replace"] = Json::array();
  for (const Command::Replacement& replacement : command.replace) {
    json["replace"].push_back({{"node", replacement.node}, {"backup", replacement.backup}});
  }
  return Dump(json);
}

std::string LookJson(const std::string& job) {
  return Dump(Json{{"verb", "look"}, {"job", job}});
}

DriverReply ReadReply(const std::string& text) {
  const auto wrong = [](const std::string& what) {
    return DriverReply{.outcome = Event::Outcome::kUnknown, .text = Concat("the driver's answer: ", what)};
  };
  const absl::StatusOr<nlohmann::json> json = ParseJsonObject(text);
  if (!json.ok()) return wrong(std::string(json.status().message()));
  JsonFields fields(*json, "it");
  std::string outcome, why;
  double checkpoint_s = 0;
  fields.Word("outcome", {"done", "refused"}, &outcome);
  fields.Text("text", &why);
  fields.Number("checkpoint_unix_s", 0, kMaxUnixSeconds, &checkpoint_s);
  fields.Known("nodes");
  if (const absl::Status read = fields.Done(); !read.ok()) return wrong(std::string(read.message()));
  if (outcome.empty()) return wrong("it has no \"outcome\" (done, refused)");
  return {.outcome = outcome == "done" ? Event::Outcome::kDone : Event::Outcome::kRefused,
          .text = service::ToUtf8(why.substr(0, 500)),
          .checkpoint_ns = static_cast<int64_t>(checkpoint_s * 1e9)};
}

absl::StatusOr<Inventory> ReadInventory(const std::string& text) {
  const absl::StatusOr<nlohmann::json> json = ParseJsonObject(text);
  if (!json.ok()) return json.status();
  JsonFields fields(*json, "the driver's answer");
  const nlohmann::json* const nodes = fields.List("nodes");
  fields.Known("outcome");
  fields.Known("text");
  double failed = -1;
  fields.Number("failed", 0, kMaxIncarnation, &failed);
  C4_RETURN_IF_NOT_OK(fields.Done());
  if (nodes == nullptr || nodes->size() > kMaxNodes) {
    return absl::InvalidArgumentError(
        "the driver's answer has no list of \"nodes\", or one that is too long");
  }
  Inventory inventory;
  if (failed >= 0) inventory.failed = static_cast<uint32_t>(failed);
  for (const nlohmann::json& item : *nodes) {
    Event::Seen node;
    std::string state;
    JsonFields of_node(item, Concat("node number ", inventory.nodes.size() + 1, " of the driver's answer"));
    of_node.Text("name", &node.node);
    of_node.Word("state", {"free", "isolated", "other", "gone"}, &state);
    of_node.Flag("in_use", &node.in_use);
    if (node.node.empty() || node.node.size() > kMaxNameBytes) of_node.Fail("it has no \"name\"");
    if (state.empty()) of_node.Fail("it has no \"state\" (free, isolated, other, gone)");
    C4_RETURN_IF_NOT_OK(of_node.Done());
    node.sight = state == "free"       ? Event::Sight::kFree
                 : state == "isolated" ? Event::Sight::kIsolated
                 : state == "other"    ? Event::Sight::kOther
                                       : Event::Sight::kGone;
    inventory.nodes.push_back(std::move(node));
  }
  return inventory;
}

}  // namespace c4::c4d::recovery
