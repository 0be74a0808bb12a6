#include "cli/doctor/finding.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "cli/base/plain_text.h"
#include "cli/text/screen.h"

namespace c4::cli {
namespace {

const char* Word(Grade grade) {
  switch (grade) {
    case Grade::kOk:
      return "ok";
    case Grade::kNote:
      return "note";
    case Grade::kProblem:
      return "problem";
  }
  return "?";
}

std::string Counted(int count, const std::string& word) {
  return Cat(count == 0 ? "no" : std::to_string(count), " ", word, count == 1 ? "" : "s");
}

}  // namespace

int CountOf(const Findings& findings, Grade grade) {
  return static_cast<int>(
      std::ranges::count_if(findings, [grade](const Finding& finding) { return finding.grade == grade; }));
}

std::string FindingsText(const Findings& findings, int columns) {
  size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.subject.size());
  std::string text = Cat(Counted(CountOf(findings, Grade::kProblem), "problem"), ", ",
                         Counted(CountOf(findings, Grade::kNote), "note"), "\n\n");
  const size_t indent = 9 + width + 2;
  const size_t room =
      columns == 0 ? std::string::npos : std::max(static_cast<size_t>(columns), indent + 20) - indent;
  for (const Grade grade : {Grade::kProblem, Grade::kNote, Grade::kOk}) {
    for (const Finding& finding : findings) {
      if (finding.grade != grade) continue;
      CatTo(&text, Padded(Word(grade), 8), " ", Padded(finding.subject, width), "  ",
            Wrapped(finding.text, room, indent), "\n");
      if (finding.advice.empty()) continue;
      CatTo(&text, std::string(indent, ' '), Wrapped("-> " + finding.advice, room, indent + 3), "\n");
    }
  }
  return text;
}

std::string FindingsJson(const Findings& findings) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"grade", Word(finding.grade)},
                    {"subject", finding.subject},
                    {"text", finding.text},
                    {"advice", finding.advice.empty() ? Json(nullptr) : Json(finding.advice)}});
  }
  const Json document = {{"problems", CountOf(findings, Grade::kProblem)},
                         {"notes", CountOf(findings, Grade::kNote)},
                         {"findings", list}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace c4::cli
