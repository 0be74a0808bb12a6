#include "analysis/failslow/report.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/failslow/level.h"
#include "analysis/svg_page.h"

namespace c4::failslow {
namespace {

constexpr int kTextRows = 10;
constexpr int kAxisColumns = 11;
constexpr int kSvgWidth = 900;
constexpr int kSvgHeight = 200;

// The iterations that one column or point stands for.
struct Bucket {
  double median_s = 0;  // 0: none of them has a time
  double most_s = 0;
};

size_t BucketOf(uint64_t iteration, size_t iterations, size_t buckets) {
  return std::min(buckets - 1, static_cast<size_t>(iteration * buckets / std::max<size_t>(1, iterations)));
}

std::vector<Bucket> Buckets(const std::vector<double>& times_s, size_t most) {
  const size_t count = std::max<size_t>(1, std::min(most, times_s.size()));
  std::vector<std::vector<double>> parts(count);
  for (size_t i = 0; i < times_s.size(); ++i) {
    if (!std::isnan(times_s[i])) parts[BucketOf(i, times_s.size(), count)].push_back(times_s[i]);
  }
  std::vector<Bucket> buckets;
  for (std::vector<double>& part : parts) {
    if (part.empty()) {
      buckets.push_back({});
      continue;
    }
    const double most_s = *std::max_element(part.begin(), part.end());
    buckets.push_back({.median_s = MedianOf(std::move(part)), .most_s = most_s});
  }
  return buckets;
}

// What is drawn from the lowest to the highest median, with room to either side.
struct Axis {
  double low_s = 0;
  double high_s = 1;
  double Share(double time_s) const { return std::clamp((time_s - low_s) / (high_s - low_s), 0.0, 1.0); }
};

Axis AxisOf(const std::vector<Bucket>& buckets) {
  double low_s = 0;
  double high_s = 0;
  for (const Bucket& bucket : buckets) {
    if (bucket.median_s == 0) continue;
    low_s = low_s == 0 ? bucket.median_s : std::min(low_s, bucket.median_s);
    high_s = std::max(high_s, bucket.median_s);
  }
  const double room_s = std::max(0.1 * (high_s - low_s), 0.02 * high_s);
  return {.low_s = std::max(0.0, low_s - room_s), .high_s = high_s + room_s};
}

double MedianTime(const std::vector<double>& times_s) {
  std::vector<double> known;
  for (const double time_s : times_s) {
    if (!std::isnan(time_s)) known.push_back(time_s);
  }
  return known.empty() ? 0 : MedianOf(std::move(known));
}

// Nine columns at most.
std::string Seconds(double time_s) {
  if (time_s >= 0.01 || time_s == 0) return absl::StrFormat("%.4g s", time_s);
  return time_s >= 1e-3 ? absl::StrFormat("%.4g ms", 1e3 * time_s) : absl::StrFormat("%.4g us", 1e6 * time_s);
}

std::string ChangeLine(const SeriesReport& report, size_t i) {
  const Change& change = report.changes[i];
  const double percent = 100 * (change.after_s / change.before_s - 1);
  return absl::StrFormat("iteration %d: %s -> %s, %.0f %% %s%s%s", change.iteration, Seconds(change.before_s),
                         Seconds(change.after_s), std::abs(percent), percent > 0 ? "slower" : "faster",
                         change.creeping ? ", by and by" : "",
                         i < report.notes.size() ? report.notes[i] : "");
}

}  // namespace

std::string SeriesJson(const SeriesReport& report) {
  using nlohmann::ordered_json;
  const double median_s = MedianTime(report.times_s);
  ordered_json json = {{"period", report.period ? ordered_json(*report.period) : ordered_json(nullptr)},
                       {"iterations", report.times_s.size()},
                       {"median_s", median_s > 0 ? ordered_json(median_s) : ordered_json(nullptr)},
                       {"changes", ordered_json::array()}};
  for (const Change& change : report.changes) {
    json["changes"].push_back({{"iteration", change.iteration},
                               {"before_s", change.before_s},
                               {"after_s", change.after_s},
                               {"creeping", change.creeping},
                               {"told_at", change.told_at}});
  }
  return json.dump(2);
}

std::string SeriesText(const SeriesReport& report, int columns) {
  std::string text = absl::StrCat(report.title, "\n");
  if (report.period)
    absl::StrAppend(&text, "an iteration has ", *report.period, *report.period == 1 ? " call\n" : " calls\n");
  const double median_s = MedianTime(report.times_s);
  if (median_s == 0) return text;
  absl::StrAppend(&text, report.times_s.size(),
                  report.times_s.size() == 1 ? " iteration, median " : " iterations, median ",
                  Seconds(median_s), "\n\n");
  const std::vector<Bucket> buckets =
      Buckets(report.times_s, static_cast<size_t>(std::max(10, columns - kAxisColumns)));
  const Axis axis = AxisOf(buckets);
  static constexpr const char* kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  for (int row = kTextRows - 1; row >= 0; --row) {
    const double label_s = axis.low_s + (axis.high_s - axis.low_s) * (row + 1) / kTextRows;
    const bool labelled = row == kTextRows - 1 || row == kTextRows / 2;
    absl::StrAppendFormat(&text, "%9s |", labelled ? Seconds(label_s) : "");
    for (const Bucket& bucket : buckets) {
      const double eighths = bucket.median_s == 0 ? 0 : 8 * (axis.Share(bucket.median_s) * kTextRows - row);
      text += kBlocks[static_cast<size_t>(std::lround(std::clamp(eighths, 0.0, 8.0)))];
    }
    text += "\n";
  }
  std::string marks(buckets.size(), ' ');
  for (const Change& change : report.changes) {
    marks[BucketOf(change.iteration, report.times_s.size(), buckets.size())] = '^';
  }
  absl::StrAppendFormat(&text, "%9s  %s\n\n", Seconds(axis.low_s), marks);
  for (size_t i = 0; i < report.changes.size(); ++i) absl::StrAppend(&text, ChangeLine(report, i), "\n");
  if (report.changes.empty()) text += "no change\n";
  return text;
}

std::string SeriesSvg(const SeriesReport& report) {
  const int left = analysis::kSvgLeft;
  const int top = analysis::kSvgTop;
  const std::vector<Bucket> buckets = Buckets(report.times_s, kSvgWidth);
  const Axis axis = AxisOf(buckets);
  const auto x_of = [&](double share) { return left + static_cast<int>(std::lround(share * kSvgWidth)); };
  const auto y_of = [&](double time_s) {
    return top + kSvgHeight - static_cast<int>(std::lround(axis.Share(time_s) * kSvgHeight));
  };
  std::string svg;
  for (int part = 0; part <= 4; ++part) {
    const double time_s = axis.low_s + (axis.high_s - axis.low_s) * part / 4;
    absl::StrAppendFormat(&svg,
                          "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%.4g</text>\n"
                          "<line class=\"grid\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#ddd\"/>\n",
                          left - 8, y_of(time_s) + 4, time_s, left, y_of(time_s), left + kSvgWidth,
                          y_of(time_s));
    absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                          x_of(part / 4.0), top + kSvgHeight + 18,
                          report.times_s.size() * static_cast<size_t>(part) / 4);
  }
  std::string line;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const Bucket& bucket = buckets[i];
    if (bucket.median_s == 0) continue;
    const int x = x_of((static_cast<double>(i) + 0.5) / static_cast<double>(buckets.size()));
    absl::StrAppendFormat(&line, "%d,%d ", x, y_of(bucket.median_s));
    if (y_of(bucket.most_s) == y_of(bucket.median_s)) continue;
    absl::StrAppendFormat(&svg,
                          "<line class=\"grid\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#ccc\"/>\n",
                          x, y_of(bucket.most_s), x, y_of(bucket.median_s));
  }
  absl::StrAppendFormat(&svg, "<polyline class=\"line\" points=\"%s\" fill=\"none\" stroke=\"#236\"/>\n",
                        line);
  for (size_t i = 0; i < report.changes.size(); ++i) {
    const Change& change = report.changes[i];
    const int x = x_of(static_cast<double>(change.iteration) /
                       static_cast<double>(std::max<size_t>(1, report.times_s.size())));
    absl::StrAppendFormat(&svg,
                          "<line class=\"limit\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#c33\" "
                          "stroke-dasharray=\"4 3\"><title>%s</title></line>\n",
                          x, top, x, top + kSvgHeight, analysis::EscapedForSvg(ChangeLine(report, i)));
  }
  absl::StrAppendFormat(&svg,
                        "<text x=\"4\" y=\"34\">seconds</text>\n<text x=\"%d\" y=\"%d\">iteration</text>\n",
                        left, top + kSvgHeight + 36);
  return analysis::SvgPage(left + kSvgWidth + 30, top + kSvgHeight + 50, report.title, svg);
}

}  // namespace c4::failslow
