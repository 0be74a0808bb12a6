#include "analysis/whatif/drawings.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/svg_page.h"

namespace c4::whatif {
namespace {

constexpr int kLeft = analysis::kSvgLeft;
constexpr int kTop = analysis::kSvgTop;

// How far a slow-down is from 1 towards 1.5, from where on all are alike.
constexpr double kDeepest = 1.5;
double Depth(double slowdown) {
  return std::clamp((slowdown - 1) / (kDeepest - 1), 0.0, 1.0);
}

// White at 1, full red from 1.5.
std::string Color(double slowdown) {
  const double depth = Depth(slowdown);
  const auto other = static_cast<int>(std::lround(255 * (1 - depth)));
  return absl::StrFormat("#%02x%02x%02x", static_cast<int>(std::lround(255 - 55 * depth)), other, other);
}

// The shades of slow-downs on a dark page.
constexpr int kShades = 10;
std::string DarkShades() {
  std::string style;
  for (int shade = 0; shade <= kShades; ++shade) {
    const double depth = static_cast<double>(shade) / kShades;
    const auto between = [depth](int from, int to) {
      return static_cast<int>(std::lround(from + (to - from) * depth));
    };
    absl::StrAppendFormat(&style, ".h%d { fill: #%02x%02x%02x }\n", shade, between(0x24, 0xff),
                          between(0x29, 0x6a), between(0x2f, 0x5e));
  }
  return style;
}

// fill and class of an area that shows a slow-down.
std::string Heat(double slowdown) {
  return absl::StrFormat("class=\"cell h%d\" fill=\"%s\"", std::lround(Depth(slowdown) * kShades),
                         Color(slowdown));
}

std::string Picture(int width, int height, const std::string& title, const std::string& body) {
  return analysis::SvgPage(width, height, title, body, DarkShades());
}

std::string Cell(const WorkerMap& map, int dp, int stage, int size) {
  constexpr int kRoomForNumber = 32;
  const size_t worker =
      static_cast<size_t>(stage) * static_cast<size_t>(map.dp_size) + static_cast<size_t>(dp);
  const double slowdown = map.slowdown[worker];
  const std::string alone = map.alone.empty() ? "" : absl::StrFormat(", alone %.3f", map.alone[worker]);
  const int x = kLeft + dp * size;
  const int y = kTop + stage * size;
  std::string svg = absl::StrFormat(
      "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" %s stroke=\"#bbb\"><title>rank %d (dp %d, "
      "stage %d): %.3f%s</title></rect>\n",
      x, y, size, size, Heat(slowdown), map.ranks[worker], dp, stage, slowdown, alone);
  if (size < kRoomForNumber) return svg;
  const bool deep = Depth(slowdown) > 0.6;
  absl::StrAppendFormat(
      &svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\"%s pointer-events=\"none\">%s</text>\n",
      x + size / 2, y + size / 2 + 4, deep ? " class=\"on-deep\" fill=\"white\"" : "",
      slowdown < 9.995 ? absl::StrFormat("%.2f", slowdown) : "10+");
  return svg;
}

// What the colours mean: one box a tenth of the way, with numbers below the ends and the middle.
std::string Scale(int x, int y) {
  constexpr int kBox = 18;
  std::string svg;
  for (int i = 0; i <= kShades; ++i) {
    const double slowdown = 1 + (kDeepest - 1) * i / kShades;
    absl::StrAppendFormat(&svg, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"12\" %s stroke=\"#bbb\"/>\n",
                          x + i * kBox, y, kBox, Heat(slowdown));
    if (i % (kShades / 2) != 0) continue;
    absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%.2f%s</text>\n",
                          x + i * kBox + kBox / 2, y + 26, slowdown, i == kShades ? " and more" : "");
  }
  return svg;
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
                          "<line class=\"grid\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#ddd\"/>\n",
                          kLeft - 8, HeightAt(value, end) + 4, value, kLeft, HeightAt(value, end),
                          kLeft + width, HeightAt(value, end));
  }
  absl::StrAppendFormat(&svg,
                        "<line class=\"limit\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#c33\" "
                        "stroke-dasharray=\"4 3\"><title>from here on a job straggles: %.2f</title></line>\n"
                        "<text x=\"4\" y=\"34\">slow-down</text>\n",
                        kLeft, HeightAt(kStraggling, end), kLeft + width, HeightAt(kStraggling, end),
                        kStraggling);
  return svg;
}

tm UtcOf(int64_t unix_ns) {
  const auto seconds = static_cast<time_t>(unix_ns / 1'000'000'000);
  tm parts{};
  gmtime_r(&seconds, &parts);
  return parts;
}

std::string DateText(const tm& parts) {
  return absl::StrFormat("%04d-%02d-%02d", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

std::string UtcText(int64_t unix_ns) {
  const tm parts = UtcOf(unix_ns);
  return absl::StrFormat("%s %02d:%02d:%02d UTC", DateText(parts), parts.tm_hour, parts.tm_min, parts.tm_sec);
}

// Time along an axis: the clock, and below it the date where that is another than before.
std::string TimeAxis(int64_t first_ns, int64_t last_ns, int width) {
  constexpr int kParts = 8;
  std::string svg;
  std::string date;
  for (int i = 0; i <= kParts; ++i) {
    if (i > 0 && first_ns == last_ns) break;
    const int64_t at_ns =
        first_ns + static_cast<int64_t>(static_cast<double>(last_ns - first_ns) * i / kParts);
    const int x = kLeft + width * i / kParts;
    const tm parts = UtcOf(at_ns);
    absl::StrAppendFormat(&svg,
                          "<line class=\"grid\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#ddd\"/>\n"
                          "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%02d:%02d:%02d</text>\n",
                          x, kTop, x, kTop + kChartHeight + 4, x, kTop + kChartHeight + 20, parts.tm_hour,
                          parts.tm_min, parts.tm_sec);
    if (DateText(parts) == date) continue;
    date = DateText(parts);
    absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x,
                          kTop + kChartHeight + 36, date);
  }
  absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"%d\">time (UTC)</text>\n", kLeft, kTop + kChartHeight + 54);
  return svg;
}

}  // namespace

WorkerMap MapOf(const Job& job, const Analysis& analysis) {
  WorkerMap map;
  map.title = absl::StrFormat("%s slow-down %.3f; by worker", job.trace.shape.name, analysis.slowdown);
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
  const int height = kTop + 94 + map.pp_size * size;
  std::string svg;
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
      "<text x=\"%d\" y=\"%d\">data-parallel rank</text>\n<text x=\"4\" y=\"34\">stage</text>\n"
      "<text x=\"%d\" y=\"%d\">slow-down</text>\n",
      kLeft, below + 18, kLeft, below + 46);
  return Picture(width, height, map.title, svg + Scale(kLeft + 70, below + 36));
}

std::string StepsSvg(const std::string& title, const std::vector<StepSlowdown>& steps) {
  double most = 1;
  for (const StepSlowdown& step : steps) most = std::max(most, step.slowdown);
  const double end = AxisEnd(most);
  const int count = std::max(1, static_cast<int>(steps.size()));
  const int pitch = std::clamp(900 / count, 2, 40);
  const int width = std::max(360, count * pitch);
  std::string svg = Axis(end, width);
  // So many steps apart that their numbers do not run into each other.
  const int every = std::max(1, (44 + pitch - 1) / pitch);
  for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
    const StepSlowdown& step = steps[static_cast<size_t>(i)];
    const int top = HeightAt(step.slowdown, end);
    absl::StrAppendFormat(&svg,
                          "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" %s stroke=\"#999\">"
                          "<title>step %d: %.3f</title></rect>\n",
                          kLeft + i * pitch, top, std::max(1, pitch - 1), kTop + kChartHeight - top,
                          Heat(step.slowdown), step.step, step.slowdown);
    if (i % every == 0) {
      absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                            kLeft + i * pitch + pitch / 2, kTop + kChartHeight + 16, step.step);
    }
  }
  absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"%d\">step</text>\n", kLeft, kTop + kChartHeight + 34);
  return Picture(kLeft + width + 20, kTop + kChartHeight + 50, title, svg);
}

std::string LifeSvg(const std::string& title, const std::vector<LifePoint>& points) {
  constexpr int kWidth = 900;
  constexpr int kHeight = kTop + kChartHeight + 66;
  constexpr int kRight = 50;  // half of a date
  double most = 1;
  for (const LifePoint& point : points) most = std::max(most, point.slowdown);
  const double end = AxisEnd(most);
  std::string svg = Axis(end, kWidth);
  if (points.empty()) return Picture(kLeft + kWidth + kRight, kHeight, title, svg);
  const int64_t first_ns = points.front().unix_ns;
  svg += TimeAxis(first_ns, points.back().unix_ns, kWidth);
  const auto span_ns = static_cast<double>(std::max<int64_t>(1, points.back().unix_ns - first_ns));
  std::string line;
  std::string dots;
  for (const LifePoint& point : points) {
    const double share = std::clamp(static_cast<double>(point.unix_ns - first_ns) / span_ns, 0.0, 1.0);
    const int x = kLeft + static_cast<int>(std::lround(share * kWidth));
    const int y = HeightAt(point.slowdown, end);
    absl::StrAppendFormat(&line, "%d,%d ", x, y);
    absl::StrAppendFormat(
        &dots,
        "<circle class=\"%s\" cx=\"%d\" cy=\"%d\" r=\"3\" fill=\"%s\" stroke=\"#236\"><title>%s: %.3f%s"
        "</title></circle>\n",
        point.doubtful ? "hollow" : "dot", x, y, point.doubtful ? "white" : "#236", UtcText(point.unix_ns),
        point.slowdown, point.doubtful ? ", doubtful" : "");
  }
  absl::StrAppendFormat(&svg, "<polyline class=\"line\" points=\"%s\" fill=\"none\" stroke=\"#236\"/>\n%s",
                        line, dots);
  return Picture(kLeft + kWidth + kRight, kHeight, title, svg);
}

}  // namespace c4::whatif
