// c4 verdicts: what the master of a job says, once or as it comes.
#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/clients/master_client.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/text/screen.h"
#include "cli/text/verdict_exit.h"
#include "cli/text/verdict_text.h"
#include "cli/text/verdict_watch.h"
#include "cli/verb.h"
#include "cli/verbs/ended_job.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "show who holds the job up";
constexpr absl::Duration kCallLimit = absl::Seconds(5);
constexpr absl::Duration kPatience = absl::Seconds(3);
// --watch: how long a master may be away before we give up.
constexpr absl::Duration kReconnectPatience = absl::Seconds(15);

int Unreachable(const absl::Status& status) {
  fprintf(stderr, "c4 verdicts: %s\n", std::string(status.message()).c_str());
  return kExitUnreachable;
}

// What the verb was asked to show, and how.
struct Form {
  bool all = false;
  bool json = false;
  bool verbose = false;
  std::string log_dir;  // of jobs that are over
};

// `now_unix_ns`: of a job that is over its end.
void PrintText(const v1::ListVerdictsReply& reply, bool verbose, int64_t now_unix_ns) {
  if (KnowsNothing(reply)) {
    printf("job %s: no agent has reported a process to this master yet: it knows nothing of the job\n",
           reply.job().c_str());
  } else if (std::none_of(reply.verdicts().begin(), reply.verdicts().end(), IsOpen)) {
    printf("job %s: no open verdict\n", reply.job().c_str());
  }
  if (reply.processes_unwatched() > 0) {
    // The reason is not cut: it says what to do.
    printf("%s, and nothing here is about %s: %s\n",
           reply.processes_unwatched() == 1
               ? "1 process cannot be watched"
               : absl::StrCat(reply.processes_unwatched(), " processes cannot be watched").c_str(),
           reply.processes_unwatched() == 1 ? "it" : "them", reply.unwatched_why().c_str());
  }
  size_t folded = 0;
  const std::vector<const v1::Verdict*> shown = VerdictsToShow(reply, &folded);
  if (verbose) {
    // All of them, the folded ones last; nothing is cut.
    for (const v1::Verdict* verdict : shown) {
      printf("%s", service::VerdictText(*verdict, now_unix_ns).c_str());
    }
    for (const v1::Verdict& verdict : reply.verdicts()) {
      if (std::find(shown.begin(), shown.end(), &verdict) != shown.end()) continue;
      printf("%s", service::VerdictText(verdict, now_unix_ns).c_str());
    }
    return;
  }
  const Screen screen = ScreenOf(stdout);
  for (const v1::Verdict* verdict : shown) {
    printf("%s", ShortVerdictText(*verdict, now_unix_ns, screen).c_str());
  }
  if (folded != 0) {
    printf("%s\n",
           Fit(absl::StrCat(folded,
                            folded == 1 ? " suspicion that this explains" : " suspicions that these explain",
                            ": -v shows all, with evidence"),
               screen.columns)
               .c_str());
  } else if (!shown.empty() && screen.terminal) {
    printf("-v shows the evidence\n");
  }
}

// Of a job that is over.
int PrintEnded(const JobRecord& record, const Form& form) {
  const absl::StatusOr<v1::ListVerdictsReply> reply = EndedVerdicts(record, form.all);
  if (!reply.ok()) return Unreachable(reply.status());
  if (form.json) {
    printf("%s\n", service::VerdictListJson(*reply, 2).c_str());
  } else {
    printf("%s", EndedHead(record, absl::GetCurrentTimeNanos(), ScreenOf(stdout)).c_str());
    PrintText(*reply, form.verbose, EndOf(record));
  }
  return VerdictsExitCode(*reply);
}

int PrintOnce(const MasterOptions& master, const Form& form) {
  v1::ListVerdictsReply reply;
  const absl::Status asked = AskMaster(master, kPatience, [&](const MasterClient& client) {
    absl::StatusOr<v1::ListVerdictsReply> verdicts = client.ListVerdicts(form.all, kCallLimit);
    if (!verdicts.ok()) return verdicts.status();
    reply = *std::move(verdicts);
    return absl::OkStatus();
  });
  if (!asked.ok()) {
    const absl::StatusOr<JobRecord> record = EndedInstead(asked, master, form.log_dir);
    return record.ok() ? PrintEnded(*record, form) : Unreachable(record.status());
  }
  if (form.json) {
    printf("%s\n", service::VerdictListJson(reply, 2).c_str());
    return VerdictsExitCode(reply);
  }
  PrintText(reply, form.verbose, absl::GetCurrentTimeNanos());
  return VerdictsExitCode(reply);
}

// How a stream ends when its master ends, in order or not.
bool MayComeBack(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
}

int Watch(MasterOptions master, const Form& form) {
  VerdictWatch watch(form.all);
  const auto show = [&](const v1::Verdict& verdict) {
    if (watch.Take(verdict)) {
      const int64_t now_unix_ns = absl::GetCurrentTimeNanos();
      const std::string line = form.json ? service::VerdictJson(verdict)
                                         : Fit(absl::StrCat(ClockText(now_unix_ns, now_unix_ns), " ",
                                                            service::VerdictLine(verdict, now_unix_ns)),
                                               ScreenOf(stdout).columns);
      printf("%s\n", line.c_str());
      fflush(stdout);
    }
    return true;
  };
  bool connected_before = false;
  absl::Time give_up = absl::Now() + kPatience;
  for (;;) {
    const absl::StatusOr<FoundMaster> found = FindMaster(master);
    if (!found.ok()) {
      // The entry is taken out when the master leaves in order: the job is over.
      return connected_before ? watch.exit_code() : Unreachable(found.status());
    }
    master.job = found->job;  // of several that start later, stay with this one
    const absl::StatusOr<std::unique_ptr<MasterClient>> client = MasterClient::Open(found->master, master);
    if (!client.ok()) return Unreachable(client.status());
    absl::Status asked = (*client)->GetStatus(kCallLimit).status();
    if (asked.ok()) {
      if (connected_before) {
        fprintf(stderr, "c4 verdicts: the master went away; following the one at %s\n",
                found->master.address.c_str());
      }
      connected_before = true;
      asked = (*client)->WatchVerdicts(show);
      give_up = absl::Now() + kReconnectPatience;
    }
    if (!MayComeBack(asked) || absl::Now() >= give_up) return Unreachable(asked);
    absl::SleepFor(absl::Milliseconds(300));
  }
}

int RunVerdicts(const Arguments& arguments) {
  MasterOptions master;
  Form form;
  bool watch = false;
  Options options("verdicts", kSummary);
  master.Declare(&options);
  options.Flag("--json", &form.json,
               "one JSON document {\"job\",\"verdicts\":[...]}; with --watch one object a line");
  options.Flag("--all", &form.all, "cleared verdicts too");
  options.Flag("-v,--verbose", &form.verbose, "every open verdict whole, with its evidence");
  DeclareLogDir(&options, &form.log_dir);
  options.Flag("--watch", &watch, "go on and print a line for each change");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  return watch ? Watch(master, form) : PrintOnce(master, form);
}

}  // namespace

constinit const Verb kVerdictsVerb = {"verdicts", kSummary, RunVerdicts};

}  // namespace c4::cli
