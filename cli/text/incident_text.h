// One page about one verdict, for whoever is called at night: what it says, what the hardware of its hosts
// said around its onset, what most likely caused it, which paths its connections take, what to do. 80
// columns.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "c4/v1/c4d.pb.h"
#include "c4/v1/c4p.pb.h"

namespace c4::cli {

// The verdict of that id, or whose id ends in it ("3" of "abcdef01-3"); without one the newest confirmed one,
// else the newest. NotFound: there is none, or more than one.
absl::StatusOr<const v1::Verdict*> FindVerdict(const v1::ListVerdictsReply& reply, const std::string& id);

// One queue pair of the verdict, and the links that it takes.
struct IncidentPath {
  int from_rank = -1;
  int to_rank = -1;
  uint32_t index = 0;
  std::vector<std::string> links;
};
// Of the verdict's connections, as C4P knows them.
std::vector<IncidentPath> PathsOf(const v1::Verdict& verdict, const v1::ListPathsReply& paths);

std::string IncidentText(const v1::Verdict& verdict, const std::vector<IncidentPath>& paths,
                         int64_t now_unix_ns);
// {"verdict","likely_cause":{"class","text","sign"},"hosts","paths"} (docs/cli.md).
std::string IncidentJson(const v1::Verdict& verdict, const std::vector<IncidentPath>& paths);

}  // namespace c4::cli
