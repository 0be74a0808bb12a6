// c4 topology: leaves, spines, links and NICs as the path master knows them, and what probing has seen.
#include <cstdio>

#include "absl/time/clock.h"
#include "cli/clients/path_client.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/text/path_text.h"
#include "cli/verb.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "show the network as the path master knows it";
constexpr absl::Duration kWatchInterval = absl::Seconds(1);

int RunTopology(const Arguments& arguments) {
  PathMasterOptions master;
  bool json = false;
  bool watch = false;
  Options options("topology", kSummary);
  master.Declare(&options);
  options.Flag("--json", &json, "one JSON document (docs/paths.md)");
  options.Flag("--watch", &watch, "show it again every second, until interrupted");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  for (;;) {
    absl::StatusOr<std::unique_ptr<PathClient>> client = PathClient::Open(master);
    const absl::StatusOr<v1::GetTopologyReply> reply =
        client.ok() ? (*client)->GetTopology() : absl::StatusOr<v1::GetTopologyReply>(client.status());
    if (!reply.ok()) {
      fprintf(stderr, "c4 topology: %s\n", std::string(reply.status().message()).c_str());
      return kExitUnreachable;
    }
    const std::string text = json ? TopologyReplyJson(*reply) + "\n" : TopologyText(*reply);
    if (watch && !json) fputs("\033[H\033[2J", stdout);
    fputs(text.c_str(), stdout);
    fflush(stdout);
    if (!watch) return kExitOk;
    absl::SleepFor(kWatchInterval);
  }
}

}  // namespace

constinit const Verb kTopologyVerb = {"topology", kSummary, RunTopology};

}  // namespace c4::cli
