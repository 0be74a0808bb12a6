#include "traces/kineto_file.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "traces/chakra_events.h"

namespace c4::traces {
namespace {

// Rounding may make a duration of nothing a little less than nothing.
constexpr int64_t kRounding_ns = 1000;
constexpr size_t kMostOpen = 1 << 20;
constexpr size_t kMostDamages = 1 << 16;

// 0: it has none.
uint64_t CorrelationOf(const KinetoEvent& event) {
  const std::string* const text = event.Arg(kCorrelation);
  uint64_t correlation = 0;
  return text != nullptr && absl::SimpleAtoi(*text, &correlation) ? correlation : 0;
}

}  // namespace

KinetoFile::KinetoFile(const std::string& name, ByteSource* source, KinetoReader* job)
    : name_(name), job_(*job) {
  if (IsChakra(name)) {
    events_ = std::make_unique<ChakraEvents>(source, job->matcher_.args());
  } else {
    events_ = std::make_unique<KinetoEvents>(source, job->matcher_.args());
  }
}

std::string KinetoFile::Where(uint64_t event) const {
  return absl::StrCat(name_, ": event ", event);
}

absl::Status KinetoFile::At(uint64_t event, const std::string& what) const {
  return absl::InvalidArgumentError(absl::StrCat(Where(event), ": ", what));
}

absl::StatusOr<std::optional<int>> KinetoFile::Rank(bool at_end) const {
  constexpr int kMostRanks = 1 << 24;
  const bool by_file = job_.mapping_.rank_of_file.has_value();
  if (!by_file && events_->header().rank) return events_->header().rank;
  if (!by_file && !at_end && !IsChakra(name_)) return std::nullopt;
  const std::string file = name_.substr(name_.find_last_of('/') + 1);
  static const absl::StatusOr<TextPattern> usual = TextPattern::Regex("rank[-_.]?([0-9]+)");
  static const absl::StatusOr<TextPattern> of_chakra = TextPattern::Regex("([0-9]+)[.]et([.]|$)");
  const TextPattern& pattern = by_file ? *job_.mapping_.rank_of_file : IsChakra(name_) ? *of_chakra : *usual;
  std::vector<std::optional<std::string>> groups;
  if (pattern.Matches(file, &groups) && groups[1]) {
    int rank = 0;
    const std::string& text = *groups[1];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (error == std::errc() && end == text.data() + text.size() && rank >= 0 && rank <= kMostRanks)
      return rank;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      name_, ": which rank is it? ",
      by_file           ? "rank.file_regex of the mapping finds no number in its name"
      : IsChakra(name_) ? "Its name is not NAME.RANK.et: give the mapping a rank.file_regex"
                        : "It has no distributedInfo.rank, and its name has no rank_N: give the mapping a "
                          "rank.file_regex"));
}

absl::StatusOr<bool> KinetoFile::Settle(int rank) {
  rank_ = rank;
  const auto [known, fresh] = job_.file_of_rank_.try_emplace(rank, name_);
  if (!fresh) {
    return absl::InvalidArgumentError(
        absl::StrCat(name_, ": it is of rank ", rank, ", and so is ", known->second, ": leave one out"));
  }
  const absl::StatusOr<std::optional<RankPlaces::Place>> place = job_.places_.Find(rank);
  if (!place.ok()) return absl::InvalidArgumentError(absl::StrCat(name_, ": ", place.status().message()));
  if (!*place) {
    ++job_.ranks_left_out_;
    return false;
  }
  place_ = **place;
  return true;
}

absl::Status KinetoFile::Read() {
  KinetoEvent event;
  for (bool more = true; more;) {
    const absl::StatusOr<bool> next = events_->Next(&event);
    if (!next.ok()) return {next.status().code(), absl::StrCat(name_, ": ", next.status().message())};
    more = *next;
    if (!rank_) {
      const absl::StatusOr<std::optional<int>> rank = Rank(!more);
      if (!rank.ok()) return rank.status();
      if (*rank) {
        const absl::StatusOr<bool> wanted = Settle(**rank);
        if (!wanted.ok() || !*wanted) return wanted.status();  // what is left of it is not looked at
      }
    }
    if (!more) break;
    if (absl::Status taken = Take(event); !taken.ok()) return taken;
  }
  const std::optional<int> world_size = events_->header().world_size;
  if (world_size && job_.places_.world_size() != 0 && *world_size != job_.places_.world_size()) {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": its distributedInfo says world_size ",
                                                   *world_size, ", the sizes of the layout make ",
                                                   job_.places_.world_size(), ": correct the mapping"));
  }
  if (absl::Status steps = FindSteps(); !steps.ok()) return steps;
  for (const auto& [thread, begun] : open_) {
    if (!begun.empty()) job_.unpaired_.Add(begun.size(), Where(begun.front().event));
  }
  Assign();
  JoinRuns();
  AddLaunched();
  Prefer();
  Join();
  KeepLast();
  RemoveCopies();
  const uint64_t missing = events_->header().missing_values;
  if (missing > 0) job_.missing_.Add(missing, name_);
  return Emit();
}

uint32_t KinetoFile::ThreadOf(const KinetoEvent& event) {
  return threads_.try_emplace(absl::StrCat(event.pid, "/", event.tid), threads_.size()).first->second;
}

// What a rule takes by itself is an operation of its own, and no part of another.
absl::Status KinetoFile::TakeLaunch(const KinetoEvent& event) {
  const bool launch = IsLaunch(event.category);
  if (!launch && !IsGpuWork(event.category)) return absl::OkStatus();
  const uint64_t correlation = CorrelationOf(event);
  if (correlation == 0 || !event.start.ns) return absl::OkStatus();
  if (launches_.size() >= 2 * job_.options_.max_operations) {
    return At(event.number, absl::StrCat("more than ", 2 * job_.options_.max_operations,
                                         " launches and kernels of one rank: profile fewer steps, or allow "
                                         "more with --max-operations"));
  }
  if (launch) {
    launches_.AddLaunch(ThreadOf(event), correlation, *event.start.ns);
  } else if (event.duration.ns && *event.duration.ns >= 0) {
    launches_.AddKernel(correlation, {*event.start.ns, *event.start.ns + *event.duration.ns});
  }
  return absl::OkStatus();
}

absl::Status KinetoFile::Take(const KinetoEvent& event) {
  if (event.phase == "B") return Begin(event);
  if (event.phase == "E") return End(event);
  if (event.phase != "X") return absl::OkStatus();
  const absl::StatusOr<KinetoMatch> match = job_.matcher_.Match(event);
  if (!match.ok()) return At(event.number, std::string(match.status().message()));
  if (match->kind == KinetoMatch::Kind::kNothing) {
    return job_.matcher_.wants_launches() ? TakeLaunch(event) : absl::OkStatus();
  }
  if (!event.start.ns) return At(event.number, event.start.Complaint("ts"));
  const Open begun = {*match,          *event.start.ns,      event.number,
                      ThreadOf(event), CorrelationOf(event), IsOnGpu(event.category)};
  if (!event.duration.ns) return Add(begun, begun.start_ns, event.duration.Complaint("dur"));
  return Add(begun, begun.start_ns + *event.duration.ns, "");
}

absl::Status KinetoFile::Begin(const KinetoEvent& event) {
  const absl::StatusOr<KinetoMatch> match = job_.matcher_.Match(event);
  if (!match.ok()) return At(event.number, std::string(match.status().message()));
  const bool counts = match->kind != KinetoMatch::Kind::kNothing;
  if (counts && !event.start.ns) return At(event.number, event.start.Complaint("ts"));
  if (++opened_ > kMostOpen) {
    return At(event.number,
              absl::StrCat("more than ", kMostOpen, " events begin (ph B) and do not end (ph E)"));
  }
  const uint32_t thread = ThreadOf(event);
  open_[thread].push_back(
      {*match, event.start.ns.value_or(0), event.number, thread, 0, IsOnGpu(event.category)});
  return absl::OkStatus();
}

absl::Status KinetoFile::End(const KinetoEvent& event) {
  const auto found = open_.find(ThreadOf(event));
  if (found == open_.end()) {
    job_.unpaired_.Add(1, Where(event.number));
    return absl::OkStatus();
  }
  const Open begun = found->second.back();
  found->second.pop_back();
  if (found->second.empty()) open_.erase(found);
  --opened_;
  if (begun.match.kind == KinetoMatch::Kind::kNothing) return absl::OkStatus();
  if (!event.start.ns) return At(event.number, event.start.Complaint("ts"));
  return Add(begun, *event.start.ns, "");
}

absl::Status KinetoFile::Add(const Open& begun, int64_t end_ns, std::string damage) {
  if (damage.empty() && end_ns < begun.start_ns - kRounding_ns) {
    damage = absl::StrCat("its duration is negative (", (end_ns - begun.start_ns) / 1000,
                          " us): did the clock jump?");
  }
  end_ns = std::max(end_ns, begun.start_ns);
  if (begun.match.kind == KinetoMatch::Kind::kStep) {
    if (!damage.empty()) return At(begun.event, absl::StrCat("it marks a step, and ", damage));
    const auto [step, fresh] = found_steps_[begun.on_gpu ? 1 : 0].try_emplace(
        begun.match.step, Step{begun.match.step, begun.start_ns, end_ns});
    if (!fresh) {  // on several streams, or threads
      step->second.start_ns = std::min(step->second.start_ns, begun.start_ns);
      step->second.end_ns = std::max(step->second.end_ns, end_ns);
    }
    return absl::OkStatus();
  }
  if (marks_.size() >= job_.options_.max_operations) {
    return At(begun.event, absl::StrCat("more than ", job_.options_.max_operations,
                                        " events of one rank come under rules: make the rules narrower, or "
                                        "allow more with --max-operations"));
  }
  Mark mark = {begun.match,  begun.start_ns,    end_ns,      begun.event, -1,
               begun.thread, begun.correlation, begun.on_gpu};
  if (!damage.empty()) {
    if (damages_.size() >= kMostDamages)
      return At(begun.event, absl::StrCat(damage, "; too many are like this"));
    mark.damage = static_cast<int32_t>(damages_.size());
    damages_.push_back(std::move(damage));
  }
  marks_.push_back(mark);
  return absl::OkStatus();
}

absl::Status KinetoFile::FindSteps() {
  for (const size_t side : {0, 1}) {
    for (const auto& [number, step] : found_steps_[side]) steps_[side].push_back(step);
    std::sort(steps_[side].begin(), steps_[side].end(),
              [](const Step& a, const Step& b) { return a.start_ns < b.start_ns; });
  }
  const bool needed = std::any_of(job_.mapping_.rules.begin(), job_.mapping_.rules.end(),
                                  [](const KinetoRule& rule) { return !rule.step.said(); });
  if (!needed || !steps_[0].empty() || !steps_[1].empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name_, ": it has no step: no event's name matches '", job_.mapping_.step_name.source(),
      "' (steps.regex of the mapping); give profile() a schedule and call profiler.step() after every "
      "step"));
}

// The device runs behind the program that feeds it: what is timed there belongs to the step of its launch,
// and where that is not known to the steps that are marked there.
std::optional<int32_t> KinetoFile::StepOf(const Mark& mark, std::optional<int64_t> launched_ns) const {
  if (mark.match.step >= 0) return mark.match.step;
  const size_t own = mark.on_gpu && !launched_ns ? 1 : 0;
  const std::vector<Step>& steps = steps_[own].empty() ? steps_[1 - own] : steps_[own];
  const int64_t at_ns = launched_ns.value_or(mark.start_ns);
  auto after = std::upper_bound(steps.begin(), steps.end(), at_ns,
                                [](int64_t start_ns, const Step& step) { return start_ns < step.start_ns; });
  if (after == steps.begin() || at_ns > (--after)->end_ns) return std::nullopt;
  return after->number;
}

void KinetoFile::Assign() {
  size_t kept = 0;
  bool other_clock = false;
  for (Mark& mark : marks_) {
    const std::optional<int64_t> launched_ns =
        mark.correlation != 0 && !steps_[0].empty() ? launches_.LaunchedAt(mark.correlation) : std::nullopt;
    const std::optional<int32_t> step = StepOf(mark, launched_ns);
    if (!step) {
      outside_.push_back(mark);
      continue;
    }
    other_clock = other_clock || (mark.match.step < 0 && mark.on_gpu && !launched_ns && steps_[1].empty());
    mark.match.step = *step;
    const auto& wanted = job_.options_.steps;
    if (!wanted.empty() && std::none_of(wanted.begin(), wanted.end(), [&step](const auto& range) {
          return *step >= range.first && *step <= range.second;
        })) {
      job_.rules_[mark.match.rule].used = true;
      continue;
    }
    marks_[kept++] = mark;
  }
  marks_.resize(kept);
  if (other_clock) job_.clocks_.Add(1, name_);
}

// On the CPU: what a program does there one after the other. A computation may be many events (autograd has
// one for each function, modules have them within each other), and ends where something else begins.
void KinetoFile::JoinRuns() {
  const auto rule_of = [this](const Mark& mark) -> const KinetoRule& {
    return job_.mapping_.rules[mark.match.rule];
  };
  if (std::none_of(job_.mapping_.rules.begin(), job_.mapping_.rules.end(),
                   [](const KinetoRule& rule) { return rule.runs; })) {
    return;
  }
  std::sort(marks_.begin(), marks_.end(), [](const Mark& a, const Mark& b) {
    return std::pair(a.start_ns, a.event) < std::pair(b.start_ns, b.event);
  });
  constexpr size_t kNone = SIZE_MAX;
  size_t open = kNone;  // the run that goes on
  size_t kept = 0;
  for (size_t i = 0; i < marks_.size(); ++i) {
    const Mark mark = marks_[i];
    const KinetoRule& rule = rule_of(mark);
    const bool ends_runs = whatif::IsCompute(rule.type) || whatif::IsPipeline(rule.type) ||
                           rule.type == whatif::OperationType::kOptimizer;
    if (mark.on_gpu || (!rule.runs && !ends_runs)) {
      marks_[kept++] = mark;
      continue;
    }
    Mark* const run = open == kNone ? nullptr : &marks_[open];
    const bool same = run != nullptr && rule.runs && run->match.rule == mark.match.rule &&
                      run->match.preference == mark.match.preference && run->match.step == mark.match.step;
    if (same) {
      run->end_ns = std::max(run->end_ns, mark.end_ns);
      run->damage = std::max(run->damage, mark.damage);
      continue;
    }
    open = rule.runs ? kept : kNone;
    marks_[kept++] = mark;
  }
  marks_.resize(kept);
}

// What marks of the program launched, beside the marks themselves. Their steps are those of the marks: the
// device may run them much later.
void KinetoFile::AddLaunched() {
  std::vector<KinetoLaunches::Range> ranges;
  std::vector<size_t> marks;
  for (size_t i = 0; i < marks_.size(); ++i) {
    if (marks_[i].match.launched == KinetoMatch::kNowhere) continue;
    ranges.push_back({marks_[i].thread, {marks_[i].start_ns, marks_[i].end_ns}});
    marks.push_back(i);
  }
  const std::vector<std::optional<TimeSpan>> spans = launches_.SpansOf(ranges);
  std::vector<bool> launches(job_.rules_.size());  // by rule: whether its marks launch anything
  for (size_t i = 0; i < marks.size(); ++i) {
    if (spans[i]) launches[marks_[marks[i]].match.rule] = true;
  }
  for (size_t i = 0; i < marks.size(); ++i) {
    Mark whole = marks_[marks[i]];
    if (!launches[whole.match.rule]) continue;
    if (!spans[i] && whole.damage < 0) {
      job_.idle_.Add(1, Where(whole.event));
      continue;
    }
    whole.match.preference = whole.match.launched;
    whole.on_gpu = true;
    if (spans[i]) std::tie(whole.start_ns, whole.end_ns) = std::pair(spans[i]->start_ns, spans[i]->end_ns);
    marks_.push_back(whole);
  }
  std::erase_if(marks_, [](const Mark& mark) { return mark.match.preference == KinetoMatch::kNowhere; });
}

// Of the categories that a rule lists, the first that this rank has events of.
void KinetoFile::Prefer() {
  constexpr uint8_t kNone = std::numeric_limits<uint8_t>::max();
  std::vector<uint8_t> best(job_.rules_.size(), kNone);
  for (const Mark& mark : marks_)
    best[mark.match.rule] = std::min(best[mark.match.rule], mark.match.preference);
  for (const Mark& mark : outside_) {
    const uint8_t wanted = best[mark.match.rule];
    if (wanted == kNone || mark.match.preference == wanted || mark.match.launched == wanted)
      job_.outside_.Add(1, Where(mark.event));
  }
  const auto last = std::remove_if(marks_.begin(), marks_.end(), [&best](const Mark& mark) {
    return mark.match.preference != best[mark.match.rule];
  });
  marks_.erase(last, marks_.end());
  for (size_t rule = 0; rule < best.size(); ++rule) {
    if (best[rule] == kNone) continue;
    job_.rules_[rule].used = true;
    ++job_.rules_[rule].ranks_by_category[best[rule]];
  }
}

// Parts of one operation, which may be on several streams.
void KinetoFile::Join() {
  const auto key = [](const Mark& mark) {
    return std::tuple(mark.match.rule, mark.match.step, mark.match.join, mark.event);
  };
  std::sort(marks_.begin(), marks_.end(), [&key](const Mark& a, const Mark& b) { return key(a) < key(b); });
  size_t kept = 0;
  for (size_t i = 0; i < marks_.size(); ++i) {
    const Mark part = marks_[i];
    Mark* const whole = kept > 0 ? &marks_[kept - 1] : nullptr;
    if (whole == nullptr || part.match.join == 0 || part.match.join != whole->match.join ||
        part.match.rule != whole->match.rule || part.match.step != whole->match.step) {
      marks_[kept++] = part;
      continue;
    }
    whole->start_ns = std::min(whole->start_ns, part.start_ns);
    whole->end_ns = std::max(whole->end_ns, part.end_ns);
    whole->damage = std::max(whole->damage, part.damage);
  }
  marks_.resize(kept);
}

void KinetoFile::KeepLast() {
  std::map<std::pair<uint16_t, int32_t>, int64_t> last_ns;  // by rule and step
  const auto kept_only = [this](const Mark& mark) { return job_.mapping_.rules[mark.match.rule].last; };
  for (const Mark& mark : marks_) {
    if (!kept_only(mark)) continue;
    const auto [known, fresh] = last_ns.try_emplace({mark.match.rule, mark.match.step}, mark.start_ns);
    if (!fresh) known->second = std::max(known->second, mark.start_ns);
  }
  std::erase_if(marks_, [&](const Mark& mark) {
    return kept_only(mark) && mark.start_ns < last_ns.at({mark.match.rule, mark.match.step});
  });
}

void KinetoFile::RemoveCopies() {
  const auto type = [this](const Mark& mark) {
    return whatif::Index(job_.mapping_.rules[mark.match.rule].type);
  };
  const auto same = [&type](const Mark& mark) {
    return std::tuple(mark.match.step, type(mark), mark.start_ns, mark.end_ns, mark.match.micro_batch,
                      mark.match.chunk, mark.damage);
  };
  std::sort(marks_.begin(), marks_.end(), [&same](const Mark& a, const Mark& b) {
    return std::pair(same(a), a.event) < std::pair(same(b), b.event);
  });
  size_t kept = 0;
  for (size_t i = 0; i < marks_.size(); ++i) {
    if (kept > 0 && same(marks_[kept - 1]) == same(marks_[i])) {
      job_.copies_.Add(1, Where(marks_[i].event));
    } else {
      marks_[kept++] = marks_[i];
    }
  }
  marks_.resize(kept);
}

whatif::OperationRecord KinetoFile::Record(const Mark& mark) {
  constexpr double kSeconds = 1e-9;
  constexpr uint64_t kMostLine = std::numeric_limits<uint32_t>::max();
  const int64_t start_ns = mark.start_ns + events_->header().base_ns;
  if (!job_.origin_ns_) job_.origin_ns_ = start_ns;
  whatif::OperationRecord record;
  record.start_s = static_cast<double>(start_ns - *job_.origin_ns_) * kSeconds;
  record.duration_s = static_cast<float>(static_cast<double>(mark.end_ns - mark.start_ns) * kSeconds);
  record.step = mark.match.step;
  record.line = static_cast<uint32_t>(std::min(mark.event, kMostLine));
  record.rank = *rank_;
  record.micro_batch = mark.match.micro_batch;
  record.chunk = static_cast<int16_t>(mark.match.chunk);
  record.global_chunk = static_cast<int16_t>(mark.match.global_chunk);
  record.dp_rank = static_cast<uint16_t>(place_.dp);
  record.stage = static_cast<uint16_t>(place_.stage) & 0xfff;
  record.type = static_cast<uint16_t>(job_.mapping_.rules[mark.match.rule].type) & 0xf;
  return record;
}

// Of a job on processors, whose programs wait for what they do (analysis/whatif/own_time.h).
void KinetoFile::EmitStepBegins() {
  const bool on_gpu = std::any_of(marks_.begin(), marks_.end(), [](const Mark& mark) { return mark.on_gpu; });
  if (on_gpu || launches_.size() > 0 || steps_[0].empty()) {
    job_.on_processors_ = false;
    return;
  }
  std::set<int32_t> taken;
  for (const Mark& mark : marks_) taken.insert(mark.match.step);
  for (const Step& step : steps_[0]) {
    if (!taken.contains(step.number)) continue;
    Mark begin;
    begin.start_ns = begin.end_ns = step.start_ns;
    begin.match.step = step.number;
    whatif::OperationRecord record = Record(begin);
    record.type = static_cast<uint16_t>(whatif::OperationType::kOwnTime) & 0xf;
    job_.step_begins_.push_back(record);
  }
}

absl::Status KinetoFile::Emit() {
  for (const Mark& mark : marks_) {
    whatif::TraceRecords& records = job_.contents_.records;
    if (mark.damage >= 0) {
      records.AddDamaged(mark.match.step, 0,
                         absl::StrCat(Where(mark.event), ": ", damages_[static_cast<size_t>(mark.damage)]));
      continue;
    }
    if (records.size() >= job_.options_.max_operations) {
      return At(mark.event,
                absl::StrCat("the job has more than ", job_.options_.max_operations,
                             " operations: choose some of its steps with --steps, or allow more with "
                             "--max-operations"));
    }
    records.Add(Record(mark));
  }
  EmitStepBegins();
  return absl::OkStatus();
}

}  // namespace c4::traces
