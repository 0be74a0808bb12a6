// What `c4 doctor` says of one thing: good, worth knowing, or in the way of a job; and how all of it is
// shown. Pure; any thread.
#pragma once

#include <string>
#include <vector>

namespace c4::cli {

enum class Grade { kOk, kNote, kProblem };

struct Finding {
  Grade grade = Grade::kOk;
  std::string subject;  // one word
  std::string text;     // one line
  std::string advice;   // what to do; every problem has it
};
using Findings = std::vector<Finding>;

int CountOf(const Findings& findings, Grade grade);

// Problems first, then notes, then what is good.
// In lines of at most `columns` (0: as long as they are).
std::string FindingsText(const Findings& findings, int columns = 0);
// {"problems","notes","findings":[{"grade","subject","text","advice"}]}, in the order of the checks.
std::string FindingsJson(const Findings& findings);

}  // namespace c4::cli
