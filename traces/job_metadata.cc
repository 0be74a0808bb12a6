#include "traces/job_metadata.h"

#include <charconv>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace c4::traces {
namespace {

using whatif::JobShape;

int* SizeOf(std::string_view key, JobShape* shape) {
  if (key == "dp_size") return &shape->dp_size;
  if (key == "pp_size") return &shape->pp_size;
  if (key == "tp_size") return &shape->tp_size;
  if (key == "dsp_size" || key == "cp_size") return &shape->cp_size;
  if (key == "vpp_size") return &shape->vpp_size;
  if (key == "world_size") return &shape->world_size;
  if (key == "num_layers") return &shape->layers;
  return nullptr;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string_view WithoutQuotes(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front()) {
    return text.substr(1, text.size() - 2);
  }
  return text;
}

absl::Status Refuse(const std::string& where, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", what));
}

absl::Status Set(const std::string& where, std::string_view key, std::string_view value, JobShape* shape) {
  if (key == "trial_name") shape->name = std::string(WithoutQuotes(value));
  int* size = SizeOf(key, shape);
  if (size == nullptr) return absl::OkStatus();
  constexpr int kMost = 1 << 24;
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < 1 || number > kMost) {
    return Refuse(where, absl::StrCat(std::string(key), " is '", std::string(value),
                                      "', not a whole number from 1: correct the metadata"));
  }
  *size = number;
  return absl::OkStatus();
}

absl::StatusOr<JobShape> ParseJson(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return Refuse("line 1", "the metadata are no JSON object");
  JobShape shape;
  for (const auto& [key, value] : json.items()) {
    const std::string plain = value.is_string()
                                  ? value.get<std::string>()
                                  : value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    const absl::Status set = Set("line 1", key, plain, &shape);
    if (!set.ok()) return set;
  }
  return shape;
}

}  // namespace

absl::StatusOr<JobShape> ParseJobMetadata(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return Refuse("line 1", "the metadata are empty");
  if (text[first] == '{') return ParseJson(text);
  JobShape shape;
  int line_number = 0;
  while (!text.empty()) {
    const std::string where = absl::StrCat("line ", ++line_number);
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const bool nested = !line.empty() && (line.front() == ' ' || line.front() == '\t');
    if (const size_t comment = line.find(" #"); comment != std::string_view::npos)
      line = line.substr(0, comment);
    line = Trimmed(line);
    if (nested || line.empty() || line.front() == '#' || line.starts_with("---") || line.front() == '-')
      continue;
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) {
      return Refuse(where, "it is not of the form `key: value`, which is all that is read of YAML");
    }
    const absl::Status set =
        Set(where, WithoutQuotes(Trimmed(line.substr(0, colon))), Trimmed(line.substr(colon + 1)), &shape);
    if (!set.ok()) return set;
  }
  return shape;
}

}  // namespace c4::traces
