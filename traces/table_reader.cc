#include "traces/table_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "traces/fields.h"
#include "traces/line_reader.h"

namespace c4::traces {
namespace {

using whatif::OperationRecord;
using whatif::OperationType;

enum Column : size_t {
  kDpRank,
  kStage,
  kRank,
  kStep,
  kOpType,
  kStart,
  kDuration,
  kEnd,
  kSequence,
  kChunk,
  kMicroBatch,
  kGlobalChunk,
  kColumns,
  kIgnored,
};

struct ColumnName {
  std::string_view name;
  Column column;
};

constexpr ColumnName kNames[] = {
    {"dp_rank", kDpRank},  {"stage", kStage},     {"pp_rank", kStage},  {"rank", kRank},
    {"step", kStep},       {"optype", kOpType},   {"start_ts", kStart}, {"duration", kDuration},
    {"end_ts", kEnd},      {"seq_id", kSequence}, {"mc", kChunk},       {"mb_id", kMicroBatch},
    {"gmc", kGlobalChunk},
};

const char* NameOf(Column column) {
  for (const ColumnName& name : kNames) {
    if (name.column == column) return name.name.data();
  }
  return "";
}

// Rounding may make a duration of nothing a little less than nothing.
constexpr double kRounding_s = 1e-6;
// The sum of as many as a trace may have is a number of single precision yet.
constexpr double kLongest_s = 1e33;

// "12", and "12.0" as tables write it that had an empty cell in the column.
std::optional<int32_t> ParseWhole(std::string_view text) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  const std::optional<double> real = ParseReal(text);
  if (!real || std::abs(*real) > 2e9 || *real != std::floor(*real)) return std::nullopt;
  return static_cast<int32_t>(*real);
}

class TableReader {
 public:
  TableReader(ByteSource* source, const TableOptions& options) : lines_(source), options_(options) {}

  absl::StatusOr<TableContents> Read() {
    const absl::Status header = ReadHeader();
    if (!header.ok()) return header;
    FieldSplitter splitter(separator_);
    std::vector<std::string_view> fields;
    for (;;) {
      const absl::StatusOr<std::optional<std::string_view>> line = lines_.Next();
      if (!line.ok()) return line.status();
      if (!*line) break;
      if (Trimmed(**line).empty()) continue;
      if (!splitter.Split(**line, &fields)) return Refuse("a quotation mark is not closed");
      if (fields.size() != columns_.size()) {
        return Refuse(absl::StrCat("it has ", fields.size(), " fields, the header ", columns_.size(),
                                   ": is the file cut off?"));
      }
      const absl::Status read = ReadOperation(fields);
      if (!read.ok()) return read;
    }
    for (const auto& [name, unknown] : unknown_) {
      contents_.notes.push_back(absl::StrCat(unknown.count, " operations of type ", Quoted(name),
                                             ", the first in line ", unknown.line,
                                             ", are left out: the analysis does not know this type"));
    }
    return std::move(contents_);
  }

 private:
  struct Unknown {
    size_t count = 0;
    uint32_t line = 0;
  };

  absl::Status Refuse(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", lines_.line(), ": ", what));
  }

  absl::Status ReadHeader() {
    absl::StatusOr<std::optional<std::string_view>> line = lines_.Next();
    if (!line.ok()) return line.status();
    if (!*line) {
      return absl::InvalidArgumentError("line 1: the file is empty; it has to name its columns there");
    }
    separator_ = SeparatorOf(**line);
    FieldSplitter splitter(separator_);
    std::vector<std::string_view> fields;  // may lie in the splitter
    if (!splitter.Split(**line, &fields)) return Refuse("a quotation mark is not closed");
    for (const std::string_view field : fields) {
      const auto* const name =
          std::find_if(std::begin(kNames), std::end(kNames),
                       [field](const ColumnName& one) { return one.name == Trimmed(field); });
      const Column column = name == std::end(kNames) ? kIgnored : name->column;
      if (column != kIgnored && has_[column]) {
        return Refuse(absl::StrCat("there are two columns for ", NameOf(column), ": remove one"));
      }
      if (column != kIgnored) has_[column] = true;
      columns_.push_back(column);
    }
    std::vector<std::string> missing;
    for (const Column column : {kDpRank, kStage, kStep, kOpType, kStart}) {
      if (!has_[column]) missing.emplace_back(NameOf(column));
    }
    if (!has_[kDuration] && !has_[kEnd]) missing.emplace_back("duration");
    if (missing.empty()) return absl::OkStatus();
    return Refuse(absl::StrCat("this is no table of operations, or its header is missing: it has no column ",
                               absl::StrJoin(missing, ", "), " (docs/whatif.md names the columns)"));
  }

  absl::Status ReadOperation(const std::vector<std::string_view>& fields) {
    std::array<int32_t, kColumns> whole;
    whole.fill(-1);
    std::array<double, kColumns> real;
    real.fill(0);
    std::string damage;
    std::optional<OperationType> type;
    std::string_view type_name;
    for (size_t i = 0; i < fields.size(); ++i) {
      const Column column = columns_[i];
      if (column == kIgnored) continue;
      const std::string_view field = Trimmed(fields[i]);
      if (column == kOpType) {
        type_name = field;
        type = TypeOf(field);
      } else if (column == kStart || column == kDuration || column == kEnd) {
        const std::optional<double> value = ParseReal(field);
        if (!value && !field.empty()) {
          return Refuse(absl::StrCat(NameOf(column), " is ", Quoted(field), ", not a number"));
        }
        real[column] = value.value_or(std::numeric_limits<double>::quiet_NaN()) * options_.seconds_per_unit;
        if (!std::isfinite(real[column])) {
          damage = absl::StrCat(NameOf(column), " is ", field.empty() ? "empty" : std::string(field));
        }
      } else if (field.empty() && !Required(column)) {
        continue;
      } else if (const std::optional<int32_t> value = ParseWhole(field)) {
        whole[column] = *value;
      } else {
        return Refuse(absl::StrCat(NameOf(column), " is ", Quoted(field), ", not a whole number"));
      }
    }
    if (!Wanted(whole[kStep])) return absl::OkStatus();
    if (!type) {
      Unknown& unknown = unknown_[std::string(type_name)];
      if (unknown.count++ == 0) unknown.line = lines_.line();
      return unknown_.size() > kMaxUnknownTypes
                 ? Refuse(
                       "the trace has too many unknown types: is optype the right "
                       "column?")
                 : absl::OkStatus();
    }
    return Add(*type, whole, real, damage);
  }

  absl::Status Add(OperationType type, const std::array<int32_t, kColumns>& whole,
                   const std::array<double, kColumns>& real, std::string damage) {
    if (absl::Status range = CheckRanges(whole); !range.ok()) return range;
    double duration_s = has_[kDuration] ? real[kDuration] : real[kEnd] - real[kStart];
    if (damage.empty() && duration_s < -kRounding_s) {
      damage = absl::StrCat("the duration of ", whatif::OperationName(type), " is negative (", duration_s,
                            " s): did the clock jump?");
    }
    if (damage.empty() && (duration_s > kLongest_s || std::abs(real[kStart]) > kLongest_s)) {
      return Refuse(absl::StrCat(whatif::OperationName(type), " of step ", whole[kStep], " starts at ",
                                 real[kStart], " s and takes ", duration_s,
                                 " s, more than can be added up: is --time-unit right?"));
    }
    if (!damage.empty()) {
      contents_.records.AddDamaged(whole[kStep], lines_.line(), damage);
      return absl::OkStatus();
    }
    if (contents_.records.size() >= options_.max_operations) {
      return Refuse(absl::StrCat("the trace has more than ", options_.max_operations,
                                 " operations: choose some of its steps with --steps, or allow more with "
                                 "--max-operations"));
    }
    OperationRecord record;
    record.start_s = real[kStart];
    record.duration_s = static_cast<float>(std::max(0.0, duration_s));
    record.step = whole[kStep];
    record.line = lines_.line();
    record.rank = whole[kRank];
    record.sequence = whole[kSequence];
    record.micro_batch = whole[kMicroBatch];
    record.chunk = static_cast<int16_t>(whole[kChunk]);
    record.global_chunk = static_cast<int16_t>(whole[kGlobalChunk]);
    record.dp_rank = static_cast<uint16_t>(whole[kDpRank]);
    record.stage = static_cast<uint16_t>(whole[kStage]) & 0xfff;
    record.type = static_cast<uint16_t>(type) & 0xf;
    contents_.records.Add(record);
    return absl::OkStatus();
  }

  absl::Status CheckRanges(const std::array<int32_t, kColumns>& whole) const {
    struct Range {
      Column column;
      int32_t min;
      int32_t max;
    };
    static constexpr Range kRanges[] = {{kDpRank, 0, whatif::kMaxDpRanks - 1},
                                        {kStage, 0, whatif::kMaxStages - 1},
                                        {kRank, -1, 1 << 24},
                                        {kSequence, -1, 1 << 24},
                                        {kChunk, -1, 1023},
                                        {kGlobalChunk, -1, 32766}};
    for (const Range& range : kRanges) {
      const int32_t value = whole[range.column];
      if (value >= range.min && value <= range.max) continue;
      return Refuse(
          absl::StrCat(NameOf(range.column), " is ", value, ", not between ", range.min, " and ", range.max));
    }
    return absl::OkStatus();
  }

  static bool Required(Column column) { return column == kDpRank || column == kStage || column == kStep; }

  bool Wanted(int32_t step) const {
    return options_.steps.empty() ||
           std::any_of(options_.steps.begin(), options_.steps.end(),
                       [step](const auto& range) { return step >= range.first && step <= range.second; });
  }

  // Operations of a type mostly stand together.
  std::optional<OperationType> TypeOf(std::string_view name) {
    if (name == last_name_ && last_type_) return last_type_;
    last_name_ = name;
    last_type_ = whatif::ParseOperationType(name);
    return last_type_;
  }

  static constexpr size_t kMaxUnknownTypes = 100;

  LineReader lines_;
  const TableOptions& options_;
  char separator_ = ',';
  std::vector<Column> columns_;
  std::array<bool, kColumns> has_{};
  std::map<std::string, Unknown> unknown_;
  std::string last_name_;
  std::optional<OperationType> last_type_;
  TableContents contents_;
};

}  // namespace

absl::StatusOr<TableContents> ReadTable(ByteSource* source, const TableOptions& options) {
  return TableReader(source, options).Read();
}

}  // namespace c4::traces
