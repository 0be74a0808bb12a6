// c4 page: the operator's page, of the masters of a run directory.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/clients/master_client.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/page/live_fleet.h"
#include "cli/page/recording_fleet.h"
#include "cli/verb.h"
#include "page/page_api.h"
#include "page/page_files.h"
#include "service/address.h"
#include "service/clock.h"
#include "service/credentials.h"
#include "service/gate.h"
#include "service/http_server.h"
#include "service/log.h"
#include "service/signals.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "serve the operator's page: all jobs of this machine in a browser";

struct PageOptions {
  std::string listen = "127.0.0.1:15180";
  std::string names;
  std::string run_dir;
  std::string log_dir;
  std::vector<std::string> recordings;
  service::SecurityOptions security;
};

bool IsLoopback(const std::string& address) {
  const absl::StatusOr<service::HostPort> parts = service::ParseHostPort(address);
  return parts.ok() &&
         (parts->host.starts_with("127.") || parts->host == "::1" || parts->host == "localhost");
}

absl::StatusOr<std::unique_ptr<page::FleetSource>> SourceOf(const PageOptions& set) {
  if (set.recordings.empty()) {
    return std::make_unique<LiveFleet>(LiveFleet::Options{
        .master = {.job = {}, .address = {}, .base_dir = set.run_dir, .security = set.security},
        .log_dir = set.log_dir});
  }
  absl::StatusOr<std::unique_ptr<RecordingFleet>> fleet = RecordingFleet::Open(set.recordings);
  if (!fleet.ok()) return fleet.status();
  return std::unique_ptr<page::FleetSource>(*std::move(fleet));
}

int Serve(const PageOptions& set) {
  // HTTP without TLS: what callers can show is a token, and what they can be is this machine's own user.
  service::SecurityOptions callers = set.security;
  callers.tls = {};
  const absl::StatusOr<service::Credentials> credentials =
      service::Credentials::Load(callers, service::OwnOperator());
  if (!credentials.ok()) {
    fprintf(stderr, "c4 page: %s\n", std::string(credentials.status().message()).c_str());
    return kExitUsage;
  }
  if (!IsLoopback(set.listen) && !credentials->has_key()) {
    return UsageError("page",
                      absl::StrCat("to be reached from other machines at ", set.listen,
                                   " it needs a key to check their tokens with: --key-file (c4 pki "
                                   "key), and better a proxy with TLS in front of a loopback address"));
  }
  const service::Gate gate(*credentials);
  const absl::StatusOr<std::unique_ptr<page::FleetSource>> source = SourceOf(set);
  if (!source.ok()) {
    fprintf(stderr, "c4 page: %s\n", std::string(source.status().message()).c_str());
    return kExitUsage;
  }
  page::PageApi api(source->get(), &service::SystemClock(), &page::PageFiles());
  service::HttpServer server([] { return absl::OkStatus(); }, [] { return std::string(); });
  api.AddRoutes(&server);
  if (const absl::Status started = server.Start(set.listen, gate, set.names); !started.ok()) {
    fprintf(stderr, "c4 page: %s\n", std::string(started.message()).c_str());
    return kExitFailed;
  }
  api.Start();
  if (page::PageFiles().empty()) {
    fprintf(stderr, "c4 page: this c4 was built without the page, only its API is served (docs/page.md)\n");
  }
  printf("the page is at http://%s/ until this is interrupted\n", server.address().c_str());
  fflush(stdout);
  service::WaitForSignal();
  server.Stop();
  api.Stop();
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
