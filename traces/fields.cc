#include "traces/fields.h"

#include <algorithm>
#include <charconv>

namespace c4::traces {

char SeparatorOf(std::string_view header) {
  for (const char candidate : {',', '\t', ';'}) {
    if (header.find(candidate) != std::string_view::npos) return candidate;
  }
  return ',';
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string Quoted(std::string_view text) {
  constexpr size_t kShown = 40;
  std::string shown;
  for (const char c : text.substr(0, kShown)) shown.push_back(c >= ' ' && c != 0x7f ? c : '?');
  return "'" + shown + (text.size() > kShown ? "...'" : "'");
}

std::optional<double> ParseReal(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool FieldSplitter::Split(std::string_view line, std::vector<std::string_view>* fields) {
  fields->clear();
  unquoted_.clear();
  unquoted_.reserve(line.size());  // views into it stay good
  for (;;) {
    if (!line.empty() && line.front() == '"') {
      if (!SplitQuoted(&line, fields)) return false;
    } else {
      const size_t end = line.find(separator_);
      fields->push_back(line.substr(0, end));
      line.remove_prefix(std::min(line.size(), end));
    }
    if (line.empty()) return true;
    line.remove_prefix(1);
  }
}

bool FieldSplitter::SplitQuoted(std::string_view* line, std::vector<std::string_view>* fields) {
  line->remove_prefix(1);
  const size_t begin = unquoted_.size();
  for (;;) {
    const size_t mark = line->find('"');
    if (mark == std::string_view::npos) return false;
    unquoted_.append(line->substr(0, mark));
    line->remove_prefix(mark + 1);
    if (line->empty() || line->front() != '"') break;
    unquoted_.push_back('"');
    line->remove_prefix(1);
  }
  fields->push_back(std::string_view(unquoted_).substr(begin));
  return line->empty() || line->front() == separator_;
}

}  // namespace c4::traces
