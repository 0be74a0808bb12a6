#include "cli/verbs/job_iterations.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/text/screen.h"
#include "cli/text/verdict_text.h"

namespace c4::cli {
namespace {

using Json = nlohmann::ordered_json;

// What took most of the time: neither what layers and micro-batches were taken for at first, nor evaluations.
uint32_t MainShape(const v1::GetIterationsReply& reply) {
  std::map<uint32_t, double> times_s;
  for (const v1::SeriesIteration& iteration : reply.iterations()) {
    times_s[iteration.shape()] += iteration.duration_s();
  }
  const auto most = std::max_element(times_s.begin(), times_s.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == times_s.end() ? 0 : most->first;
}

const v1::RankIterationsStatus* RankOfSeries(const v1::GetIterationsReply& reply) {
  const auto found = std::find_if(reply.ranks().begin(), reply.ranks().end(),
                                  [&](const auto& rank) { return rank.rank() == reply.rank(); });
  return found == reply.ranks().end() ? nullptr : &*found;
}

std::string MarksLine(const v1::RankIterationsStatus& rank) {
  const double off = 100 * (rank.calls_newest_s() / rank.marked_newest_s() - 1);
  return absl::StrFormat("by the program's own marks %.4g s, by its calls %.4g s (%+.1f %%)\n",
                         rank.marked_newest_s(), rank.calls_newest_s(), off);
}

}  // namespace

failslow::SeriesReport ReportOf(const v1::GetIterationsReply& reply) {
  failslow::SeriesReport report;
  report.title = reply.rank() < 0 ? absl::StrCat("job ", reply.job())
                                  : absl::StrCat("job ", reply.job(), ", rank ", reply.rank(), " of ",
                                                 reply.ranks_size(), " that tell their iterations");
  const uint32_t shape = MainShape(reply);
  std::vector<uint64_t> numbers;
  for (const v1::SeriesIteration& iteration : reply.iterations()) {
    if (iteration.shape() != shape) continue;
    numbers.push_back(iteration.number());
    report.times_s.push_back(iteration.duration_s());
  }
  if (const v1::RankIterationsStatus* const rank = RankOfSeries(reply);
      rank != nullptr && rank->calls() > 0) {
    report.period = rank->calls();
  }
  for (const v1::SeriesChange& change : reply.changes()) {
    if (!change.job_wide() || numbers.empty() || change.iteration() < numbers.front()) continue;
    const auto first = std::lower_bound(numbers.begin(), numbers.end(), change.iteration());
    if (first == numbers.end()) continue;
    report.changes.push_back({.iteration = static_cast<uint64_t>(first - numbers.begin()),
                              .before_s = change.before_s(),
                              .after_s = change.after_s(),
                              .creeping = change.creeping()});
    report.notes.push_back(absl::StrCat("; ", ClockText(change.at_unix_ns(), reply.unix_ns()), ", ",
                                        change.confirmed() ? "" : "suspected, ", change.ranks(),
                                        change.ranks() == 1 ? " rank" : " ranks"));
  }
  return report;
}

std::string JobIterationsText(const v1::GetIterationsReply& reply, int columns) {
  const failslow::SeriesReport report = ReportOf(reply);
  std::string text = failslow::SeriesText(report, columns);
  if (report.times_s.empty()) {
    absl::StrAppend(&text,
                    "no iteration is known yet: the job's calls have to come again three times, and its\n"
                    "processes have to record them (`c4 level coarse`)\n");
  }
  const v1::RankIterationsStatus* const rank = RankOfSeries(reply);
  if (rank != nullptr && rank->marked() > 0 && rank->marked_newest_s() > 0 && rank->calls_newest_s() > 0)
    text += MarksLine(*rank);
  if (!report.changes.empty() && report.changes.back().after_s > report.changes.back().before_s) {
    text += "`c4 verdicts` says who is to blame\n";
  }
  return text;
}

std::string JobIterationsJson(const v1::GetIterationsReply& reply) {
  const failslow::SeriesReport report = ReportOf(reply);
  const Json series = Json::parse(failslow::SeriesJson(report));
  Json json = {{"job", reply.job()},
               {"rank", reply.rank()},
               {"period", series["period"]},
               {"iterations", series["iterations"]},
               {"median_s", series["median_s"]},
               {"changes", Json::array()},
               {"times", Json::array()},
               {"ranks", Json::array()}};
  const auto unix_s = [](int64_t ns) { return static_cast<double>(ns) / 1e9; };
  for (const v1::SeriesChange& change : reply.changes()) {
    json["changes"].push_back({{"iteration", change.iteration()},
                               {"at_unix_s", unix_s(change.at_unix_ns())},
                               {"before_s", change.before_s()},
                               {"after_s", change.after_s()},
                               {"creeping", change.creeping()},
                               {"confirmed", change.confirmed()},
                               {"job_wide", change.job_wide()},
                               {"ranks", change.ranks()}});
  }
  for (const v1::SeriesIteration& iteration : reply.iterations()) {
    json["times"].push_back({{"iteration", iteration.number()},
                             {"began_unix_s", unix_s(iteration.began_unix_ns())},
                             {"time_s", iteration.duration_s()},
                             {"shape", iteration.shape()}});
  }
  for (const v1::RankIterationsStatus& rank : reply.ranks()) {
    json["ranks"].push_back({{"rank", rank.rank()},
                             {"host", rank.host()},
                             {"iterations", rank.iterations()},
                             {"newest_s", rank.newest_s()},
                             {"calls", rank.calls()},
                             {"marked", rank.marked()},
                             {"marked_newest_s", rank.marked() > 0 ? Json(rank.marked_newest_s()) : Json()},
                             {"calls_newest_s", rank.marked() > 0 ? Json(rank.calls_newest_s()) : Json()}});
  }
  return json.dump(2, ' ', false, nlohmann::detail::error_handler_t::replace);
}

}  // namespace c4::cli
