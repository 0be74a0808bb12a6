// Command-line options of one verb, in front of CLI11 so that only options.cc compiles it.
//
// Declare the options, then Parse. Targets are the caller's and must outlive Parse; a target that the
// command line does not name keeps its value, which is also the default shown in --help. Unknown options,
// stray words and values out of range end the verb with a message and kExitUsage. One thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/verb.h"

namespace c4::cli {

class Options {
 public:
  Options(const std::string& verb, const std::string& summary);
  ~Options();
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  // What is declared from here on stands under that heading in --help; "": under "options" again.
  void Group(const std::string& heading);
  // Stands at the end of --help; whole lines.
  void Epilogue(const std::string& text);

  // `names` as CLI11 reads them: "-n,--ranks".
  void Flag(const std::string& names, bool* value, const std::string& help);
  // `environment`: the variable that it is taken from when the command line does not name it.
  void Text(const std::string& names, std::string* value, const std::string& metavar, const std::string& help,
            const std::string& environment = "");
  void Whole(const std::string& names, int* value, int min, int max, const std::string& help);
  void Seconds(const std::string& names, double* value, double min, double max, const std::string& help);
  void Real(const std::string& names, double* value, double min, double max, const std::string& metavar,
            const std::string& help, const std::string& environment = "");
  // May be given several times.
  void List(const std::string& names, std::vector<std::string>* values, const std::string& metavar,
            const std::string& help);
  // A word without a dash before it, in the order of these calls; `Words` and `OptionalWords`, at the end:
  // one or more, any number. `Text` with a name that has no dash declares one that may be missing.
  void Word(const std::string& name, std::string* value, const std::string& help);
  void Words(const std::string& name, std::vector<std::string>* values, const std::string& help);
  void OptionalWords(const std::string& name, std::vector<std::string>* values, const std::string& help);
  // Takes every word after `--`, whatever it looks like. Without this call `--` is refused.
  void Command(std::vector<std::string>* words, const std::string& metavar);

  // nullopt: go on. Otherwise the exit code to return (0 after --help and --version); the text has been
  // printed.
  std::optional<int> Parse(const Arguments& arguments);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Of a verb that has verbs of its own, when `word` stands in place of one: --help and -h print `help`, and
// --version the version, and give the exit code to return; nullopt: it is neither.
std::optional<int> HelpOrVersion(const std::string& word, const std::string& help);

// Prints "c4 VERB: MESSAGE" with a pointer to --help on stderr and returns kExitUsage.
int UsageError(const std::string& verb, const std::string& message);

}  // namespace c4::cli
