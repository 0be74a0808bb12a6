#include "cli/options.h"

#include <algorithm>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "cli/base/plain_text.h"
#include "cli/base/program.h"
#include "cli/exit_codes.h"
#include "cli/text/screen.h"
#include "service/version.h"

namespace c4::cli {
namespace {

constexpr char kOwnGroup[] = "options";

// An option or a word as --help shows it.
struct Entry {
  std::string group;  // the heading that it stands under
  std::string names;  // "-n,--ranks"; of a word its name
  std::string metavar;
  std::string help;
  std::string note;  // range, default and variable; empty: none
};

std::string VersionLine() {
  return Cat(ProgramName(), " ", service::Version());
}

// "1 to 8", "at least 1", or nothing where the bound is only there to catch mistakes.
std::string RangeText(double min, double max) {
  constexpr double kNoBound = 1e6;
  if (max < kNoBound) return Cat(min, " to ", max);
  return min > 0 ? Cat("at least ", min) : "";
}

std::string Joined(std::initializer_list<std::string> parts) {
  std::vector<std::string> said;
  std::copy_if(parts.begin(), parts.end(), std::back_inserter(said),
               [](const std::string& part) { return !part.empty(); });
  return Join(said, "; ");
}

}  // namespace

struct Options::Parts {
  Parts(std::string name, std::string what) : verb(std::move(name)), summary(std::move(what)), app(summary) {
    app.set_version_flag("--version", VersionLine());
  }

  CLI::Option* Declare(CLI::Option* option, const std::string& names, const std::string& metavar,
                       const std::string& help, const std::string& note) {
    if (names[0] == '-') {
      entries.push_back({group, names, metavar, help, note});
    } else {
      words.push_back({"", names, metavar, help, note});
      CatTo(&usage, " ", note == "required" ? names : Cat("[", names, "]"));
    }
    return option;
  }

  std::string Help(size_t columns) const;

  std::string verb;
  std::string summary;
  CLI::App app;
  std::string group = kOwnGroup;
  std::vector<Entry> entries;
  std::vector<Entry> words;
  std::string usage;  // of the words
  std::string epilogue;
  std::vector<std::string>* command = nullptr;
  std::string command_metavar;
};

std::string Options::Parts::Help(size_t columns) const {
  constexpr size_t kIndent = 24;
  const std::string called = CommandFor(verb);
  std::string text = Cat(called, ": ", Wrapped(summary, columns - called.size() - 2, 2), "\n\n");
  CatTo(&text, "usage: ", called, " [OPTIONS]", usage, command != nullptr ? Cat(" -- ", command_metavar) : "",
        "\n");
  std::string heading;
  const auto show = [&](const Entry& entry, const std::string& under) {
    if (heading != under) CatTo(&text, "\n", under, ":\n");
    heading = under;
    std::string left = Cat("  ", Replaced(entry.names, ",", ", "));
    if (!entry.metavar.empty() && entry.metavar != entry.names) CatTo(&left, " ", entry.metavar);
    // What is too long for its column has a line of its own.
    left += left.size() + 2 > kIndent ? "\n" + std::string(kIndent, ' ')
                                      : std::string(kIndent - left.size(), ' ');
    const std::string help = entry.note.empty() ? entry.help : Cat(entry.help, " (", entry.note, ")");
    CatTo(&text, left, Wrapped(help, columns - kIndent, kIndent), "\n");
  };
  for (const Entry& word : words) show(word, "words");
  std::vector<std::string> groups = {kOwnGroup};  // a verb's own options before what many verbs share
  for (const Entry& entry : entries) {
    if (std::find(groups.begin(), groups.end(), entry.group) == groups.end()) groups.push_back(entry.group);
  }
  for (const std::string& under : groups) {
    for (const Entry& entry : entries) {
      if (entry.group == under) show(entry, under);
    }
  }
  CatTo(&text, "\n  -h, --help, --version\n");
  if (!epilogue.empty()) CatTo(&text, "\n", epilogue);
  return text;
}

Options::Options(const std::string& verb, const std::string& summary)
    : parts_(std::make_unique<Parts>(verb, summary)) {}

Options::~Options() = default;

void Options::Group(const std::string& heading) {
  parts_->group = heading.empty() ? kOwnGroup : heading;
}

void Options::Epilogue(const std::string& text) {
  parts_->epilogue = text;
}

void Options::Flag(const std::string& names, bool* value, const std::string& help) {
  parts_->Declare(parts_->app.add_flag(names, *value, help), names, "", help, "");
}

void Options::Text(const std::string& names, std::string* value, const std::string& metavar,
                   const std::string& help, const std::string& environment) {
  CLI::Option* option = parts_->Declare(
      parts_->app.add_option(names, *value, help), names, metavar, help,
      Joined({value->empty() ? "" : "default " + *value, environment.empty() ? "" : "or " + environment}));
  if (!environment.empty()) option->envname(environment);
}

void Options::Whole(const std::string& names, int* value, int min, int max, const std::string& help) {
  parts_
      ->Declare(parts_->app.add_option(names, *value, help), names, "N", help,
                Joined({RangeText(min, max), *value >= min ? Cat("default ", *value) : ""}))
      ->check(CLI::Range(min, max));
}

void Options::Seconds(const std::string& names, double* value, double min, double max,
                      const std::string& help) {
  Real(names, value, min, max, "SECONDS", help);
}

void Options::Real(const std::string& names, double* value, double min, double max,
                   const std::string& metavar, const std::string& help, const std::string& environment) {
  // 0 stands for "not said" in most verbs, whose help then tells what that means.
  CLI::Option* option =
      parts_->Declare(parts_->app.add_option(names, *value, help), names, metavar, help,
                      Joined({RangeText(min, max), *value > 0 ? Cat("default ", *value) : "",
                              environment.empty() ? "" : "or " + environment}));
  option->check(CLI::Range(min, max));
  if (!environment.empty()) option->envname(environment);
}

void Options::List(const std::string& names, std::vector<std::string>* values, const std::string& metavar,
                   const std::string& help) {
  parts_->Declare(parts_->app.add_option(names, *values, help), names, metavar, help, "may be repeated")
      ->expected(1)
      ->take_all();
}

void Options::Word(const std::string& name, std::string* value, const std::string& help) {
  parts_->Declare(parts_->app.add_option(name, *value, help), name, "", help, "required")->required();
}

void Options::Words(const std::string& name, std::vector<std::string>* values, const std::string& help) {
  parts_->Declare(parts_->app.add_option(name, *values, help), name, "", help, "required")->required();
}

void Options::OptionalWords(const std::string& name, std::vector<std::string>* values,
                            const std::string& help) {
  parts_->Declare(parts_->app.add_option(name, *values, help), name, "", help, "");
}

void Options::Command(std::vector<std::string>* words, const std::string& metavar) {
  parts_->command = words;
  parts_->command_metavar = metavar;
}

std::optional<int> Options::Parse(const Arguments& arguments) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes != arguments.end()) {
    if (parts_->command == nullptr) return UsageError(parts_->verb, "nothing may follow `--` here");
    parts_->command->assign(dashes + 1, arguments.end());
  }
  // CLI11 takes the words last first.
  std::vector<std::string> words(arguments.begin(), dashes);
  std::reverse(words.begin(), words.end());
  try {
    parts_->app.parse(words);
  } catch (const CLI::CallForVersion& version) {
    printf("%s\n", version.what());
    return kExitOk;
  } catch (const CLI::Success&) {
    const int columns = ScreenOf(stdout).columns;
    // Wider lines are harder to read; narrower ones than that hold no word.
    constexpr int kWidest = 100;
    constexpr int kNarrowest = 60;
    fputs(parts_->Help(static_cast<size_t>(columns == 0 ? kWidest : std::clamp(columns, kNarrowest, kWidest)))
              .c_str(),
          stdout);
    return kExitOk;
  } catch (const CLI::ExtrasError& error) {
    const char* hint = parts_->command != nullptr ? " (the program to run comes after `--`)" : "";
    return UsageError(parts_->verb, error.what() + std::string(hint));
  } catch (const CLI::RequiredError& error) {
    return UsageError(parts_->verb,
                      Cat(error.what(), ": ", CommandFor(parts_->verb), " [OPTIONS]", parts_->usage));
  } catch (const CLI::Error& error) {
    return UsageError(parts_->verb, error.what());
  }
  return std::nullopt;
}

std::optional<int> HelpOrVersion(const std::string& word, const std::string& help) {
  if (word == "--help" || word == "-h") {
    fputs(help.c_str(), stdout);
    return kExitOk;
  }
  if (word != "--version") return std::nullopt;
  printf("%s\n", VersionLine().c_str());
  return kExitOk;
}

int UsageError(const std::string& verb, const std::string& message) {
  const std::string command = CommandFor(verb);
  fprintf(stderr, "%s: %s\nTry `%s --help`.\n", command.c_str(), message.c_str(), command.c_str());
  return kExitUsage;
}

}  // namespace c4::cli
