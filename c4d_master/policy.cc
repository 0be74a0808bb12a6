#include "c4d_master/policy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "service/printable.h"
#include "service/run_dir.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr double kNsPerSecond = 1e9;
constexpr size_t kMaxFileBytes = 64 * 1024;

// The shortest text that reads back as the same number, without an exponent: alike on every machine.
std::string NumberText(double number) {
  std::array<char, 400> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  return {text.data(), end.ptr};
}

const PolicyOrder* FindContradiction(const Policy& policy) {
  const auto value = [&](const char* name) { return PolicyValue(*FindPolicyEntry(name), policy); };
  for (const PolicyOrder& order : PolicyOrders()) {
    if (value(order.less) > value(order.more)) return &order;
  }
  return nullptr;
}

std::string ContradictionText(const PolicyOrder& order, const Policy& policy, std::string_view prefix) {
  const auto text = [&](const char* name) {
    return Concat(prefix, name, " ", PolicyValueText(*FindPolicyEntry(name), policy));
  };
  return Concat(text(order.more), " is less than ", text(order.less));
}

// One line of a file, without its comment: nothing, or a key and its value.
struct Line {
  std::string key;
  std::string value;
};

absl::StatusOr<Line> ParseLine(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text.substr(0, text.find('#')));
  if (text.empty()) return Line();
  const size_t equals = text.find('=');
  if (equals == absl::string_view::npos) {
    return absl::InvalidArgumentError("it is no \"key = value\"; a comment begins with #");
  }
  return Line{std::string(absl::StripAsciiWhitespace(text.substr(0, equals))),
              std::string(absl::StripAsciiWhitespace(text.substr(equals + 1)))};
}

absl::Status Take(const Line& line, Policy* policy) {
  const PolicyEntry* entry = FindPolicyEntry(line.key);
  if (entry == nullptr) {
    return absl::InvalidArgumentError(Concat("there is no threshold \"", service::Printable(line.key),
                                             "\"; `c4 policy` lists what there is"));
  }
  double value = 0;
  if (!absl::SimpleAtod(line.value, &value)) value = std::nan("");
  if (absl::Status status = SetPolicyValue(*entry, value, policy); !status.ok()) {
    return absl::InvalidArgumentError(
        Concat(line.key, " is \"", service::Printable(line.value), "\": ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace

const PolicyEntry* FindPolicyEntry(std::string_view name) {
  const std::span<const PolicyEntry> table = PolicyTable();
  const auto found = std::find_if(table.begin(), table.end(), [&](const auto& e) { return name == e.name; });
  return found == table.end() ? nullptr : &*found;
}

double PolicyValue(const PolicyEntry& entry, Policy policy) {
  const PolicyField field = entry.field(policy);
  if (auto* const* ns = std::get_if<int64_t*>(&field)) return static_cast<double>(**ns) / kNsPerSecond;
  if (auto* const* number = std::get_if<uint64_t*>(&field)) return static_cast<double>(**number);
  return *std::get<double*>(field);
}

std::string PolicyValueText(const PolicyEntry& entry, const Policy& policy) {
  return NumberText(PolicyValue(entry, policy));
}

absl::Status SetPolicyValue(const PolicyEntry& entry, double value, Policy* policy) {
  const PolicyField field = entry.field(*policy);
  auto* const* number = std::get_if<uint64_t*>(&field);
  const bool whole = number == nullptr || std::floor(value) == value;
  if (!(value >= entry.low && value <= entry.high) || !whole) {
    return absl::OutOfRangeError(Concat("give a ", number == nullptr ? "" : "whole ", "number from ",
                                        NumberText(entry.low), " to ", NumberText(entry.high), " (",
                                        entry.unit, ")"));
  }
  if (number != nullptr) {
    **number = static_cast<uint64_t>(value);
  } else if (auto* const* ns = std::get_if<int64_t*>(&field)) {
    **ns = std::llround(value * kNsPerSecond);
  } else {
    *std::get<double*>(field) = value;
  }
  return absl::OkStatus();
}

absl::Status CheckPolicy(const Policy& policy, std::string_view prefix) {
  const PolicyOrder* order = FindContradiction(policy);
  return order == nullptr ? absl::OkStatus()
                          : absl::InvalidArgumentError(ContradictionText(*order, policy, prefix));
}

absl::StatusOr<Policy> ParsePolicy(std::string_view text, const std::string& name) {
  Policy policy;
  std::map<std::string, int> lines;  // by key
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const absl::string_view content(text.data(), end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    const absl::StatusOr<Line> line = ParseLine(content);
    absl::Status status = line.status();
    if (status.ok() && !line->key.empty()) {
      const auto [before, is_new] = lines.emplace(line->key, number);
      status =
          is_new
              ? Take(*line, &policy)
              : absl::InvalidArgumentError(Concat(line->key, " stands in line ", before->second, " already"));
    } else if (status.ok() && !line->value.empty()) {
      status = absl::InvalidArgumentError("a name is missing before the =");
    }
    if (!status.ok()) {
      return absl::InvalidArgumentError(Concat(name, ", line ", number, ": ", status.message()));
    }
  }
  if (const PolicyOrder* order = FindContradiction(policy)) {
    // The later of the two, which one edited last.
    const int line = std::max(lines[order->less], lines[order->more]);
    return absl::InvalidArgumentError(
        Concat(name, ", line ", line, ": ", ContradictionText(*order, policy, ""), "; change one of them"));
  }
  return policy;
}

absl::StatusOr<Policy> LoadPolicy(const std::string& path) {
  const absl::StatusOr<std::string> text =
      service::ReadSmallFile(path, kMaxFileBytes, service::Links::kFollow);
  if (!text.ok()) return service::Annotate(text.status(), "policy");
  return ParsePolicy(*text, path);
}

std::string PolicyVersion(const Policy& policy) {
  // FNV-1a of 64 bits, folded.
  uint64_t hash = 0xcbf29ce484222325;
  for (const PolicyEntry& entry : PolicyTable()) {
    for (const char c : Concat(entry.name, "=", PolicyValueText(entry, policy), "\n")) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    }
  }
  return absl::StrFormat("%08x", static_cast<uint32_t>(hash ^ (hash >> 32)));
}

}  // namespace c4::c4d
