#include "traces/json_scanner.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace c4::traces {
namespace {

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// What may stand in a string as it is.
bool IsPlain(char c) {
  return c != '"' && c != '\\' && static_cast<unsigned char>(c) >= 0x20;
}

bool IsNumber(std::string_view text) {
  size_t at = 0;
  const auto digits = [&text, &at] {
    const size_t begin = at;
    while (at < text.size() && IsDigit(text[at])) ++at;
    return at > begin;
  };
  const auto take = [&text, &at](char a, char b) {
    const bool there = at < text.size() && (text[at] == a || text[at] == b);
    at += there ? 1 : 0;
    return there;
  };
  take('-', '-');
  const bool zero = at < text.size() && text[at] == '0';
  const size_t begin = at;
  if (!digits() || (zero && at > begin + 1)) return false;
  if (take('.', '.') && !digits()) return false;
  if (take('e', 'E')) {
    take('+', '-');
    if (!digits()) return false;
  }
  return at == text.size();
}

bool IsWord(std::string_view text) {
  for (const char* word : {"true", "false", "null", "NaN", "Infinity", "-Infinity"}) {
    if (text == word) return true;
  }
  return false;
}

void AppendUtf8(uint32_t code, std::string* text) {
  const auto byte = [text](uint32_t value) { text->push_back(static_cast<char>(value)); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | code >> 6);
    byte(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  } else {
    byte(0xf0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3f));
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  }
}

}  // namespace

// False at the end as well, with status() as it was.
bool JsonScanner::Fill() {
  if (at_end_ || !status_.ok()) return false;
  passed_ += end_;
  at_ = end_ = 0;
  const absl::StatusOr<size_t> count = source_->Read(buffer_.data(), buffer_.size());
  if (!count.ok()) {
    status_ = count.status();
    at_end_ = true;
    return false;
  }
  end_ = *count;
  at_end_ = end_ == 0;
  return !at_end_;
}

bool JsonScanner::Fail(const std::string& what) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat("byte ", offset(), ": ", what));
  return false;
}

char JsonScanner::Peek() {
  for (;;) {
    while (at_ < end_) {
      const char c = buffer_[at_];
      if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return c;
      ++at_;
    }
    if (!Fill()) return '\0';
  }
}

bool JsonScanner::Expect(char wanted, const char* what) {
  if (Peek() != wanted) {
    return Fail(at_end_ ? absl::StrCat("the text ends where ", what, " should be: is the file cut off?")
                        : absl::StrCat("this is no JSON: here should be ", what));
  }
  ++at_;
  return true;
}

bool JsonScanner::More(char close, bool first, bool* more) {
  const char next = Peek();
  *more = next != close;
  if (!*more) {
    ++at_;
    return true;
  }
  if (first) return true;
  return Expect(',', close == ']' ? "a ',' or a ']'" : "a ',' or a '}'");
}

bool JsonScanner::FourDigits(uint32_t* code) {
  *code = 0;
  for (int i = 0; i < 4; ++i) {
    if (at_ == end_ && !Fill()) return Fail("the text ends within a string: is the file cut off?");
    const char c = buffer_[at_];
    const int digit = IsDigit(c)               ? c - '0'
                      : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                      : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                               : -1;
    if (digit < 0) return Fail("four hexadecimal digits belong behind \\u");
    *code = *code * 16 + static_cast<uint32_t>(digit);
    ++at_;
  }
  return true;
}

// Behind the backslash.
bool JsonScanner::Escape(std::string* text) {
  if (at_ == end_ && !Fill()) return Fail("the text ends within a string: is the file cut off?");
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kMeant = "\"\\/\b\f\n\r\t";
  const char c = buffer_[at_++];
  if (const size_t known = kNames.find(c); known != std::string_view::npos) {
    text->push_back(kMeant[known]);
    return true;
  }
  if (c != 'u') return Fail("there is no such escape in JSON: a \\ stands as \\\\ in a string");
  uint32_t code = 0;
  if (!FourDigits(&code)) return false;
  constexpr uint32_t kInsteadOfHalf = 0xfffd;
  while (code >= 0xd800 && code < 0xdc00) {  // the first half of a pair
    if (at_ == end_ && !Fill()) break;
    if (buffer_[at_] != '\\') break;
    ++at_;
    if (at_ == end_ && !Fill()) break;
    if (buffer_[at_] != 'u') {
      AppendUtf8(kInsteadOfHalf, text);
      return Escape(text);
    }
    ++at_;
    uint32_t second = 0;
    if (!FourDigits(&second)) return false;
    if (second >= 0xdc00 && second < 0xe000) {
      AppendUtf8(0x10000 + ((code - 0xd800) << 10) + (second - 0xdc00), text);
      return true;
    }
    AppendUtf8(kInsteadOfHalf, text);
    code = second;
  }
  AppendUtf8(code >= 0xd800 && code < 0xe000 ? kInsteadOfHalf : code, text);
  return true;
}

bool JsonScanner::String(std::string* text) {
  text->clear();
  if (!Expect('"', "a string")) return false;
  for (;;) {
    if (at_ == end_ && !Fill()) return Fail("the text ends within a string: is the file cut off?");
    const size_t begin = at_;
    while (at_ < end_ && IsPlain(buffer_[at_])) ++at_;
    text->append(buffer_.data() + begin, at_ - begin);
    if (text->size() > kLongestString) {
      return Fail(absl::StrCat("a string of more than ", kLongestString, " bytes: this is no profile"));
    }
    if (at_ == end_) continue;
    const char c = buffer_[at_];
    if (c != '"' && c != '\\')
      return Fail("a control character within a string: is a quotation mark missing?");
    ++at_;
    if (c == '"') return true;
    if (!Escape(text)) return false;
  }
}

bool JsonScanner::SkipString() {
  ++at_;
  for (;;) {
    while (at_ < end_ && IsPlain(buffer_[at_])) ++at_;
    if (at_ == end_) {
      if (!Fill()) return Fail("the text ends within a string: is the file cut off?");
      continue;
    }
    const char c = buffer_[at_];
    if (c != '"' && c != '\\')
      return Fail("a control character within a string: is a quotation mark missing?");
    ++at_;
    if (c == '"') return true;
    unused_.clear();
    if (!Escape(&unused_)) return false;
  }
}

bool JsonScanner::Key(std::string* key) {
  return String(key) && Expect(':', "a ':'");
}

bool JsonScanner::Missing() {
  const char next = Peek();
  if (next != ',' && next != '}') return false;
  ++missing_;
  return true;
}

bool JsonScanner::Literal(std::string* text) {
  text->clear();
  for (;;) {
    if (at_ == end_ && !Fill()) break;
    const char c = buffer_[at_];
    const bool of_literal =
        IsDigit(c) || c == '-' || c == '+' || c == '.' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!of_literal) break;
    text->push_back(c);
    ++at_;
    if (text->size() > kLongestNumber) return Fail("this is no JSON: a value has to stand here");
  }
  if (!status_.ok()) return false;
  if (IsNumber(*text) || IsWord(*text)) return true;
  if (at_end_ && at_ == end_) return Fail("the text ends where a value should be: is the file cut off?");
  return Fail("this is no JSON: a value has to stand here");
}

bool JsonScanner::Scalar(std::string* text, bool* quoted) {
  *quoted = Peek() == '"';
  return *quoted ? String(text) : Literal(text);
}

bool JsonScanner::Skip() {
  return SkipAt(0);
}

bool JsonScanner::SkipAt(int depth) {  // NOLINT(misc-no-recursion): as deep as kDeepest
  const char next = Peek();
  if (next == '"') return SkipString();
  if (next != '{' && next != '[') return Literal(&unused_);
  if (depth == kDeepest) return Fail(absl::StrCat("more than ", kDeepest, " levels within each other"));
  ++at_;
  const bool object = next == '{';
  for (bool first = true;; first = false) {
    bool more = false;
    if (!More(object ? '}' : ']', first, &more)) return false;
    if (!more) return true;
    if (object) {
      if (Peek() != '"') return Fail("this is no JSON: here should be a string");
      if (!SkipString() || !Expect(':', "a ':'")) return false;
      if (Missing()) continue;
    }
    if (!SkipAt(depth + 1)) return false;
  }
}

bool JsonScanner::End() {
  Peek();
  if (!status_.ok()) return false;
  return at_ == end_ || Fail("the JSON has ended, and more follows: are these two files in one?");
}

}  // namespace c4::traces
