// Texts: putting them together, and making those from outside (shared memory, /proc, other programs) fit
// for protobuf, JSON and the log, which take UTF-8 only. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace c4::service {

namespace text_internal {
// Debian's abseil keeps its own string_view, which the standard one does not become by itself.
template <typename Part>
decltype(auto) AsPart(const Part& part) {
  if constexpr (std::is_same_v<Part, std::string_view>) {
    return absl::string_view(part.data(), part.size());
  } else {
    return (part);
  }
}
}  // namespace text_internal

// absl::StrCat that takes std::string_view as well.
template <typename... Parts>
std::string Concat(const Parts&... parts) {
  return absl::StrCat(text_internal::AsPart(parts)...);
}

// `text` with every byte that is not part of well-formed UTF-8 replaced by '?'.
std::string ToUtf8(std::string_view text);

// The text of a fixed-size field that may not be terminated: up to the first NUL or the field's end.
std::string FieldText(const char* field, size_t bytes);

}  // namespace c4::service
