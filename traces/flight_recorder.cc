#include "traces/flight_recorder.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace c4::traces {
namespace {

using analysis::GroupProgress;
using analysis::RankDump;
using nlohmann::json;

constexpr int kMaxRank = 1 << 24;
constexpr size_t kMaxMembers = 1 << 20;

absl::Status Wrong(const std::string& what) {
  return absl::InvalidArgumentError(what);
}

std::optional<int> LastNumber(const std::string& name) {
  const size_t end = name.find_last_of("0123456789");
  if (end == std::string::npos) return std::nullopt;
  size_t begin = end;
  while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
  int number = 0;
  const auto [last, error] = std::from_chars(name.data() + begin, name.data() + end + 1, number);
  if (error != std::errc() || number > kMaxRank) return std::nullopt;
  return number;
}

const json* Member(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string Text(const json* value) {
  if (value == nullptr) return "";
  return value->is_string() ? value->get<std::string>() : value->is_number_integer() ? value->dump() : "";
}

int64_t Number(const json* value, int64_t otherwise) {
  return value != nullptr && value->is_number_integer() ? value->get<int64_t>() : otherwise;
}

// A list, or a text that looks like one: "[0, 4]".
std::vector<int> Ranks(const json* value) {
  std::vector<int> ranks;
  if (value == nullptr) return ranks;
  if (value->is_string()) {
    const json list = json::parse(value->get<std::string>(), nullptr, false);
    return list.is_array() ? Ranks(&list) : ranks;
  }
  if (!value->is_array() || value->size() > kMaxMembers) return ranks;
  for (const json& one : *value) {
    const int64_t rank = Number(&one, -1);
    if (rank >= 0 && rank <= kMaxRank) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

class DumpParser {
 public:
  absl::StatusOr<RankDump> Parse(std::string_view text, const std::string& file_name) {
    const json dump = json::parse(text, nullptr, false);
    if (dump.is_discarded()) return Wrong("it is no JSON, or is cut off: convert the dump again");
    const json* entries = Member(dump, "entries");
    if (entries == nullptr || !entries->is_array())
      return Wrong("it is no Flight Recorder dump: it has no `entries`");
    const std::optional<int> rank = LastNumber(file_name);
    if (!rank) return Wrong("its name does not tell the rank: call it rank_N.json");
    dump_.rank = *rank;
    Groups(Member(dump, "pg_config"));
    for (const json& entry : *entries) Entry(entry);
    Status(Member(dump, "pg_status"));
    for (auto& [name, group] : dump_.groups) {
      if (group.last_entered < 0) FromEntries(name, &group);
    }
    if (dump_.groups.empty()) return Wrong("it names no process group: convert the dump with pg_config");
    return std::move(dump_);
  }

 private:
  struct Seen {
    int64_t entered = -1;
    int64_t completed = -1;
    int64_t first_open = -1;
  };

  void Groups(const json* config) {
    if (config == nullptr || !config->is_object()) return;
    for (const auto& [name, value] : config->items()) {
      GroupProgress& group = dump_.groups[name];
      group.description = Text(Member(value, "desc"));
      group.members = Ranks(Member(value, "ranks"));
      // The default group carries sends and receives of pipelines; so do the pipelines' own.
      group.point_to_point =
          group.description == "default_pg" || group.description.find("PIPELINE_MODEL_PARALLEL_GROUP") == 0;
    }
  }

  void Entry(const json& entry) {
    const json* names = Member(entry, "process_group");
    if (names == nullptr || !names->is_array() || names->empty()) return;
    const std::string name = Text(&names->front());
    if (name.empty()) return;
    GroupProgress& group = dump_.groups[name];
    if (group.description.empty() && names->size() > 1) group.description = Text(&names->at(1));
    const int64_t id = Number(Member(entry, "pg_id"), -1);
    if (id >= 0) name_of_id_[id] = name;
    const json* p2p = Member(entry, "is_p2p");
    if (p2p != nullptr && p2p->is_boolean() && p2p->get<bool>()) {
      group.point_to_point = true;
      return;
    }
    Seen& seen = seen_[name];
    const int64_t sequence = Number(Member(entry, "collective_seq_id"), -1);
    seen.entered = std::max(seen.entered, sequence);
    if (Text(Member(entry, "state")) == "completed") {
      seen.completed = std::max(seen.completed, sequence);
    } else if (seen.first_open < 0 || sequence < seen.first_open) {
      seen.first_open = sequence;
    }
  }

  // The last operations by local number of the group. Where no entry tells which group that is, the numbers'
  // order does: groups get both numbers and names as they are made.
  void Status(const json* status) {
    if (status == nullptr || !status->is_object()) return;
    std::map<int64_t, const json*> by_id;
    for (const auto& [key, value] : status->items()) {
      if (const std::optional<int> id = LastNumber(key)) by_id[*id] = &value;
    }
    NameByOrder(by_id);
    for (const auto& [id, value] : by_id) {
      const auto name = name_of_id_.find(id);
      if (name == name_of_id_.end()) continue;
      GroupProgress& group = dump_.groups[name->second];
      group.last_entered = Number(Member(*value, "last_enqueued_collective"), -1);
      group.last_completed = Number(Member(*value, "last_completed_collective"), -1);
    }
  }

  void NameByOrder(const std::map<int64_t, const json*>& by_id) {
    std::map<int, std::string> names;
    for (const auto& [name, group] : dump_.groups) {
      const std::optional<int> number = LastNumber(name);
      if (!number || std::to_string(*number) != name) return;
      names[*number] = name;
    }
    if (names.size() != by_id.size()) return;
    auto name = names.begin();
    std::map<int64_t, std::string> ordered;
    for (const auto& [id, value] : by_id) ordered[id] = (name++)->second;
    for (const auto& [id, known] : name_of_id_) {
      if (ordered[id] != known) return;  // the order does not hold
    }
    name_of_id_ = std::move(ordered);
  }

  void FromEntries(const std::string& name, GroupProgress* group) {
    const auto seen = seen_.find(name);
    if (seen == seen_.end()) return;
    group->last_entered = seen->second.entered;
    group->last_completed =
        seen->second.first_open >= 0 ? seen->second.first_open - 1 : seen->second.completed;
  }

  RankDump dump_;
  std::map<int64_t, std::string> name_of_id_;
  std::map<std::string, Seen> seen_;
};

}  // namespace

absl::StatusOr<RankDump> ParseFlightDump(std::string_view text, const std::string& file_name) {
  return DumpParser().Parse(text, file_name);
}

}  // namespace c4::traces
