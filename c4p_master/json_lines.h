// JSON that people wrote, as a tree whose every part knows its line, so that an error can name it. Keys that
// come twice are errors, and so is what is nested too deep or too large to be meant.
//
// Plain values; any thread. Reading is nlohmann's, in the .cc only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace c4::c4p {

struct JsonLine {
  enum class Kind { kNull, kBool, kNumber, kText, kList, kObject };
  Kind kind = Kind::kNull;
  int line = 0;
  bool flag = false;
  double number = 0;
  std::string text;
  std::vector<JsonLine> list;     // of an object: its values
  std::vector<std::string> keys;  // of an object

  // Null: there is none.
  const JsonLine* Find(std::string_view key) const;
};

const char* KindName(JsonLine::Kind kind);

inline constexpr size_t kMaxJsonBytes = 64U << 20;
inline constexpr size_t kMaxJsonParts = 8'000'000;

// InvalidArgument: "line 12: ...".
absl::StatusOr<JsonLine> ReadJson(std::string_view text);

absl::Status AtLine(int line, std::string_view sentence);
// Errors unless `object` is one, has all keys of `needed` and none that is neither there nor in `allowed`.
absl::Status CheckKeys(const JsonLine& object, std::string_view what,
                       const std::vector<std::string_view>& needed,
                       const std::vector<std::string_view>& allowed);
// The member `key` of `object`, of that kind. A member that is not there leaves `out` as it is.
absl::Status GetText(const JsonLine& object, std::string_view key, std::string* out);
absl::Status GetNumber(const JsonLine& object, std::string_view key, double least, double most, double* out);
absl::Status GetWhole(const JsonLine& object, std::string_view key, int least, int most, int* out);
absl::Status GetFlag(const JsonLine& object, std::string_view key, bool* out);
// Null in `out`: not there.
absl::Status GetList(const JsonLine& object, std::string_view key, const JsonLine** out);

}  // namespace c4::c4p
