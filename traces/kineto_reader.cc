#include "traces/kineto_reader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "traces/kineto_file.h"

namespace c4::traces {

absl::StatusOr<std::unique_ptr<KinetoReader>> KinetoReader::Make(KinetoMapping mapping,
                                                                 const whatif::JobShape& shape,
                                                                 const TableOptions& options) {
  absl::StatusOr<RankPlaces> places = RankPlaces::Make(mapping.layout, shape);
  if (!places.ok()) return places.status();
  return std::unique_ptr<KinetoReader>(new KinetoReader(std::move(mapping), *std::move(places), options));
}

absl::Status KinetoReader::Read(const std::string& file, ByteSource* source) {
  return KinetoFile(file, source, this).Read();
}

absl::Status KinetoReader::CheckWorkers() const {
  std::vector<int> missing;
  for (const int rank : places_.Workers()) {
    if (!file_of_rank_.contains(rank)) missing.push_back(rank);
  }
  if (missing.empty()) return absl::OkStatus();
  constexpr size_t kShown = 8;
  const size_t shown = std::min(kShown, missing.size());
  const std::vector<int> first(missing.begin(), missing.begin() + static_cast<ptrdiff_t>(shown));
  return absl::InvalidArgumentError(
      absl::StrCat("there is no profile of ", missing.size(), " of the ranks that the layout wants: rank ",
                   absl::StrJoin(first, ", "), missing.size() > shown ? ", ..." : "",
                   ": give the files of all ranks, or correct the layout"));
}

absl::Status KinetoReader::CheckRules() {
  size_t unused = 0;
  std::vector<std::string> sides[2];  // rules timed on the CPU, on the GPU
  for (size_t i = 0; i < rules_.size(); ++i) {
    const RuleUse& use = rules_[i];
    const KinetoRule& rule = mapping_.rules[i];
    unused += use.used ? 0 : 1;
    if (!use.used && !rule.optional) {
      contents_.notes.push_back(
          absl::StrCat(RuleName(mapping_, i), " of the mapping matches no event in a step"));
    }
    // Garbage is collected on the CPU, whatever the rest is timed on.
    if (use.used && rule.type != whatif::OperationType::kGc) {
      const bool on_gpu =
          std::any_of(use.ranks_by_category.begin(), use.ranks_by_category.end(), [&rule](const auto& entry) {
            const std::string& category = rule.categories[entry.first];
            return category == kLaunched || IsOnGpu(category);
          });
      sides[on_gpu ? 1 : 0].push_back(RuleName(mapping_, i));
    }
    if (use.ranks_by_category.size() < 2) continue;
    std::vector<std::string> parts;
    for (const auto& [place, ranks] : use.ranks_by_category) {
      parts.push_back(absl::StrCat(rule.categories[place], " on ", ranks));
    }
    contents_.notes.push_back(absl::StrCat(
        RuleName(mapping_, i), " of the mapping takes different categories, ", absl::StrJoin(parts, " and "),
        " ranks: times of the CPU and of the GPU are not the same"));
  }
  if (!sides[0].empty() && !sides[1].empty()) {
    contents_.notes.push_back(
        absl::StrCat("times of ", absl::StrJoin(sides[0], ", "),
                     " are those of the CPU, all others of the GPU: a mark on the CPU ends when its kernels "
                     "are launched, not when they have run"));
  }
  if (unused < rules_.size()) return absl::OkStatus();
  std::vector<std::string> names;
  for (size_t i = 0; i < rules_.size(); ++i) names.push_back(RuleName(mapping_, i));
  return absl::InvalidArgumentError(
      absl::StrCat("no event in a step comes under any rule of the mapping: ", absl::StrJoin(names, ", "),
                   "; compare names and categories with those of the profile"));
}

void KinetoReader::NoteWhatIsLeftOut() {
  std::vector<std::string>& notes = contents_.notes;
  if (ranks_left_out_ > 0) {
    notes.push_back(
        absl::StrCat(ranks_left_out_,
                     mapping_.layout.order.empty()
                         ? " ranks are left out: the mapping's table does not name them"
                         : " ranks are left out: others of their tensor or context groups stand for them"));
  }
  if (outside_.number > 0) {
    notes.push_back(absl::StrCat(outside_.number,
                                 " operations that start within no step are left out, the first is ",
                                 outside_.first));
  }
  if (unpaired_.number > 0) {
    notes.push_back(
        absl::StrCat(unpaired_.number,
                     " events that begin without an end or end without a beginning (ph B, E) are left "
                     "out, the first is ",
                     unpaired_.first));
  }
  if (copies_.number > 0) {
    notes.push_back(absl::StrCat(copies_.number,
                                 " operations are there twice with the same times, the first is ",
                                 copies_.first, ": taken once"));
  }
  if (missing_.number > 0) {
    notes.push_back(absl::StrCat(missing_.number,
                                 " members of events have no value and count as not there, the first are in ",
                                 missing_.first));
  }
  if (idle_.number > 0) {
    notes.push_back(absl::StrCat(idle_.number,
                                 " marks are left out that launched no kernel, while others of their rule "
                                 "did; the first is ",
                                 idle_.first));
  }
  if (clocks_.number > 0) {
    notes.push_back(
        absl::StrCat("on ", clocks_.number,
                     " ranks operations are timed on the GPU and steps only on the CPU, which runs "
                     "ahead: operations may be counted to the next step; the first is ",
                     clocks_.first));
  }
}

absl::StatusOr<TableContents> KinetoReader::Finish() {
  if (absl::Status workers = CheckWorkers(); !workers.ok()) return workers;
  if (absl::Status rules = CheckRules(); !rules.ok()) return rules;
  NoteWhatIsLeftOut();
  if (on_processors_) {
    for (const whatif::OperationRecord& begin : step_begins_) contents_.records.Add(begin);
  }
  return std::move(contents_);
}

}  // namespace c4::traces
