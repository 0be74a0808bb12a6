// c4 page: the operator's page, of the masters of a run directory.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/exit_codes.h"
#include "cli/launch/job_log.h"
#include "cli/options.h"
#include "cli/page/page_server.h"
#include "cli/verb.h"
#include "page/page_files.h"
#include "service/log.h"
#include "service/signals.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "serve the operator's page: all jobs of this machine in a browser";

int Serve(const PageOptions& set) {
  const absl::StatusOr<std::unique_ptr<PageServer>> page = PageServer::Start(set);
  if (!page.ok()) {
    fprintf(stderr, "c4 page: %s\n", std::string(page.status().message()).c_str());
    return absl::IsInvalidArgument(page.status()) ? kExitUsage : kExitFailed;
  }
  if (page::PageFiles().empty()) {
    fprintf(stderr, "c4 page: this c4 was built without the page, only its API is served (docs/page.md)\n");
  }
  printf("the page is at %s until this is interrupted\n", (*page)->url().c_str());
  fflush(stdout);
  service::WaitForSignal();
  return kExitOk;
}

int RunPage(const Arguments& arguments) {
  PageOptions set;
  Options options("page", kSummary);
  options.Text("--listen", &set.listen, "HOST:PORT", "where browsers find it; port 0: any that is free");
  options.Text("--names", &set.names, "NAMES",
               "by commas: under which it may be asked for besides numeric addresses and this host's name");
  options.Text("--run-dir", &set.run_dir, "DIR",
               "where masters are looked up, in DIR/masters; default: C4_RUN_DIR, else /dev/shm/c4");
  options.List("--recording", &set.recordings, "FILE",
               "show this recording (c4 record) in the place of masters");
  DeclareLogDir(&options, &set.log_dir);
  options.Group("who asks the masters, and who may look");
  DeclareSecurity(&set.security, &options);
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (set.log_dir.empty()) set.log_dir = DefaultLogDir();
  service::BlockSignals();
  return Serve(set);
}

}  // namespace

constinit const Verb kPageVerb = {"page", kSummary, RunPage};

}  // namespace c4::cli
