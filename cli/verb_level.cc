// c4 level: how much the processes of a job record.
#include <cstdio>

#include "cli/exit_codes.h"
#include "cli/master_client.h"
#include "cli/options.h"
#include "cli/verb.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "set how much the processes of a job record";
constexpr absl::Duration kCallLimit = absl::Seconds(5);
constexpr absl::Duration kPatience = absl::Seconds(3);

int RunLevel(const Arguments& arguments) {
  // The level is the one word that is no option.
  Arguments rest = arguments;
  v1::RecordLevel level = v1::RECORD_LEVEL_UNSPECIFIED;
  if (!rest.empty()) {
    if (rest.front() == "off") level = v1::RECORD_LEVEL_OFF;
    if (rest.front() == "coarse") level = v1::RECORD_LEVEL_COARSE;
    if (rest.front() == "fine") level = v1::RECORD_LEVEL_FINE;
    if (level != v1::RECORD_LEVEL_UNSPECIFIED) rest.erase(rest.begin());
  }
  MasterOptions master;
  Options options("level", kSummary);
  master.Declare(&options);
  if (const std::optional<int> exit_code = options.Parse(rest)) return *exit_code;
  if (level == v1::RECORD_LEVEL_UNSPECIFIED) return UsageError("level", "say first: off, coarse or fine");
  const absl::Status asked = AskMaster(master, kPatience, [level](const MasterClient& client) {
    return client.SetLevel(level, kCallLimit).status();
  });
  if (!asked.ok()) {
    fprintf(stderr, "c4 level: %s\n", std::string(asked.message()).c_str());
    return kExitUnreachable;
  }
  printf("asked for; the agents pass it on with the next replies (within a second)\n");
  return kExitOk;
}

}  // namespace

constinit const Verb kLevelVerb = {"level", kSummary, RunLevel};

}  // namespace c4::cli
