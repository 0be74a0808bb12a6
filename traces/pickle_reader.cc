// The part of Python's pickles that dumps need (docs.python.org: module pickletools), protocols 2 to 5.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "traces/dump_value.h"

namespace c4::traces {
namespace {

using Value = DumpTree::Value;
using Kind = DumpTree::Kind;

class PickleReader {
 public:
  PickleReader(ByteSource* source, DumpTree* tree) : source_(source), tree_(*tree), buffer_(kPiece) {}

  absl::Status Read(Value* root) {
    uint8_t first = 0;
    uint8_t protocol = 0;
    if (!Byte(&first) || first != kProto || !Byte(&protocol))
      return Wrong("it does not begin as a pickle does");
    if (protocol < 2 || protocol > 5)
      return Wrong(absl::StrCat("it is a pickle of protocol ", protocol, "; known are 2 to 5"));
    for (;;) {
      uint8_t code = 0;
      if (!Byte(&code)) return Failed();
      if (code == '.') break;
      if (!Step(code)) return Failed();
    }
    if (stack_.size() != 1 || stack_.back() == kMark)
      return Wrong("it ends with a stack that is not one value");
    *root = stack_.back();
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kPiece = 64 * 1024;
  static constexpr uint8_t kProto = 0x80;
  static constexpr Value kMark = DumpTree::kNothing - 1;
  static constexpr size_t kLongestWord = 200;  // of a module or name

  static absl::Status Wrong(const std::string& what) { return absl::InvalidArgumentError(what); }

  absl::Status Failed() const {
    if (tree_.full())
      return Wrong(absl::StrCat("it holds more than ", DumpTree::kMaxBytes >> 20, " MiB of values"));
    if (!source_status_.ok()) return source_status_;
    if (!why_.empty()) return Wrong(absl::StrCat("byte ", passed_ + at_, ": ", why_));
    return absl::DataLossError("its pickle breaks off: the dump is truncated");
  }

  bool Fail(std::string why) {
    why_ = std::move(why);
    return false;
  }

  bool Fill() {
    passed_ += end_;
    at_ = end_ = 0;
    const absl::StatusOr<size_t> count = source_->Read(buffer_.data(), buffer_.size());
    if (!count.ok()) source_status_ = count.status();
    if (!count.ok() || *count == 0) return false;
    end_ = *count;
    return true;
  }

  bool Byte(uint8_t* byte) {
    if (at_ == end_ && !Fill()) return false;
    *byte = static_cast<uint8_t>(buffer_[at_++]);
    return true;
  }

  // Little-endian.
  bool Count(int bytes, uint64_t* value) {
    *value = 0;
    for (int i = 0; i < bytes; ++i) {
      uint8_t byte = 0;
      if (!Byte(&byte)) return false;
      *value |= uint64_t{byte} << (8 * i);
    }
    return true;
  }

  // Grows with what there is, not with what a length claims.
  bool Bytes(uint64_t size, std::string* text) {
    if (size > tree_.bytes_left()) return tree_.Charge(SIZE_MAX);
    while (size > 0) {
      if (at_ == end_ && !Fill()) return false;
      const size_t count = std::min<uint64_t>(size, end_ - at_);
      text->append(buffer_.data() + at_, count);
      at_ += count;
      size -= count;
    }
    return true;
  }

  bool Push(Value value) {
    if (value == DumpTree::kNothing || !tree_.Charge(3 * sizeof(Value))) return false;
    stack_.push_back(value);
    return true;
  }

  bool PushText(int length_bytes) {
    uint64_t size = 0;
    std::string text;
    return Count(length_bytes, &size) && Bytes(size, &text) && Push(tree_.AddText(std::move(text)));
  }

  bool PushWhole(int bytes, bool is_signed) {
    uint64_t value = 0;
    if (!Count(bytes, &value)) return false;
    const auto number = is_signed ? int64_t{static_cast<int32_t>(value)} : static_cast<int64_t>(value);
    return Push(tree_.Add(Kind::kWhole, number));
  }

  // Two's complement of any length; a number that is too long is none that a dump means.
  bool PushLong(int length_bytes) {
    uint64_t size = 0;
    if (!Count(length_bytes, &size)) return false;
    if (size > sizeof(int64_t)) return Fail(absl::StrCat("a number of ", size, " bytes"));
    uint64_t value = 0;
    if (!Count(static_cast<int>(size), &value)) return false;
    const bool negative = size > 0 && (value >> (8 * size - 1)) != 0;
    if (negative && size < sizeof(int64_t)) value |= ~uint64_t{0} << (8 * size);
    return Push(tree_.Add(Kind::kWhole, static_cast<int64_t>(value)));
  }

  bool Top(Value* value) {
    if (stack_.empty() || stack_.back() == kMark) return Fail("a value is missing on the stack");
    *value = stack_.back();
    return true;
  }

  bool Pop(Value* value) {
    if (!Top(value)) return false;
    stack_.pop_back();
    return true;
  }

  // What is above the last mark, which goes too; `first` is where it begins on the stack.
  bool SinceMark(std::vector<Value>* values) {
    const auto mark = std::find(stack_.rbegin(), stack_.rend(), kMark);
    if (mark == stack_.rend()) return Fail("a mark is missing on the stack");
    values->assign(mark.base(), stack_.end());
    stack_.erase(mark.base() - 1, stack_.end());
    return true;
  }

  bool PushListOf(Kind kind, const std::vector<Value>& values) {
    const Value list = tree_.Add(kind);
    if (list == DumpTree::kNothing) return false;
    return AddAll(list, values) && Push(list);
  }

  bool AddAll(Value list, const std::vector<Value>& values) {
    if (tree_.kind(list) == Kind::kDict && values.size() % 2 != 0) return Fail("a key without a value");
    return std::all_of(values.begin(), values.end(), [&](Value value) { return tree_.Append(list, value); });
  }

  bool PushTuple(size_t size) {
    std::vector<Value> values(size);
    for (size_t i = size; i-- > 0;) {
      if (!Pop(&values[i])) return false;
    }
    return PushListOf(Kind::kList, values);
  }

  bool AddTo(Kind kind, const std::vector<Value>& values) {
    Value list = 0;
    if (!Top(&list)) return false;
    if (tree_.kind(list) != kind) return Fail("what is added to is no list or dict");
    return AddAll(list, values);
  }

  bool Remember(uint64_t number) {
    Value value = 0;
    if (!Top(&value)) return false;
    // Writers count up from 0 or 1.
    if (number > memo_.size() + 1) return Fail(absl::StrCat("memo ", number, " comes out of turn"));
    if (!tree_.Charge(6 * sizeof(Value))) return false;
    if (number >= memo_.size()) memo_.resize(number + 1, DumpTree::kNothing);
    memo_[number] = value;
    return true;
  }

  bool Recall(int bytes) {
    uint64_t number = 0;
    if (!Count(bytes, &number)) return false;
    if (number >= memo_.size() || memo_[number] == DumpTree::kNothing)
      return Fail(absl::StrCat("memo ", number, " was never written"));
    return Push(memo_[number]);
  }

  bool Put(int bytes) {
    uint64_t number = 0;
    return Count(bytes, &number) && Remember(number);
  }

  bool Line(std::string* text) {
    uint8_t byte = 0;
    while (Byte(&byte)) {
      if (byte == '\n') return true;
      if (text->size() == kLongestWord) return Fail("a name without an end");
      text->push_back(static_cast<char>(byte));
    }
    return false;
  }

  bool Refuse(const std::string& what) {
    return Fail(absl::StrCat("it names ", what,
                             ", which reading would have to run: this is no Flight Recorder dump"));
  }

  // PyTorch writes typed lists as calls of these, with the list as the only argument.
  bool Global() {
    std::string module;
    std::string name;
    if (!Line(&module) || !Line(&name)) return false;
    const bool lists = name == "build_intlist" || name == "build_doublelist" || name == "build_boollist";
    if (module != "torch.jit._pickle" || !lists) return Refuse(absl::StrCat(Shown(module), ".", Shown(name)));
    return Push(tree_.Add(Kind::kListMaker));
  }

  static std::string Shown(const std::string& text) {
    std::string shown;
    for (const char c : text) shown.push_back(c > ' ' && c < 0x7f ? c : '?');
    return shown;
  }

  bool Reduce() {
    Value arguments = 0;
    Value maker = 0;
    if (!Pop(&arguments) || !Pop(&maker)) return false;
    const std::vector<Value>& items = tree_.Items(arguments);
    if (tree_.kind(maker) != Kind::kListMaker || items.size() != 1 ||
        tree_.kind(items.front()) != Kind::kList)
      return Refuse("a function");
    return Push(items.front());
  }

  bool Skip(int bytes) {
    uint64_t unused = 0;
    return Count(bytes, &unused);
  }

  bool Step(uint8_t code) {
    Value value = 0;
    std::vector<Value> values;
    switch (code) {
      case kProto:
        return Skip(1);
      case 0x95:
        return Skip(8);  // the length of a frame
      case '(':
        return Push(kMark);
      case '0':
        return Pop(&value);
      case '1':
        return SinceMark(&values);
      case '2':
        return Top(&value) && Push(value);
      case 'N':
        return Push(tree_.Add(Kind::kNone));
      case 0x88:
        return Push(tree_.Add(Kind::kBool, 1));
      case 0x89:
        return Push(tree_.Add(Kind::kBool, 0));
      case 'J':
        return PushWhole(4, true);
      case 'K':
        return PushWhole(1, false);
      case 'M':
        return PushWhole(2, false);
      case 0x8a:
        return PushLong(1);
      case 0x8b:
        return PushLong(4);
      case 'G':
        return Skip(8) && Push(tree_.Add(Kind::kReal));
      case 'X':
      case 'T':
      case 'B':
        return PushText(4);
      case 0x8c:
      case 'U':
      case 'C':
        return PushText(1);
      case 0x8d:
      case 0x8e:
      case 0x96:
        return PushText(8);
      case ']':
      case ')':
        return Push(tree_.Add(Kind::kList));
      case '}':
        return Push(tree_.Add(Kind::kDict));
      case 'l':
      case 't':
        return SinceMark(&values) && PushListOf(Kind::kList, values);
      case 'd':
        return SinceMark(&values) && PushListOf(Kind::kDict, values);
      case 0x85:
        return PushTuple(1);
      case 0x86:
        return PushTuple(2);
      case 0x87:
        return PushTuple(3);
      case 'a':
        return Pop(&value) && AddTo(Kind::kList, {value});
      case 'e':
        return SinceMark(&values) && AddTo(Kind::kList, values);
      case 's': {
        Value key = 0;
        return Pop(&value) && Pop(&key) && AddTo(Kind::kDict, {key, value});
      }
      case 'u':
        return SinceMark(&values) && AddTo(Kind::kDict, values);
      case 'q':
        return Put(1);
      case 'r':
        return Put(4);
      case 0x94:
        return Remember(memo_.size());
      case 'h':
        return Recall(1);
      case 'j':
        return Recall(4);
      case 'c':
        return Global();
      case 'R':
        return Reduce();
      default:
        return Refuse(absl::StrFormat("what dumps do not need (opcode 0x%02x)", code));
    }
  }

  ByteSource* source_;
  DumpTree& tree_;
  std::vector<char> buffer_;
  size_t at_ = 0;
  size_t end_ = 0;
  uint64_t passed_ = 0;
  std::vector<Value> stack_;
  std::vector<Value> memo_;
  std::string why_;
  absl::Status source_status_;
};

}  // namespace

absl::Status ReadPickle(ByteSource* source, DumpTree* tree, DumpTree::Value* root) {
  return PickleReader(source, tree).Read(root);
}

}  // namespace c4::traces
