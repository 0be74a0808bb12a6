// Putting texts together and taking them apart, with the standard library alone: for what `c4-install` links
// as well (cli/CMakeLists.txt, c4_image). Pure; any thread.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

namespace c4::cli {

namespace plain_text_internal {
inline void AddPart(std::string_view part, std::string* text) {
  text->append(part);
}
template <std::integral Number>
void AddPart(Number part, std::string* text) {
  *text += std::to_string(part);
}
void AddPart(double part, std::string* text);  // six digits at most: 0.25, 1e+06
}  // namespace plain_text_internal

// One text of texts and numbers.
template <typename... Parts>
void CatTo(std::string* text, const Parts&... parts) {
  (plain_text_internal::AddPart(parts, text), ...);
}
template <typename... Parts>
std::string Cat(const Parts&... parts) {
  std::string text;
  CatTo(&text, parts...);
  return text;
}

std::string Join(const std::vector<std::string>& parts, std::string_view between);
// What stands between the characters of `separators`; of two in a row, and at either end, an empty part.
std::vector<std::string> Split(std::string_view text, std::string_view separators);
// The same without empty parts.
std::vector<std::string> Words(std::string_view text, std::string_view separators);
std::string Replaced(std::string_view text, std::string_view from, std::string_view to);
// `text` and blanks behind it up to `width` bytes.
std::string Padded(std::string_view text, size_t width);
bool Contains(std::string_view text, std::string_view part);
bool EqualsIgnoringCase(std::string_view a, std::string_view b);  // of ASCII's letters

}  // namespace c4::cli
