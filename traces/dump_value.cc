#include "traces/dump_value.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "traces/json_scanner.h"

namespace c4::traces {
namespace {

constexpr int kDeepest = 64;
constexpr size_t kListBytes = 48;  // with what the allocator takes

absl::Status Wrong(const std::string& what) {
  return absl::InvalidArgumentError(what);
}

class JsonReader {
 public:
  JsonReader(ByteSource* source, std::string_view without, DumpTree* tree)
      : scanner_(source), without_(without), tree_(*tree) {}

  absl::Status Read(DumpTree::Value* root) {
    if (!Value(0, root) || !scanner_.End()) {
      if (tree_.full())
        return Wrong(absl::StrCat("it holds more than ", DumpTree::kMaxBytes >> 20, " MiB of values"));
      return Wrong(absl::StrCat("it is no JSON, or is cut off: ", scanner_.status().message()));
    }
    return absl::OkStatus();
  }

 private:
  bool Value(int depth, DumpTree::Value* value) {
    if (depth > kDeepest) return scanner_.Fail("it is nested too deeply");
    const char next = scanner_.Peek();
    if (next == '{') return Dict(depth, value);
    if (next == '[') return List(depth, value);
    std::string text;
    bool quoted = false;
    if (!scanner_.Scalar(&text, &quoted)) return false;
    *value = quoted ? tree_.AddText(std::move(text)) : Plain(text);
    return *value != DumpTree::kNothing;
  }

  DumpTree::Value Plain(const std::string& text) {
    if (text == "null") return tree_.Add(DumpTree::Kind::kNone);
    if (text == "true" || text == "false") return tree_.Add(DumpTree::Kind::kBool, text == "true" ? 1 : 0);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    return whole ? tree_.Add(DumpTree::Kind::kWhole, number) : tree_.Add(DumpTree::Kind::kReal);
  }

  bool Dict(int depth, DumpTree::Value* value) {
    *value = tree_.Add(DumpTree::Kind::kDict);
    if (*value == DumpTree::kNothing || !scanner_.Expect('{', "{")) return false;
    for (bool first = true;; first = false) {
      bool more = false;
      if (!scanner_.More('}', first, &more)) return false;
      if (!more) return true;
      std::string key;
      if (!scanner_.Key(&key)) return false;
      if (key == without_) {
        if (!scanner_.Skip()) return false;
        continue;
      }
      const DumpTree::Value name = tree_.AddText(std::move(key));
      DumpTree::Value member = DumpTree::kNothing;
      if (name == DumpTree::kNothing || !Value(depth + 1, &member)) return false;
      if (!tree_.Append(*value, name) || !tree_.Append(*value, member)) return false;
    }
  }

  bool List(int depth, DumpTree::Value* value) {
    *value = tree_.Add(DumpTree::Kind::kList);
    if (*value == DumpTree::kNothing || !scanner_.Expect('[', "[")) return false;
    for (bool first = true;; first = false) {
      bool more = false;
      if (!scanner_.More(']', first, &more)) return false;
      if (!more) return true;
      DumpTree::Value item = DumpTree::kNothing;
      if (!Value(depth + 1, &item) || !tree_.Append(*value, item)) return false;
    }
  }

  JsonScanner scanner_;
  std::string_view without_;
  DumpTree& tree_;
};

}  // namespace

bool DumpTree::Charge(size_t bytes) {
  if (full_ || bytes > kMaxBytes - bytes_) {
    full_ = true;
    return false;
  }
  bytes_ += bytes;
  return true;
}

// Vectors that grow take up to three times what they hold while they move.
DumpTree::Value DumpTree::Add(Kind kind, int64_t number) {
  const bool list = kind == Kind::kList || kind == Kind::kDict;
  if (!Charge(3 * sizeof(Node) + (list ? kListBytes : 0))) return kNothing;
  uint32_t at = 0;
  if (list) {
    at = static_cast<uint32_t>(lists_.size());
    lists_.emplace_back();
  }
  nodes_.push_back({kind, at, number});
  return static_cast<Value>(nodes_.size() - 1);
}

DumpTree::Value DumpTree::AddText(std::string text) {
  if (!Charge(3 * sizeof(Node) + 2 * sizeof(std::string) + text.size())) return kNothing;
  nodes_.push_back({Kind::kText, static_cast<uint32_t>(texts_.size()), 0});
  texts_.push_back(std::move(text));
  return static_cast<Value>(nodes_.size() - 1);
}

bool DumpTree::Append(Value list, Value item) {
  if (!Charge(3 * sizeof(Value))) return false;
  lists_[nodes_[list].at].push_back(item);
  return true;
}

const std::vector<DumpTree::Value>& DumpTree::Items(Value value) const {
  static const std::vector<Value> kEmpty;
  const Kind of = kind(value);
  return of == Kind::kList || of == Kind::kDict ? lists_[nodes_[value].at] : kEmpty;
}

DumpTree::Value DumpTree::Member(Value dict, std::string_view key) const {
  if (kind(dict) != Kind::kDict) return kNothing;
  const std::vector<Value>& items = Items(dict);
  for (size_t i = items.size() / 2; i-- > 0;) {
    const Value name = items[2 * i];
    if (kind(name) == Kind::kText && texts_[nodes_[name].at] == key) return items[2 * i + 1];
  }
  return kNothing;
}

std::string DumpTree::Text(Value value) const {
  if (kind(value) == Kind::kText) return texts_[nodes_[value].at];
  return kind(value) == Kind::kWhole ? std::to_string(nodes_[value].number) : "";
}

int64_t DumpTree::Number(Value value, int64_t otherwise) const {
  if (kind(value) == Kind::kWhole) return nodes_[value].number;
  if (kind(value) != Kind::kText) return otherwise;
  const std::string& text = texts_[nodes_[value].at];
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : otherwise;
}

absl::Status ReadJson(ByteSource* source, std::string_view without, DumpTree* tree, DumpTree::Value* root) {
  return JsonReader(source, without, tree).Read(root);
}

}  // namespace c4::traces
