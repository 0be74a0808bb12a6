// c4 version: the release, the commit, and the version of every format in which this C4 talks to another.
#include <array>
#include <cstdio>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "c4d_master/policy.h"
#include "c4d_master/recording_format.h"
#include "ccl/bootstrap/protocol.h"
#include "ccl/transport/hello.h"
#include "ccl/transport/shm/ring.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/verb.h"
#include "commit.h"
#include "service/version.h"
#include "wire/control.h"
#include "wire/segment.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "show release, commit, and versions of the formats";

struct Format {
  const char* name;  // of its page in docs/formats
  std::string version;
  const char* between;
};

std::array<Format, 7> Formats() {
  const auto pair = [](int major, int minor) { return absl::StrCat(major, ".", minor); };
  return {{
      {"segment", pair(wire::kSegmentMajor, wire::kSegmentMinor), "library to agent, shared memory"},
      {"control", pair(wire::kControlMajor, wire::kControlMinor), "library and agent, socket"},
      {"bootstrap", pair(bootstrap::kMajor, bootstrap::kMinor), "ranks, when a communicator is made"},
      {"tcp", pair(kHelloMajor, kHelloMinor), "ranks, between machines"},
      {"shm", pair(shm::kMajor, shm::kMinor), "ranks of one machine"},
      {"proto", "c4.v1", "agents, masters and commands, gRPC"},
      {"recording", absl::StrCat(static_cast<int>(c4d::kRecordingVersion)), "c4 record and c4 replay"},
  }};
}

int RunVersion(const Arguments& arguments) {
  bool json = false;
  Options options("version", kSummary);
  options.Flag("--json", &json, "one JSON document {\"version\",\"commit\",\"policy\",\"formats\":{...}}");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  const std::string version(service::Version());
  const std::string policy = c4d::PolicyVersion(c4d::Policy());
  if (json) {
    nlohmann::ordered_json document = {{"version", version}, {"commit", C4_COMMIT}, {"policy", policy}};
    for (const Format& format : Formats()) document["formats"][format.name] = format.version;
    printf("%s\n", document.dump(2).c_str());
    return kExitOk;
  }
  printf("c4 %s, commit %s, policy %s\n\n", version.c_str(), C4_COMMIT, policy.c_str());
  for (const Format& format : Formats()) {
    printf("  %-10s %-6s %s\n", format.name, format.version.c_str(), format.between);
  }
  return kExitOk;
}

}  // namespace

constinit const Verb kVersionVerb = {"version", kSummary, RunVersion};

}  // namespace c4::cli
