#include "cli/options.h"

#include <algorithm>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "cli/exit_codes.h"

namespace c4::cli {

struct Options::Parts {
  Parts(std::string name, const std::string& summary) : verb(std::move(name)), app(summary, "c4 " + verb) {}

  std::string verb;
  CLI::App app;
  std::vector<std::string>* command = nullptr;
  std::string command_metavar;
};

Options::Options(const std::string& verb, const std::string& summary)
    : parts_(std::make_unique<Parts>(verb, summary)) {}

Options::~Options() = default;

void Options::Flag(const std::string& names, bool* value, const std::string& help) {
  parts_->app.add_flag(names, *value, help);
}

void Options::Text(const std::string& names, std::string* value, const std::string& metavar,
                   const std::string& help, const std::string& environment) {
  CLI::Option* option = parts_->app.add_option(names, *value, help)->type_name(metavar);
  if (!environment.empty()) option->envname(environment);
  if (!value->empty()) option->default_str(*value);
}

void Options::Whole(const std::string& names, int* value, int min, int max, const std::string& help) {
  CLI::Option* option =
      parts_->app.add_option(names, *value, help)->check(CLI::Range(min, max))->type_name("N");
  if (*value >= min) option->default_str(std::to_string(*value));
}

void Options::Seconds(const std::string& names, double* value, double min, double max,
                      const std::string& help) {
  Real(names, value, min, max, "SECONDS", help);
}

void Options::Real(const std::string& names, double* value, double min, double max,
                   const std::string& metavar, const std::string& help) {
  parts_->app.add_option(names, *value, help)->check(CLI::Range(min, max))->type_name(metavar);
}

void Options::List(const std::string& names, std::vector<std::string>* values, const std::string& metavar,
                   const std::string& help) {
  parts_->app.add_option(names, *values, help)->type_name(metavar)->expected(1)->take_all();
}

void Options::Word(const std::string& name, std::string* value, const std::string& help) {
  parts_->app.add_option(name, *value, help)->required()->type_name("");
}

void Options::Words(const std::string& name, std::vector<std::string>* values, const std::string& help) {
  parts_->app.add_option(name, *values, help)->required()->type_name("");
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
  } catch (const CLI::Success&) {
    std::string help = parts_->app.help();
    const std::string options_word = "[OPTIONS]";
    const size_t at = help.find(options_word);
    if (parts_->command != nullptr && at != std::string::npos) {
      help.insert(at + options_word.size(), " -- " + parts_->command_metavar);
    }
    fputs(help.c_str(), stdout);
    return kExitOk;
  } catch (const CLI::ExtrasError& error) {
    const char* hint = parts_->command != nullptr ? " (the program to run comes after `--`)" : "";
    return UsageError(parts_->verb, error.what() + std::string(hint));
  } catch (const CLI::Error& error) {
    return UsageError(parts_->verb, error.what());
  }
  return std::nullopt;
}

int UsageError(const std::string& verb, const std::string& message) {
  fprintf(stderr, "c4 %s: %s\nTry `c4 %s --help`.\n", verb.c_str(), message.c_str(), verb.c_str());
  return kExitUsage;
}

}  // namespace c4::cli
