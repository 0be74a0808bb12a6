#include "analysis/svg_page.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace c4::analysis {
namespace {

constexpr int kLineHeight = 16;
constexpr int kLetterWidth = 7;  // of a title, about; rather too much

std::string DarkStyle(const std::string& more) {
  return absl::StrCat(
      "<style>@media (prefers-color-scheme: dark) {\n"
      ".paper { fill: #16191d } text { fill: #d8dde3 } .grid { stroke: #3a4149 } .cell { stroke: #4a525b }\n"
      ".line { stroke: #7db3ff } .dot { fill: #7db3ff; stroke: #7db3ff } .hollow { fill: #16191d; stroke: "
      "#7db3ff }\n.limit { stroke: #ff7b72 } .on-deep { fill: #16191d }\n",
      more, "}</style>\n");
}

// A title is shown whole: in as many lines as it needs, broken at spaces where there are some.
std::vector<std::string> Lines(std::string title, size_t columns) {
  std::vector<std::string> lines;
  while (title.size() > columns) {
    size_t end = title.rfind(' ', columns);
    const bool at_space = end != std::string::npos && end > 0;
    if (!at_space) {
      end = columns;
      // Not within a character.
      while (end > 1 && (static_cast<unsigned char>(title[end]) & 0xc0) == 0x80) --end;
    }
    lines.push_back(title.substr(0, end));
    title.erase(0, at_space ? end + 1 : end);
  }
  lines.push_back(std::move(title));
  return lines;
}

}  // namespace

std::string EscapedForSvg(const std::string& text) {
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

std::string SvgPage(int width, int height, const std::string& title, const std::string& body,
                    const std::string& dark) {
  const std::vector<std::string> lines =
      Lines(title, static_cast<size_t>(std::max(1, (width - kSvgLeft) / kLetterWidth)));
  const int extra = static_cast<int>(lines.size() - 1) * kLineHeight;
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n%s<rect class=\"paper\" width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
      width, height + extra, DarkStyle(dark), width, height + extra);
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"%d\">%s</text>\n", kSvgLeft,
                          20 + static_cast<int>(i) * kLineHeight, EscapedForSvg(lines[i]));
  }
  return absl::StrFormat("%s<g transform=\"translate(0 %d)\">\n%s</g>\n</svg>\n", svg, extra, body);
}

}  // namespace c4::analysis
