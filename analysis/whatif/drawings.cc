#include "analysis/whatif/drawings.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace c4::whatif {
namespace {

constexpr int kLeft = 60;
constexpr int kTop = 40;

// White at 1, full red from 1.5.
std::string Color(double slowdown) {
  const double depth = std::clamp((slowdown - 1) / 0.5, 0.0, 1.0);
  const auto other = static_cast<int>(std::lround(255 * (1 - depth)));
  return absl::StrFormat("#%02x%02x%02x", static_cast<int>(std::lround(255 - 55 * depth)), other, other);
}

std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '<' || c == '&') {
      escaped += c == '<' ? "&lt;" : "&amp;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string Head(int width, int height, const std::string& title) {
  return absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n"
      "<text x=\"%d\" y=\"20\">%s</text>\n",
      width, height, width, height, kLeft, Escaped(title));
}

std::string Cell(const WorkerMap& map, int dp, int stage, int size) {
  const size_t worker =
      static_cast<size_t>(stage) * static_cast<size_t>(map.dp_size) + static_cast<size_t>(dp);
  const std::string alone = map.alone.empty() ? "" : absl::StrFormat(", alone %.3f", map.alone[worker]);
  return absl::StrFormat(
      "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" stroke=\"#bbb\"><title>rank %d (dp %d, "
      "stage %d): "
      "%.3f%s</title></rect>\n",
      kLeft + dp * size, kTop + stage * size, size, size, Color(map.slowdown[worker]), map.ranks[worker], dp,
      stage, map.slowdown[worker], alone);
}

// The upper end of an axis from 1 that shows `most`.
double AxisEnd(double most) {
  return 1 + 0.1 * std::max(2.0, std::ceil((most - 1) * 10 + 1e-9));
}

constexpr int kChartHeight = 160;

int HeightAt(double slowdown, double end) {
  const double share = std::clamp((slowdown - 1) / (end - 1), 0.0, 1.0);
  return kTop + kChartHeight - static_cast<int>(std::lround(share * kChartHeight));
}

// The axis of slow-downs, and the line from which a job straggles.
std::string Axis(double end, int width) {
  std::string svg;
  for (const double value : {1.0, (1 + end) / 2, end}) {
    absl::StrAppendFormat(&svg,
                          "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%.2f</text>\n"
                          "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#ddd\"/>\n",
                          kLeft - 8, HeightAt(value, end) + 4, value, kLeft, HeightAt(value, end),
                          kLeft + width, HeightAt(value, end));
  }
  absl::StrAppendFormat(
      &svg, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#c33\" stroke-dasharray=\"4 3\"/>\n",
      kLeft, HeightAt(kStraggling, end), kLeft + width, HeightAt(kStraggling, end));
  return svg;
}

std::string UtcText(int64_t unix_ns) {
  const auto seconds = static_cast<time_t>(unix_ns / 1'000'000'000);
  tm parts{};
  gmtime_r(&seconds, &parts);
  return absl::StrFormat("%04d-%02d-%02d %02d:%02d UTC", parts.tm_year + 1900, parts.tm_mon + 1,
                         parts.tm_mday, parts.tm_hour, parts.tm_min);
}

}  // namespace

WorkerMap MapOf(const Job& job, const Analysis& analysis) {
  WorkerMap map;
  map.title = absl::StrFormat("%s slow-down %.3f; by worker, white 1, red from 1.5", job.trace.shape.name,
                              analysis.slowdown);
  map.dp_size = job.trace.dp_size;
  map.pp_size = job.trace.pp_size;
  map.ranks = job.trace.ranks;
  map.slowdown = analysis.by_worker_approx;
  for (const Slowdown& alone : analysis.by_worker) map.alone.push_back(alone.overall);
  return map;
}

std::string HeatmapSvg(const WorkerMap& map) {
  const int size = std::clamp(900 / std::max({map.dp_size, map.pp_size, 1}), 4, 40);
  const int width = std::max(420, kLeft + 20 + map.dp_size * size);
  const int height = kTop + 50 + map.pp_size * size;
  std::string svg = Head(width, height, map.title);
  for (int stage = 0; stage < map.pp_size; ++stage) {
    if (size >= 12 || stage % 8 == 0) {
      absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%d</text>\n", kLeft - 8,
                            kTop + stage * size + size / 2 + 4, stage);
    }
    for (int dp = 0; dp < map.dp_size; ++dp) svg += Cell(map, dp, stage, size);
  }
  const int below = kTop + map.pp_size * size + 16;
  const int every = size >= 20 ? 1 : 8;
  for (int dp = 0; dp < map.dp_size; dp += every) {
    absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                          kLeft + dp * size + size / 2, below, dp);
  }
  absl::StrAppendFormat(
      &svg,
      "<text x=\"%d\" y=\"%d\">data-parallel rank</text>\n<text x=\"4\" y=\"34\">stage</text>\n</svg>\n",
      kLeft, below + 18);
  return svg;
}

std::string StepsSvg(const std::string& title, const std::vector<StepSlowdown>& steps) {
  double most = 1;
  for (const StepSlowdown& step : steps) most = std::max(most, step.slowdown);
  const double end = AxisEnd(most);
  const int count = std::max(1, static_cast<int>(steps.size()));
  const int pitch = std::clamp(900 / count, 2, 40);
  const int width = std::max(360, count * pitch);
  std::string svg = Head(kLeft + width + 20, kTop + kChartHeight + 50, title);
  svg += Axis(end, width);
  // So many steps apart that their numbers do not run into each other.
  const int every = std::max(1, (44 + pitch - 1) / pitch);
  for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
    const StepSlowdown& step = steps[static_cast<size_t>(i)];
    const int top = HeightAt(step.slowdown, end);
    absl::StrAppendFormat(&svg,
                          "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" stroke=\"#999\">"
                          "<title>step %d: %.3f</title></rect>\n",
                          kLeft + i * pitch, top, std::max(1, pitch - 1), kTop + kChartHeight - top,
                          Color(step.slowdown), step.step, step.slowdown);
    if (i % every == 0) {
      absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                            kLeft + i * pitch + pitch / 2, kTop + kChartHeight + 16, step.step);
    }
  }
  absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"%d\">step</text>\n</svg>\n", kLeft,
                        kTop + kChartHeight + 34);
  return svg;
}

std::string LifeSvg(const std::string& title, const std::vector<LifePoint>& points) {
  constexpr int kWidth = 900;
  double most = 1;
  for (const LifePoint& point : points) most = std::max(most, point.slowdown);
  const double end = AxisEnd(most);
  std::string svg = Head(kLeft + kWidth + 20, kTop + kChartHeight + 50, title);
  svg += Axis(end, kWidth);
  if (points.empty()) return svg + "</svg>\n";
  const int64_t first_ns = points.front().unix_ns;
  const auto span_ns = static_cast<double>(std::max<int64_t>(1, points.back().unix_ns - first_ns));
  std::string line;
  std::string dots;
  for (const LifePoint& point : points) {
    const double share = std::clamp(static_cast<double>(point.unix_ns - first_ns) / span_ns, 0.0, 1.0);
    const int x = kLeft + static_cast<int>(std::lround(share * kWidth));
    const int y = HeightAt(point.slowdown, end);
    absl::StrAppendFormat(&line, "%d,%d ", x, y);
    absl::StrAppendFormat(&dots,
                          "<circle cx=\"%d\" cy=\"%d\" r=\"3\" fill=\"%s\" stroke=\"#236\"><title>%s: %.3f%s"
                          "</title></circle>\n",
                          x, y, point.doubtful ? "white" : "#236", UtcText(point.unix_ns), point.slowdown,
                          point.doubtful ? ", doubtful" : "");
  }
  absl::StrAppendFormat(&svg, "<polyline points=\"%s\" fill=\"none\" stroke=\"#236\"/>\n%s", line, dots);
  absl::StrAppendFormat(
      &svg,
      "<text x=\"%d\" y=\"%d\">%s</text>\n<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n"
      "</svg>\n",
      kLeft, kTop + kChartHeight + 20, UtcText(first_ns), kLeft + kWidth, kTop + kChartHeight + 20,
      UtcText(points.back().unix_ns));
  return svg;
}

}  // namespace c4::whatif
