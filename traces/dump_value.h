// A small tree of plain values. It holds a dump of a flight recorder, pickled or JSON.
//
// Values are numbers of a tree that owns them. A tree counts its memory as it grows and
// has a limit; beyond it, what is asked for gives no value (`full`). Lists may hold
// themselves, as pickles allow, so walk to a fixed depth only. A plain value; one
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "traces/byte_source.h"

namespace c4::traces {

class DumpTree {
 public:
  using Value = uint32_t;
  enum class Kind : uint8_t { kNone, kBool, kWhole, kReal, kText, kList, kDict, kListMaker };

  static constexpr Value kNothing = UINT32_MAX;
  static constexpr size_t kMaxBytes = size_t{512} << 20;

  // kNothing where the tree is full.
  Value Add(Kind kind, int64_t number = 0);
  Value AddText(std::string text);
  bool Append(Value list, Value item);  // of a dict: keys and values in turn

  bool full() const { return full_; }
  size_t bytes_left() const { return kMaxBytes - bytes_; }
  bool Charge(size_t bytes);

  Kind kind(Value value) const { return value == kNothing ? Kind::kNone : nodes_[value].kind; }
  // Of a list or dict; empty for all else.
  const std::vector<Value>& Items(Value value) const;
  // Of a dict, the last one of that name; kNothing where there is none.
  Value Member(Value dict, std::string_view key) const;
  // A text; whole numbers are written out; "" for all else.
  std::string Text(Value value) const;
  // A whole number, also one written as text.
  int64_t Number(Value value, int64_t otherwise) const;
  bool True(Value value) const { return kind(value) == Kind::kBool && nodes_[value].number != 0; }

 private:
  struct Node {
    Kind kind;
    uint32_t at;     // of texts_ or lists_
    int64_t number;  // also a bool
  };

  std::vector<Node> nodes_;
  std::vector<std::string> texts_;
  std::vector<std::vector<Value>> lists_;
  size_t bytes_ = 0;
  bool full_ = false;
};

// A pickle of protocol 2 to 5 that holds numbers, texts, lists, tuples and dicts. Nothing of it is executed:
// what names a function or class is refused, but for the makers of lists that PyTorch's own writer names.
// Adds to `tree`.
absl::Status ReadPickle(ByteSource* source, DumpTree* tree, DumpTree::Value* root);

// JSON; the members that are called `without` are passed over.
absl::Status ReadJson(ByteSource* source, std::string_view without, DumpTree* tree, DumpTree::Value* root);

}  // namespace c4::traces
