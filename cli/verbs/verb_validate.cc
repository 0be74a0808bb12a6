// c4 validate: suspends a job for a moment and tests its devices and links; or tests those of machines before
// a job begins.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "cli/base/child.h"
#include "cli/clients/master_client.h"
#include "cli/exit_codes.h"
#include "cli/launch/preflight.h"
#include "cli/options.h"
#include "cli/text/screen.h"
#include "cli/text/validation_text.h"
#include "cli/verb.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "suspend a job for a moment, and test its devices and links";
constexpr absl::Duration kCallLimit = absl::Seconds(5);
constexpr absl::Duration kPatience = absl::Seconds(3);
constexpr absl::Duration kLook = absl::Milliseconds(200);
constexpr absl::Duration kLongest = absl::Seconds(200);  // whatever becomes of the master

struct Asked {
  MasterOptions master;
  std::vector<std::string> ranks;
  std::vector<std::string> links;
  bool no_devices = false;
  bool no_links = false;
  bool last = false;
  bool json = false;
  double hold_s = 3;
  double arrive_s = 3;
};

// A usage error's sentence; empty: fine.
std::string ReadRequest(const Asked& asked, v1::RunValidationRequest* request) {
  for (const std::string& word : asked.ranks) {
    int32_t rank = 0;
    if (!absl::SimpleAtoi(word, &rank) || rank < 0) return absl::StrCat("--rank '", word, "' is no rank");
    request->add_ranks(rank);
  }
  for (const std::string& word : asked.links) {
    const std::vector<std::string> ends = absl::StrSplit(word, ':');
    int32_t from = 0;
    int32_t to = 0;
    if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &from) || !absl::SimpleAtoi(ends[1], &to) ||
        from < 0 || to < 0 || from == to) {
      return absl::StrCat("--link '", word, "' is no pair of ranks: give FROM:TO");
    }
    v1::RankPair* const pair = request->add_links();
    pair->set_from(from);
    pair->set_to(to);
  }
  request->set_without_devices(asked.no_devices);
  request->set_without_links(asked.no_links);
  request->set_hold_ms(static_cast<uint32_t>(asked.hold_s * 1000));
  request->set_arrive_ms(static_cast<uint32_t>(asked.arrive_s * 1000));
  return "";
}

int Fail(const absl::Status& status) {
  fprintf(stderr, "c4 validate: %s\n", std::string(status.message()).c_str());
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition:
      return kExitNotTested;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    default:
      return kExitUnreachable;
  }
}

bool IsOver(const v1::Validation& validation) {
  return validation.state() == v1::VALIDATION_STATE_DONE ||
         validation.state() == v1::VALIDATION_STATE_GIVEN_UP;
}

absl::Status Get(const MasterOptions& master, uint64_t number, v1::Validation* validation) {
  return AskMaster(master, kPatience, [&](const MasterClient& client) {
    absl::StatusOr<v1::GetValidationReply> reply = client.GetValidation(number, kCallLimit);
    if (!reply.ok()) return reply.status();
    *validation = reply->validation();
    return absl::OkStatus();
  });
}

int ValidateJob(const Asked& asked) {
  v1::Validation validation;
  if (asked.last) {
    const absl::Status status = Get(asked.master, 0, &validation);
    if (absl::IsNotFound(status)) return Fail(absl::FailedPreconditionError(status.message()));
    if (!status.ok()) return Fail(status);
  } else {
    v1::RunValidationRequest request;
    if (const std::string fault = ReadRequest(asked, &request); !fault.empty())
      return UsageError("validate", fault);
    const absl::Status begun = AskMaster(asked.master, kPatience, [&](const MasterClient& client) {
      const absl::StatusOr<v1::RunValidationReply> reply = client.RunValidation(request, kCallLimit);
      if (!reply.ok()) return reply.status();
      validation = reply->validation();
      return absl::OkStatus();
    });
    if (!begun.ok()) return Fail(begun);
  }
  const absl::Time until = absl::Now() + kLongest;
  while (!IsOver(validation) && absl::Now() < until) {
    absl::SleepFor(kLook);
    if (const absl::Status status = Get(asked.master, validation.number(), &validation); !status.ok()) {
      return Fail(
          absl::IsNotFound(status)
              ? absl::UnavailableError("the master was started anew meanwhile; the job goes on by itself")
              : status);
    }
  }
  const std::string text =
      asked.json ? ValidationJson(validation) + "\n" : ValidationText(validation, ScreenOf(stdout));
  fputs(text.c_str(), stdout);
  return ValidationExitCode(validation);
}

// Of rank 0 alone there is something to show.
int Preflight(PreflightOptions options, bool json) {
  if (const absl::Status filled = FillFromLauncher(OwnEnvironment(), &options); !filled.ok()) {
    return UsageError("validate", std::string(filled.message()));
  }
  int exit_code = kExitNotTested;
  const absl::StatusOr<v1::Validation> validation = RunPreflight(options, &exit_code);
  if (!validation.ok()) {
    fprintf(stderr, "c4 validate: %s\n", std::string(validation.status().message()).c_str());
    return kExitUnreachable;
  }
  if (options.rank != 0) return exit_code;
  const std::string text =
      json ? ValidationJson(*validation) + "\n" : ValidationText(*validation, ScreenOf(stdout));
  fputs(text.c_str(), stdout);
  return exit_code;
}

int RunValidate(const Arguments& arguments) {
  Asked asked;
  std::string job;
  bool preflight = false;
  PreflightOptions before;
  before.rank = -1;
  before.ranks = 0;
  Options options("validate", kSummary);
  options.Text("JOB", &job, "", "the job; needed only where several have a master");
  options.List("--rank", &asked.ranks, "N", "a rank whose device is suspected, and its links; default: all");
  options.List("--link", &asked.links, "FROM:TO", "two ranks whose connection is suspected");
  options.Flag("--no-devices", &asked.no_devices, "test links alone");
  options.Flag("--no-links", &asked.no_links, "test devices alone");
  options.Seconds("--hold", &asked.hold_s, 0.5, 60, "the job stands still so long at most");
  options.Seconds("--arrive", &asked.arrive_s, 0.1, 60,
                  "of that, at most, from the first rank that stands still to the last one");
  options.Flag("--last", &asked.last, "suspend nothing: show what the last validation found");
  options.Flag("--json", &asked.json, "one JSON document: {\"state\",\"devices\":[...],\"links\":[...]}");
  options.Group("before a job begins");
  options.Flag(
      "--preflight", &preflight,
      "test the devices of this machine; or, started once a rank or machine by a launcher, those of all and "
      "the links between them. Only rank 0 prints, all exit alike");
  options.Text("--rendezvous", &before.rendezvous, "HOST:PORT",
               "where rank 0 is reached; default: MASTER_ADDR and MASTER_PORT");
  options.Whole("--node-rank", &before.rank, 0, 1 << 20, "this one's number; default: as the launcher says");
  options.Whole("--nodes", &before.ranks, 1, 1 << 20, "how many there are; default: as the launcher says");
  options.Text("--gpu", &before.gpu, "N|none",
               "the GPU to test; default: that of the local rank, or all where this is the only process");
  options.Flag("--all-pairs", &before.all_pairs,
               "links between all pairs of machines; default: of up to 16, else a ring of them");
  options.Seconds("--join", &before.join_s, 0.1, 3600, "for all to come");
  options.Seconds("--device-time", &before.device_s, 0.1, 60, "for each device");
  options.Seconds("--transfer-time", &before.transfer_s, 0.05, 60, "for each pass over the links");
  asked.master.Declare(&options);
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (preflight && (!job.empty() || !asked.ranks.empty() || !asked.links.empty() || asked.last)) {
    return UsageError("validate", "--preflight is about machines: it takes no job, --rank, --link or --last");
  }
  if (asked.no_devices && asked.no_links) {
    return UsageError("validate", "--no-devices and --no-links leave nothing to test");
  }
  if (preflight) {
    before.no_devices = asked.no_devices;
    before.no_links = asked.no_links;
    return Preflight(before, asked.json);
  }
  if (!job.empty()) asked.master.job = job;
  return ValidateJob(asked);
}

}  // namespace

constinit const Verb kValidateVerb = {"validate", kSummary, RunValidate};

}  // namespace c4::cli
