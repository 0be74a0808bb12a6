#include "traces/flight_recorder.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "traces/dump_value.h"

namespace c4::traces {
namespace {

using analysis::GroupProgress;
using analysis::OpenOperation;
using analysis::RankDump;
using Value = DumpTree::Value;
using Kind = DumpTree::Kind;

constexpr int kMaxRank = 1 << 24;
constexpr size_t kMaxMembers = 1 << 20;

absl::Status Wrong(const std::string& what) {
  return absl::InvalidArgumentError(what);
}

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

std::optional<int> NumberAt(std::string_view text, size_t at) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number > kMaxRank) return std::nullopt;
  return number;
}

std::optional<int> LastNumber(std::string_view name) {
  size_t begin = name.find_last_of("0123456789");
  if (begin == std::string_view::npos) return std::nullopt;
  while (begin > 0 && IsDigit(name[begin - 1])) --begin;
  return NumberAt(name, begin);
}

// "rank_3_2024.json", "nccl_trace_rank_3", "Rank3.pkl", "rank-3/dump".
std::optional<int> NumberBehindRank(const std::string& name) {
  const std::string low = absl::AsciiStrToLower(name);
  size_t at = low.rfind("rank");
  for (; at != std::string::npos; at = at == 0 ? std::string::npos : low.rfind("rank", at - 1)) {
    size_t digit = at + 4;
    while (digit < low.size() && (low[digit] == '_' || low[digit] == '-' || low[digit] == '.')) ++digit;
    if (digit < low.size() && IsDigit(low[digit])) return NumberAt(low, digit);
  }
  return std::nullopt;
}

std::optional<int> RankOfName(const std::string& path) {
  std::string name = path.substr(path.find_last_of("/:") + 1);
  if (const std::optional<int> rank = NumberBehindRank(name)) return rank;
  if (const std::optional<int> rank = NumberBehindRank(path)) return rank;
  return LastNumber(name);
}

class DumpParser {
 public:
  absl::StatusOr<RankDump> Parse(ByteSource* source, const std::string& path) {
    if (absl::Status read = Read(source); !read.ok()) return read;
    const Value entries = tree_.Member(root_, "entries");
    if (tree_.kind(entries) != Kind::kList)
      return Wrong("it is no Flight Recorder dump: it has no `entries`");
    Groups(tree_.Member(root_, "pg_config"));
    const absl::Status rank = FindRank(path);
    if (!rank.ok()) return rank;
    size_t order = 0;
    for (const Value entry : tree_.Items(entries)) Entry(entry, order++);
    Status(tree_.Member(root_, "pg_status"));
    for (auto& [name, group] : dump_.groups) FromEntries(name, &group);
    KeepOpen();
    if (dump_.groups.empty()) return Wrong("it names no process group: convert the dump with pg_config");
    return std::move(dump_);
  }

 private:
  struct Seen {
    int64_t entered = -1;
    int64_t completed = -1;
    int64_t first_open = -1;
    std::set<int64_t> completed_batches;  // of sends and receives that were made together
  };

  absl::Status Read(ByteSource* source) {
    const absl::StatusOr<std::string> head = TakeHead(source, 1);
    if (!head.ok()) return head.status();
    if (head->empty()) return Wrong("it is empty");
    const auto first = static_cast<unsigned char>(head->front());
    const std::unique_ptr<ByteSource> whole = WithHead(*head, std::make_unique<Borrowed>(source));
    if (first == 0x80) return ReadPickle(whole.get(), &tree_, &root_);
    return ReadJson(whole.get(), "frames", &tree_, &root_);
  }

  class Borrowed : public ByteSource {
   public:
    explicit Borrowed(ByteSource* source) : source_(source) {}
    absl::StatusOr<size_t> Read(char* to, size_t size) override { return source_->Read(to, size); }

   private:
    ByteSource* source_;
  };

  absl::Status FindRank(const std::string& path) {
    int64_t rank = tree_.Number(tree_.Member(root_, "rank"), -1);
    if (rank < 0) rank = RankOfName(path).value_or(-1);
    if (rank < 0) rank = OnlyCommonMember();
    if (rank < 0) return Wrong("neither it nor its name tells the rank: call it rank_N.json");
    if (rank > kMaxRank) return Wrong(absl::StrCat("its rank is ", rank, ", more than a job has"));
    dump_.rank = static_cast<int>(rank);
    return absl::OkStatus();
  }

  int OnlyCommonMember() const {
    std::optional<std::vector<int>> common;
    for (const auto& [name, group] : dump_.groups) {
      if (group.members.empty()) continue;
      std::vector<int> members = group.members;
      std::sort(members.begin(), members.end());
      std::vector<int> both;
      if (common) {
        std::set_intersection(common->begin(), common->end(), members.begin(), members.end(),
                              std::back_inserter(both));
      }
      common = common ? std::move(both) : std::move(members);
    }
    return common && common->size() == 1 ? common->front() : -1;
  }

  // A list, or a text that looks like one: "[0, 4]".
  std::vector<int> Ranks(Value value) const {
    std::vector<int> ranks;
    const auto add = [&ranks](int64_t rank) {
      if (rank >= 0 && rank <= kMaxRank && ranks.size() < kMaxMembers)
        ranks.push_back(static_cast<int>(rank));
    };
    for (const Value one : tree_.Items(value)) add(tree_.Number(one, -1));
    if (tree_.kind(value) == Kind::kText) {
      const std::string text = tree_.Text(value);
      for (size_t i = 0; i < text.size(); ++i) {
        if (!IsDigit(text[i])) continue;
        add(NumberAt(text, i).value_or(-1));
        while (i < text.size() && IsDigit(text[i])) ++i;
      }
    }
    return ranks;
  }

  void Groups(Value config) {
    if (tree_.kind(config) != Kind::kDict) return;
    const std::vector<Value>& items = tree_.Items(config);
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      const Value value = items[i + 1];
      const std::string name = tree_.Text(items[i]);
      if (name.empty()) continue;  // as PyTorch writes the groups of other back ends than NCCL
      GroupProgress& group = dump_.groups[name];
      group.description = tree_.Text(tree_.Member(value, "desc"));
      group.members = Ranks(tree_.Member(value, "ranks"));
    }
  }

  void Entry(Value entry, size_t order) {
    const std::vector<Value>& names = tree_.Items(tree_.Member(entry, "process_group"));
    if (names.empty()) return;
    const std::string name = tree_.Text(names.front());
    if (name.empty()) return;
    GroupProgress& group = dump_.groups[name];
    if (group.description.empty() && names.size() > 1) group.description = tree_.Text(names[1]);
    const int64_t id = tree_.Number(tree_.Member(entry, "pg_id"), -1);
    if (id >= 0) name_of_id_[id] = name;
    dump_.last_call_unix_ns =
        std::max(dump_.last_call_unix_ns, tree_.Number(tree_.Member(entry, "time_created_ns"), -1));
    const std::string operation = tree_.Text(tree_.Member(entry, "profiling_name"));
    // An entry is retired once its operation is over, also where its state was never asked for again.
    const bool completed =
        tree_.Text(tree_.Member(entry, "state")) == "completed" || tree_.True(tree_.Member(entry, "retired"));
    Seen& seen = seen_[name];
    if (tree_.True(tree_.Member(entry, "is_p2p"))) {
      group.point_to_point = true;
      const int64_t sequence = tree_.Number(tree_.Member(entry, "p2p_seq_id"), -1);
      if (completed && operation.find("coalesced") != std::string::npos)
        seen.completed_batches.insert(sequence);
      if (!completed) PointToPoint(name, group, operation, sequence, order);
      return;
    }
    int64_t sequence = tree_.Number(tree_.Member(entry, "collective_seq_id"), -1);
    if (sequence < 0) sequence = tree_.Number(tree_.Member(entry, "seq_id"), -1);  // before 2.2
    if (sequence < 0) return;
    seen.entered = std::max(seen.entered, sequence);
    if (completed) {
      seen.completed = std::max(seen.completed, sequence);
    } else if (seen.first_open < 0 || sequence < seen.first_open) {
      seen.first_open = sequence;
    }
    // Of operations that are made together the first stands for all.
    group.operations.try_emplace(sequence, OpenOperation{Shape(operation, entry), order});
  }

  // "nccl:recv 1<-0", "nccl:send 0->1": places in the group.
  void PointToPoint(const std::string& name, const GroupProgress& group, const std::string& operation,
                    int64_t sequence, size_t order) {
    const bool sends = operation.find(":send ") != std::string::npos;
    if (!sends && operation.find(":recv ") == std::string::npos) return;
    const size_t arrow = operation.find(sends ? "->" : "<-");
    if (arrow == std::string::npos || arrow + 2 >= operation.size()) return;
    const std::optional<int> place = NumberAt(operation, arrow + 2);
    if (!place || static_cast<size_t>(*place) >= group.members.size()) return;
    open_transfers_.push_back({{name, group.members[static_cast<size_t>(*place)], sends, order}, sequence});
  }

  // What all members have to agree on: the operation, its types, and how many elements each buffer has (what
  // one rank of a scatter, gather or all-to-all gives may differ from the others').
  std::string Shape(const std::string& operation, Value entry) const {
    std::string shape = operation.substr(operation.find(':') + 1);
    for (const char* types : {"input_dtypes", "output_dtypes"}) {
      for (const Value type : tree_.Items(tree_.Member(entry, types)))
        absl::StrAppend(&shape, " ", tree_.Text(type));
      if (tree_.kind(tree_.Member(entry, types)) == Kind::kText)
        absl::StrAppend(&shape, " ", tree_.Text(tree_.Member(entry, types)));
    }
    const bool uneven = shape.starts_with("all_to_all") || shape.starts_with("ALLTOALL") ||
                        shape.starts_with("scatter") || shape.starts_with("gather");
    if (uneven) return shape;
    for (const char* sizes : {"input_sizes", "output_sizes"}) {
      const std::vector<Value>& tensors = tree_.Items(tree_.Member(entry, sizes));
      if (!tensors.empty())
        absl::StrAppend(&shape, sizes == std::string_view("input_sizes") ? " in" : " out");
      size_t shown = 0;
      for (const Value tensor : tensors) {
        if (++shown > kShownTensors) break;
        uint64_t elements = 1;
        for (const Value dimension : tree_.Items(tensor))
          elements *= static_cast<uint64_t>(tree_.Number(dimension, 1));
        absl::StrAppend(&shape, " ", elements);
      }
    }
    return shape;
  }

  // The last operations by local number of the group. Where no entry tells which group that is, the numbers'
  // order does: groups get both numbers and names as they are made.
  void Status(Value status) {
    if (tree_.kind(status) != Kind::kDict) return;
    std::map<int64_t, Value> by_id;
    const std::vector<Value>& items = tree_.Items(status);
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      const int64_t id = tree_.Number(items[i], -1);
      if (id >= 0) by_id[id] = items[i + 1];
    }
    NameByOrder(by_id);
    for (const auto& [id, value] : by_id) {
      const auto name = name_of_id_.find(id);
      if (name == name_of_id_.end()) continue;
      GroupProgress& group = dump_.groups[name->second];
      group.last_entered = tree_.Number(tree_.Member(value, "last_enqueued_collective"), -1);
      group.last_completed = tree_.Number(tree_.Member(value, "last_completed_collective"), -1);
    }
  }

  void NameByOrder(const std::map<int64_t, Value>& by_id) {
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
      const auto same = ordered.find(id);
      if (same == ordered.end() || same->second != known) return;  // the order does not hold
    }
    name_of_id_ = std::move(ordered);
  }

  // A group completes its operations in order, so that one which still is open before a completed one is a
  // part of a batch, whose end alone is followed.
  void FromEntries(const std::string& name, GroupProgress* group) {
    const auto seen = seen_.find(name);
    if (seen == seen_.end() || seen->second.entered < 0) return;
    group->seen_entered = seen->second.entered;
    group->seen_completed =
        seen->second.completed >= 0 ? seen->second.completed : seen->second.first_open - 1;
    if (group->last_entered >= 0) return;
    group->last_entered = group->seen_entered;
    group->last_completed = group->seen_completed;
  }

  // Sends and receives that were made together are completed as one, and themselves never say so.
  void KeepOpen() {
    for (auto& [transfer, sequence] : open_transfers_) {
      if (!seen_[transfer.group].completed_batches.contains(sequence))
        dump_.open_transfers.push_back(transfer);
    }
  }

  static constexpr size_t kShownTensors = 8;

  DumpTree tree_;
  Value root_ = DumpTree::kNothing;
  RankDump dump_;
  std::map<int64_t, std::string> name_of_id_;
  std::map<std::string, Seen> seen_;
  std::vector<std::pair<analysis::OpenTransfer, int64_t>> open_transfers_;
};

}  // namespace

absl::StatusOr<RankDump> ParseFlightDump(ByteSource* source, const std::string& path) {
  return DumpParser().Parse(source, path);
}

absl::StatusOr<RankDump> ParseFlightDump(std::string_view text, const std::string& path) {
  return ParseFlightDump(MemoryBytes(text).get(), path);
}

}  // namespace c4::traces
