// The fields of a line of a table. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace c4::traces {

// What parts the fields of a table with that header: the first of comma, tab and semicolon that it has; a
// comma where it has none.
char SeparatorOf(std::string_view header);

// Without blanks and tabs around it.
std::string_view Trimmed(std::string_view text);

// In quotation marks, cut at 40 bytes, for a message.
std::string Quoted(std::string_view text);

std::optional<double> ParseReal(std::string_view text);

// Splits a line at `separator`; a field may stand in quotation marks, doubled ones within (RFC 4180).
class FieldSplitter {
 public:
  explicit FieldSplitter(char separator) : separator_(separator) {}

  // Fields are good until the next call. False: a quotation mark is not closed.
  bool Split(std::string_view line, std::vector<std::string_view>* fields);

 private:
  bool SplitQuoted(std::string_view* line, std::vector<std::string_view>* fields);

  char separator_;
  std::string unquoted_;
};

}  // namespace c4::traces
