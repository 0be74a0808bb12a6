#include "cli/text/table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace c4::cli {

bool NumbersInOrder::operator()(const std::string& a, const std::string& b) const {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
      continue;
    }
    const auto number = [&digit](const std::string& text, size_t* at) {
      while (*at < text.size() && text[*at] == '0') ++*at;
      const size_t from = *at;
      while (*at < text.size() && digit(text[*at])) ++*at;
      return text.substr(from, *at - from);
    };
    const std::string x = number(a, &i);
    const std::string y = number(b, &j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  if ((i < a.size()) != (j < b.size())) return j < b.size();
  return a < b;  // host01 and host1 are two
}

std::vector<size_t> Table::Widths() const {
  std::vector<size_t> widths;
  for (const Column& column : columns) widths.push_back(TextColumns(column.head));
  for (const std::vector<std::string>& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], TextColumns(row[i]));
  }
  return widths;
}

bool Table::Narrow() {
  const auto spare = std::max_element(columns.begin(), columns.end(),
                                      [](const Column& a, const Column& b) { return a.spare < b.spare; });
  if (spare == columns.end() || spare->spare == 0) return false;
  const std::ptrdiff_t index = spare - columns.begin();
  columns.erase(spare);
  for (std::vector<std::string>& row : rows) row.erase(row.begin() + index);
  return true;
}

std::string Table::Text(const Screen& screen) {
  constexpr size_t kGap = 2;
  std::vector<size_t> widths = Widths();
  const auto too_wide = [&] {
    size_t width = 0;
    for (const size_t column : widths) width += column + kGap;
    if (enough_of_last != 0 && widths.back() > enough_of_last) width -= widths.back() - enough_of_last;
    return screen.columns > 0 && width - kGap > static_cast<size_t>(screen.columns);
  };
  while (too_wide() && Narrow()) widths = Widths();
  const auto line = [&](const std::vector<std::string>& words) {
    std::string text;
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      absl::StrAppend(&text, words[i], std::string(widths[i] - TextColumns(words[i]) + kGap, ' '));
    }
    return Fit(text + words.back(), screen.columns) + "\n";
  };
  std::vector<std::string> heads;
  for (const Column& column : columns) heads.push_back(column.head);
  std::string text = line(heads);
  for (const std::vector<std::string>& row : rows) text += line(row);
  return text;
}

}  // namespace c4::cli
