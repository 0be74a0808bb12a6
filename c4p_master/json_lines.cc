#include "c4p_master/json_lines.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace c4::c4p {
namespace {

using Json = nlohmann::json;
using Kind = JsonLine::Kind;

constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxQuoted = 80;

absl::string_view View(std::string_view text) {
  return {text.data(), text.size()};
}

// Counts lines as the parser reads. The last character read may be the one after a token: a line ends only
// when something after it is read.
class LineIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  LineIterator(const char* at, int* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  LineIterator& operator++() {
    if (last_ended_) ++*line_;
    last_ended_ = *at_ == '\n';
    ++at_;
    return *this;
  }
  bool operator==(const LineIterator& other) const { return at_ == other.at_; }
  bool operator!=(const LineIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  int* line_;
  bool last_ended_ = false;
};

class Builder {
 public:
  explicit Builder(const int* line) : line_(line) {}

  bool null() { return Add({}); }
  bool boolean(bool value) {
    JsonLine part;
    part.kind = Kind::kBool;
    part.flag = value;
    return Add(std::move(part));
  }
  bool number_integer(Json::number_integer_t value) { return Number(static_cast<double>(value)); }
  bool number_unsigned(Json::number_unsigned_t value) { return Number(static_cast<double>(value)); }
  bool number_float(Json::number_float_t value, const std::string&) { return Number(value); }
  bool string(std::string& value) {
    JsonLine part;
    part.kind = Kind::kText;
    part.text = std::move(value);
    return Add(std::move(part));
  }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(size_t) { return Open(Kind::kObject); }
  bool start_array(size_t) { return Open(Kind::kList); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(std::string& name) {
    std::vector<std::string>& seen = open_.back().keys;
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
      return Refuse(absl::StrCat("the key '", name.substr(0, kMaxQuoted), "' comes twice"));
    }
    // Nobody means an object of many keys, and the search above is a walk.
    if (seen.size() >= 64) return Refuse("an object with more than 64 keys");
    seen.push_back(std::move(name));
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) {
    // "[json.exception....] parse error at line 3, column 4: syntax error while ...": the last part says it.
    std::string what = error.what();
    const size_t at = what.find(": ");
    return Refuse(absl::StrCat("this is not JSON: ", at == std::string::npos ? what : what.substr(at + 2)));
  }

  absl::StatusOr<JsonLine> Take() {
    if (!fault_.ok()) return fault_;
    return std::move(root_);
  }

 private:
  bool Refuse(const std::string& sentence) {
    if (fault_.ok()) fault_ = AtLine(*line_, sentence);
    return false;
  }
  bool Number(double value) {
    JsonLine part;
    part.kind = Kind::kNumber;
    part.number = value;
    return Add(std::move(part));
  }
  bool Add(JsonLine part) {
    if (++parts_ > kMaxJsonParts) return Refuse("this is larger than any network");
    part.line = *line_;
    if (open_.empty()) {
      root_ = std::move(part);
    } else {
      open_.back().list.push_back(std::move(part));
    }
    return true;
  }
  bool Open(Kind kind) {
    if (open_.size() >= kMaxDepth) return Refuse("this is nested too deep");
    JsonLine part;
    part.kind = kind;
    part.line = *line_;
    open_.push_back(std::move(part));
    return true;
  }
  bool Close() {
    JsonLine part = std::move(open_.back());
    open_.pop_back();
    const int line = part.line;
    if (!Add(std::move(part))) return false;
    // An object's line is its first.
    JsonLine& added = open_.empty() ? root_ : open_.back().list.back();
    added.line = line;
    return true;
  }

  const int* line_;
  size_t parts_ = 0;
  std::vector<JsonLine> open_;
  JsonLine root_;
  absl::Status fault_;
};

absl::Status WrongKind(const JsonLine& part, std::string_view key, Kind wanted) {
  return AtLine(part.line,
                absl::StrCat("'", View(key), "' is ", KindName(wanted), ", not ", KindName(part.kind)));
}

}  // namespace

const JsonLine* JsonLine::Find(std::string_view key) const {
  const auto at = std::find(keys.begin(), keys.end(), key);
  return at == keys.end() ? nullptr : &list[static_cast<size_t>(at - keys.begin())];
}

const char* KindName(Kind kind) {
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return "true or false";
    case Kind::kNumber:
      return "a number";
    case Kind::kText:
      return "a text";
    case Kind::kList:
      return "a list";
    case Kind::kObject:
      return "an object";
  }
  return "";
}

absl::Status AtLine(int line, std::string_view sentence) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", View(sentence)));
}

absl::StatusOr<JsonLine> ReadJson(std::string_view text) {
  if (text.size() > kMaxJsonBytes) return AtLine(1, "the file has more than 64 MiB");
  int line = 1;
  Builder builder(&line);
  const bool whole = Json::sax_parse(LineIterator(text.data(), &line),
                                     LineIterator(text.data() + text.size(), &line), &builder);
  absl::StatusOr<JsonLine> read = builder.Take();
  if (read.ok() && !whole) return AtLine(line, "this is not JSON");
  return read;
}

absl::Status CheckKeys(const JsonLine& object, std::string_view what,
                       const std::vector<std::string_view>& needed,
                       const std::vector<std::string_view>& allowed) {
  if (object.kind != Kind::kObject) {
    return AtLine(object.line, absl::StrCat(View(what), " is an object, not ", KindName(object.kind)));
  }
  for (size_t i = 0; i < object.keys.size(); ++i) {
    const std::string& name = object.keys[i];
    const auto in = [&name](const std::vector<std::string_view>& keys) {
      return std::find(keys.begin(), keys.end(), name) != keys.end();
    };
    if (!in(needed) && !in(allowed)) {
      return AtLine(object.list[i].line,
                    absl::StrCat(View(what), " has no '", name.substr(0, kMaxQuoted), "'"));
    }
  }
  for (const std::string_view key : needed) {
    if (object.Find(key) == nullptr) {
      return AtLine(object.line, absl::StrCat(View(what), " lacks '", View(key), "'"));
    }
  }
  return absl::OkStatus();
}

absl::Status GetText(const JsonLine& object, std::string_view key, std::string* out) {
  const JsonLine* part = object.Find(key);
  if (part == nullptr) return absl::OkStatus();
  if (part->kind != Kind::kText) return WrongKind(*part, key, Kind::kText);
  *out = part->text;
  return absl::OkStatus();
}

absl::Status GetNumber(const JsonLine& object, std::string_view key, double least, double most, double* out) {
  const JsonLine* part = object.Find(key);
  if (part == nullptr) return absl::OkStatus();
  if (part->kind != Kind::kNumber) return WrongKind(*part, key, Kind::kNumber);
  if (!(part->number >= least && part->number <= most)) {
    return AtLine(part->line,
                  absl::StrCat("'", View(key), "' is ", least, " to ", most, ", not ", part->number));
  }
  *out = part->number;
  return absl::OkStatus();
}

absl::Status GetWhole(const JsonLine& object, std::string_view key, int least, int most, int* out) {
  double number = *out;
  if (absl::Status fault = GetNumber(object, key, least, most, &number); !fault.ok()) return fault;
  if (number != std::floor(number)) {
    return AtLine(object.Find(key)->line, absl::StrCat("'", View(key), "' is a whole number, not ", number));
  }
  *out = static_cast<int>(number);
  return absl::OkStatus();
}

absl::Status GetFlag(const JsonLine& object, std::string_view key, bool* out) {
  const JsonLine* part = object.Find(key);
  if (part == nullptr) return absl::OkStatus();
  if (part->kind != Kind::kBool) return WrongKind(*part, key, Kind::kBool);
  *out = part->flag;
  return absl::OkStatus();
}

absl::Status GetList(const JsonLine& object, std::string_view key, const JsonLine** out) {
  *out = object.Find(key);
  if (*out != nullptr && (*out)->kind != Kind::kList) return WrongKind(**out, key, Kind::kList);
  return absl::OkStatus();
}

}  // namespace c4::c4p
