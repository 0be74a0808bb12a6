// What verbs that have verbs of their own share, where these ask the job's master. One thread.
#pragma once

#include <string>

#include "cli/clients/master_client.h"
#include "cli/verb.h"

namespace c4::cli {

// The word in front, taken out; empty where there is none.
std::string TakeVerb(Arguments* arguments);

// The master was asked and said no, or could not be asked: prints why, gives the exit code.
int ComplainOf(const std::string& verb, const absl::Status& status);

// How long a master that is being started again is waited for.
inline constexpr absl::Duration kMasterPatience = absl::Seconds(3);

// Asks the job's master; a reply, or what to tell the user.
template <typename Reply, typename Call>
absl::StatusOr<Reply> AskOnce(const MasterOptions& master, const Call& call) {
  // Whether there is a master at all is another question than whether it has what is asked for.
  if (const absl::StatusOr<FoundMaster> found = FindMaster(master); !found.ok()) {
    return absl::UnavailableError(found.status().message());
  }
  absl::StatusOr<Reply> reply = absl::UnknownError("");
  absl::Status asked = AskMaster(master, kMasterPatience, [&](const MasterClient& client) {
    reply = call(client);
    return reply.status();
  });
  if (!asked.ok()) return asked;
  return reply;
}

}  // namespace c4::cli
