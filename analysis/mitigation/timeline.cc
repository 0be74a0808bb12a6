#include "analysis/mitigation/timeline.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/svg_page.h"

namespace c4::mitigation {
namespace {

using Json = nlohmann::json;

constexpr int kWidth = 880;
constexpr int kPanel = 170;
constexpr int kBetween = 60;  // panels; names of events and actions stand there
constexpr int kColumnWidth = 2;
constexpr double kShown = 0.99;  // of the iterations: the axis ends above these

bool ReadNumber(const Json& json, const char* key, double* value) {
  const auto at = json.find(key);
  if (at == json.end() || !at->is_number()) return false;
  *value = at->get<double>();
  return std::isfinite(*value) && *value >= 0;
}

bool ReadText(const Json& json, const char* key, std::string* value) {
  const auto at = json.find(key);
  if (at == json.end() || !at->is_string()) return false;
  *value = at->get<std::string>();
  return true;
}

const Json& ListOf(const Json& json, const char* key) {
  static const Json kNone = Json::array();
  const auto at = json.find(key);
  return at == json.end() || !at->is_array() ? kNone : *at;
}

absl::Status ReadRun(const Json& json, TimelineRun* run) {
  if (!json.is_object() || !ReadText(json, "name", &run->name)) {
    return absl::InvalidArgumentError("a run is an object with a \"name\"");
  }
  run->mitigated = json.value("mitigated", Json(false)) == Json(true);
  const auto bad = [run](const char* what, size_t number) {
    return absl::InvalidArgumentError(absl::StrCat("run ", run->name, ": ", what, " ", number,
                                                   " (from 0) has no "
                                                   "times that could be"));
  };
  for (const Json& item : ListOf(json, "iterations")) {
    TimelinePoint point;
    const bool good = item.is_object() && ReadNumber(item, "at_s", &point.at_s) &&
                      ReadNumber(item, "ms", &point.ms) && point.ms > 0;
    if (!good) return bad("iteration", run->iterations.size());
    run->iterations.push_back(point);
  }
  for (const Json& item : ListOf(json, "events")) {
    TimelineEvent event;
    const bool good = item.is_object() && ReadNumber(item, "from_s", &event.from_s) &&
                      ReadNumber(item, "until_s", &event.until_s) && event.until_s >= event.from_s &&
                      ReadText(item, "what", &event.what);
    if (!good) return bad("event", run->events.size());
    run->events.push_back(std::move(event));
  }
  for (const Json& item : ListOf(json, "actions")) {
    TimelineAction action;
    const bool good = item.is_object() && ReadNumber(item, "at_s", &action.at_s) &&
                      ReadText(item, "strategy", &action.strategy) && ReadText(item, "kind", &action.kind);
    if (!good) return bad("action", run->actions.size());
    (void)ReadText(item, "why", &action.why);
    run->actions.push_back(std::move(action));
  }
  if (run->iterations.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("run ", run->name, " has no \"iterations\""));
  }
  return absl::OkStatus();
}

struct Axes {
  double most_s = 1;
  double most_ms = 1;

  double X(double at_s) const { return analysis::kSvgLeft + std::min(at_s / most_s, 1.0) * kWidth; }
  double Y(int top, double ms) const { return top + kPanel * (1 - std::min(ms / most_ms, 1.0)); }
};

Axes AxesOf(const Timeline& timeline) {
  Axes axes;
  std::vector<double> all_ms;
  for (const TimelineRun& run : timeline.runs) {
    for (const TimelinePoint& point : run.iterations) {
      axes.most_s = std::max(axes.most_s, point.at_s);
      all_ms.push_back(point.ms);
    }
  }
  std::sort(all_ms.begin(), all_ms.end());
  const auto shown = static_cast<size_t>(kShown * static_cast<double>(all_ms.size() - 1));
  axes.most_ms = std::max(1e-6, 1.1 * all_ms[shown]);
  return axes;
}

std::string Frame(const Axes& axes, int top) {
  std::string svg;
  constexpr int kParts = 4;
  for (int part = 0; part <= kParts; ++part) {
    const double ms = axes.most_ms * part / kParts;
    const double at_s = axes.most_s * part / kParts;
    absl::StrAppendFormat(
        &svg,
        "<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">%.3g</text>\n"
        "<line class=\"grid\" x1=\"%d\" y1=\"%.0f\" x2=\"%d\" y2=\"%.0f\" stroke=\"#ddd\"/>\n"
        "<text x=\"%.0f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n",
        analysis::kSvgLeft - 8, axes.Y(top, ms) + 4, ms, analysis::kSvgLeft, axes.Y(top, ms),
        analysis::kSvgLeft + kWidth, axes.Y(top, ms), axes.X(at_s), top + kPanel + 16, at_s);
  }
  return svg;
}

std::string Line(const Axes& axes, const TimelineRun& run, int top) {
  std::string points;
  std::vector<double> column;
  int at = -1;
  const auto flush = [&] {
    if (column.empty()) return;
    std::sort(column.begin(), column.end());
    absl::StrAppendFormat(&points, "%d,%.1f ", at * kColumnWidth + analysis::kSvgLeft,
                          axes.Y(top, column[column.size() / 2]));
    column.clear();
  };
  for (const TimelinePoint& point : run.iterations) {
    const int to = static_cast<int>((axes.X(point.at_s) - analysis::kSvgLeft) / kColumnWidth);
    if (to != at) flush();
    at = to;
    column.push_back(point.ms);
  }
  flush();
  return absl::StrFormat("<polyline class=\"line\" points=\"%s\" fill=\"none\" stroke=\"#236\"/>\n", points);
}

std::string Panel(const Axes& axes, const TimelineRun& run, int top) {
  std::string svg;
  for (size_t i = 0; i < run.events.size(); ++i) {
    const TimelineEvent& event = run.events[i];
    absl::StrAppendFormat(&svg,
                          "<rect class=\"slow\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" "
                          "fill=\"#fbe3d6\"><title>%s</title></rect>\n"
                          "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" font-size=\"10\">%d</text>\n",
                          axes.X(event.from_s), top,
                          std::max(1.0, axes.X(event.until_s) - axes.X(event.from_s)), kPanel,
                          analysis::EscapedForSvg(event.what),
                          (axes.X(event.from_s) + axes.X(event.until_s)) / 2, top - 4, i + 1);
  }
  absl::StrAppend(&svg, Frame(axes, top), Line(axes, run, top));
  for (const TimelineAction& action : run.actions) {
    const double x = axes.X(action.at_s);
    const bool back = action.kind == "step-back";
    absl::StrAppendFormat(
        &svg,
        "<line class=\"limit\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#c33\" "
        "stroke-dasharray=\"%s\"><title>%s</title></line>\n"
        "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" font-size=\"10\">%s%s</text>\n",
        x, top, x, top + kPanel, back ? "1 4" : "4 3",
        analysis::EscapedForSvg(absl::StrCat(action.strategy, " ", action.kind, ": ", action.why)), x,
        top + kPanel + 30, analysis::EscapedForSvg(action.strategy), back ? " back" : "");
  }
  absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"%d\">%s: milliseconds of an iteration</text>\n",
                        analysis::kSvgLeft, top - 18, analysis::EscapedForSvg(run.name));
  return svg;
}

}  // namespace

absl::StatusOr<Timeline> ParseTimeline(std::string_view json) {
  const Json document = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  Timeline timeline;
  if (!document.is_object() || ListOf(document, "runs").empty()) {
    return absl::InvalidArgumentError("it is no stored run: a JSON object with a list \"runs\" is wanted");
  }
  (void)ReadText(document, "title", &timeline.title);
  for (const Json& item : ListOf(document, "runs")) {
    TimelineRun run;
    if (absl::Status status = ReadRun(item, &run); !status.ok()) return status;
    timeline.runs.push_back(std::move(run));
  }
  return timeline;
}

std::string TimelineSvg(const Timeline& timeline) {
  const Axes axes = AxesOf(timeline);
  std::string body;
  int top = analysis::kSvgTop + 20;
  for (const TimelineRun& run : timeline.runs) {
    absl::StrAppend(&body, Panel(axes, run, top));
    top += kPanel + kBetween + 20;
  }
  absl::StrAppendFormat(&body, "<text x=\"%d\" y=\"%d\">seconds; shaded: something is slow</text>\n",
                        analysis::kSvgLeft, top - 36);
  return analysis::SvgPage(analysis::kSvgLeft + kWidth + 30, top - 20, timeline.title, body,
                           ".slow { fill: #4a2f22 }\n");
}

}  // namespace c4::mitigation
