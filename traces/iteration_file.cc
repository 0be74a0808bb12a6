#include "traces/iteration_file.h"

#include <algorithm>
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

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
// Beyond these a number is no time of an iteration, and its square may be none at all.
constexpr double kShortest_s = 1e-12;
constexpr double kLongest_s = 1e12;

uint64_t HashOf(std::string_view text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

bool IsBinary(std::string_view line) {
  return std::any_of(line.begin(), line.end(),
                     [](char c) { return (c >= 0 && c < ' ' && c != '\t') || c == 0x7f; });
}

// The lines of a table, split.
class Table {
 public:
  explicit Table(ByteSource* source) : lines_(source) {}

  // The next line that is not blank; false: no more.
  absl::StatusOr<bool> Next() {
    for (;;) {
      const absl::StatusOr<std::optional<std::string_view>> line = lines_.Next();
      if (!line.ok()) return line.status();
      if (!*line) return false;
      if (IsBinary(**line)) return Refuse("it holds what is no text: is this a packed or binary file?");
      if (Trimmed(**line).empty()) continue;
      if (!splitter_) splitter_.emplace(SeparatorOf(**line));
      if (!splitter_->Split(**line, &fields_)) return Refuse("a quotation mark is not closed");
      for (std::string_view& field : fields_) field = Trimmed(field);
      if (names_.empty()) {
        names_.assign(fields_.begin(), fields_.end());
      } else if (fields_.size() != names_.size()) {
        return Refuse(absl::StrCat("it has ", fields_.size(), " fields, the first line ", names_.size(),
                                   ": is the file cut off?"));
      }
      return true;
    }
  }

  absl::Status Refuse(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", std::max(1u, lines_.line()), ": ", what));
  }

  // Where the first line has that name.
  absl::StatusOr<size_t> Find(const std::string& name) const {
    const auto count = std::count(names_.begin(), names_.end(), name);
    if (count > 1)
      return Refuse(absl::StrCat("there are ", count, " columns ", Quoted(name), ": remove all but one"));
    if (count == 1)
      return static_cast<size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
    return Refuse(absl::StrCat("there is no column ", Quoted(name), "; there are ", ColumnsText()));
  }

  std::string ColumnsText() const {
    constexpr size_t kShown = 12;
    std::vector<std::string> shown;
    for (const std::string& name : names_) {
      if (shown.size() < kShown) shown.push_back(Quoted(name));
    }
    return absl::StrCat(absl::StrJoin(shown, ", "), names_.size() > kShown ? " and more" : "");
  }

  const std::vector<std::string_view>& fields() const { return fields_; }
  const std::vector<std::string>& names() const { return names_; }
  uint32_t line() const { return lines_.line(); }

 private:
  LineReader lines_;
  std::optional<FieldSplitter> splitter_;
  std::vector<std::string_view> fields_;
  std::vector<std::string> names_;  // of the first line
};

class TimesReader {
 public:
  TimesReader(ByteSource* source, const TimesOptions& options) : table_(source), options_(options) {}

  absl::StatusOr<IterationTimes> Read() {
    const absl::StatusOr<bool> first = table_.Next();
    if (!first.ok()) return first.status();
    if (!*first)
      return table_.Refuse("the file is empty; it has to hold the time of an iteration in each line");
    size_t column = 0;
    if (!options_.column.empty()) {
      const absl::StatusOr<size_t> found = table_.Find(options_.column);
      if (!found.ok()) return found.status();
      column = *found;
    } else if (table_.names().size() > 1) {
      return table_.Refuse(absl::StrCat("there are several columns: choose one with --column; there are ",
                                        table_.ColumnsText()));
    } else if (ParseReal(table_.fields()[0])) {
      if (absl::Status added = AddTime(table_.fields()[0]); !added.ok()) return added;
    }
    for (;;) {
      const absl::StatusOr<bool> more = table_.Next();
      if (!more.ok()) return more.status();
      if (!*more) break;
      if (absl::Status added = AddTime(table_.fields()[column]); !added.ok()) return added;
    }
    if (times_.times_s.size() > times_.unusable) return std::move(times_);
    return table_.Refuse(times_.unusable == 0 ? "there is no time of an iteration in the file"
                                              : "no time in the file is a finite positive number");
  }

 private:
  absl::Status AddTime(std::string_view field) {
    const std::optional<double> value = field.empty() ? kNone : ParseReal(field);
    if (!value) return table_.Refuse(absl::StrCat(Quoted(field), " is not a number"));
    if (times_.times_s.size() >= options_.most) {
      return table_.Refuse(absl::StrCat("there are more than ", options_.most, " iterations: cut the file"));
    }
    const double time_s = *value * options_.seconds_per_unit;
    const bool usable = time_s >= kShortest_s && time_s <= kLongest_s;  // false of NaN
    times_.times_s.push_back(usable ? time_s : kNone);
    if (!usable && times_.unusable++ == 0) times_.first_unusable_line = table_.line();
    return absl::OkStatus();
  }

  Table table_;
  const TimesOptions& options_;
  IterationTimes times_;
};

class CallsReader {
 public:
  CallsReader(ByteSource* source, const CallsOptions& options) : table_(source), options_(options) {}

  absl::StatusOr<CallTable> Read() {
    const absl::StatusOr<bool> first = table_.Next();
    if (!first.ok()) return first.status();
    if (!*first) return table_.Refuse("the file is empty; it has to hold a call in each line");
    const size_t width = table_.names().size();
    if (absl::Status chosen = Choose(); !chosen.ok()) return chosen;
    hashes_.resize(width);
    // Whether the first line names the columns shows at the end.
    first_again_.resize(width);
    if (absl::Status added = AddCall(); !added.ok()) return added;
    for (;;) {
      const absl::StatusOr<bool> more = table_.Next();
      if (!more.ok()) return more.status();
      if (!*more) break;
      if (absl::Status added = AddCall(); !added.ok()) return added;
    }
    return Finish();
  }

 private:
  static bool IsTimeName(const std::string& name) {
    static constexpr std::string_view kNames[] = {"time", "time_s", "timestamp", "ts", "start_ts", "start_s"};
    return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
  }

  absl::Status Choose() {
    for (const std::string& name : options_.columns) {
      const absl::StatusOr<size_t> found = table_.Find(name);
      if (!found.ok()) return found.status();
      chosen_.push_back(*found);
    }
    const std::vector<std::string>& names = table_.names();
    if (!options_.time_column.empty()) {
      const absl::StatusOr<size_t> found = table_.Find(options_.time_column);
      if (!found.ok()) return found.status();
      time_ = *found;
    } else if (names.size() > 1) {
      const auto found = std::find_if(names.begin(), names.end(), IsTimeName);
      if (found != names.end()) time_ = static_cast<size_t>(found - names.begin());
    }
    return absl::OkStatus();
  }

  absl::Status AddCall() {
    const std::vector<std::string_view>& fields = table_.fields();
    if ((calls_ + 1) * fields.size() > options_.most_values) {
      return table_.Refuse(absl::StrCat("there are more than ", options_.most_values / fields.size(),
                                        " calls: cut the file, a hundred iterations are enough"));
    }
    for (size_t i = 0; i < fields.size(); ++i) {
      if (time_ == i) continue;
      const uint64_t hash = HashOf(fields[i]);
      if (calls_ > 0 && hash == hashes_[i].front()) first_again_[i] = true;
      hashes_[i].push_back(hash);
    }
    if (time_ && calls_ > 0) {  // the first line names the columns then
      const std::string_view field = fields[*time_];
      const std::optional<double> value = field.empty() ? kNone : ParseReal(field);
      if (!value) return table_.Refuse(absl::StrCat("the time is ", Quoted(field), ", not a number"));
      times_s_.push_back(*value * options_.seconds_per_unit);
    }
    ++calls_;
    return absl::OkStatus();
  }

  CallTable Finish() {
    const bool named = !chosen_.empty() || time_ || (hashes_.size() > 1 && calls_ > 1 && NeverAgain());
    CallTable table;
    table.calls = calls_ - (named ? 1 : 0);
    table.times_s = std::move(times_s_);
    for (size_t i = 0; i < hashes_.size(); ++i) {
      if (time_ == i) continue;
      const bool wanted =
          chosen_.empty() ? true : std::find(chosen_.begin(), chosen_.end(), i) != chosen_.end();
      if (!wanted) continue;
      CallColumn column = {.name = named ? table_.names()[i] : "", .values = std::move(hashes_[i])};
      if (named) column.values.erase(column.values.begin());
      if (chosen_.empty() && hashes_.size() > 1 && MostlyDifferent(column.values)) continue;
      table.columns.push_back(std::move(column));
    }
    return table;
  }

  // No field of the first line comes again in its column.
  bool NeverAgain() const {
    return std::none_of(first_again_.begin(), first_again_.end(), [](bool again) { return again; });
  }

  static bool MostlyDifferent(const std::vector<uint64_t>& values) {
    std::vector<uint64_t> sorted(values);
    std::sort(sorted.begin(), sorted.end());
    const auto different = static_cast<size_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin());
    return 2 * different > values.size();
  }

  Table table_;
  const CallsOptions& options_;
  std::vector<size_t> chosen_;
  std::optional<size_t> time_;
  std::vector<std::vector<uint64_t>> hashes_;  // by column
  std::vector<bool> first_again_;
  std::vector<double> times_s_;
  size_t calls_ = 0;
};

}  // namespace

absl::StatusOr<IterationTimes> ReadIterationTimes(ByteSource* source, const TimesOptions& options) {
  return TimesReader(source, options).Read();
}

absl::StatusOr<CallTable> ReadCalls(ByteSource* source, const CallsOptions& options) {
  return CallsReader(source, options).Read();
}

}  // namespace c4::traces
