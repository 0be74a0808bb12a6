// c4 level: how much the processes of a job record.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "cli/clients/master_client.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/verb.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "set how much the processes of a job record";
constexpr absl::Duration kCallLimit = absl::Seconds(5);
constexpr absl::Duration kPatience = absl::Seconds(3);

int RunLevel(const Arguments& arguments) {
  std::string word;
  bool json = false;
  MasterOptions master;
  Options options("level", kSummary);
  options.Flag("--json", &json, "one JSON document: {\"asked\"}");
  master.Declare(&options);
  options.Word("off|coarse|fine", &word, "nothing, each operation, or each message too");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  v1::RecordLevel level = v1::RECORD_LEVEL_UNSPECIFIED;
  if (word == "off") level = v1::RECORD_LEVEL_OFF;
  if (word == "coarse") level = v1::RECORD_LEVEL_COARSE;
  if (word == "fine") level = v1::RECORD_LEVEL_FINE;
  if (level == v1::RECORD_LEVEL_UNSPECIFIED) {
    return UsageError("level", absl::StrCat("'", word, "' is no level: give off, coarse or fine"));
  }
  const absl::Status asked = AskMaster(master, kPatience, [level](const MasterClient& client) {
    return client.SetLevel(level, kCallLimit).status();
  });
  if (!asked.ok()) {
    fprintf(stderr, "c4 level: %s\n", std::string(asked.message()).c_str());
    return kExitUnreachable;
  }
  if (json) {
    printf("{\"asked\":\"%s\"}\n", word.c_str());
    return kExitOk;
  }
  printf("asked for; the agents pass it on with the next replies (within a second)\n");
  return kExitOk;
}

}  // namespace

constinit const Verb kLevelVerb = {"level", kSummary, RunLevel};

}  // namespace c4::cli
