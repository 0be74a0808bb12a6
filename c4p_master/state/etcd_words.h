// What a path master and etcd say to each other over etcd's JSON gateway (its API, version 3): pure text,
// both ways. Keys and values go as base64.
//
// Below the prefix stand "leader" (the lease: leadership.h), "epoch" (of the newest leader: every other write
// is made only while it is the writer's) and "state/..." (the records).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "c4p_master/state/leadership.h"
#include "c4p_master/state/state_store.h"

namespace c4::c4p {

struct EtcdPlace {
  std::vector<std::string> endpoints;  // "http://host:port" or "https://host:port"
  std::string prefix = "c4p/";         // of all keys; ends in '/'
  std::string ca_file = {};            // PEM, of https; empty: the system's authorities
  std::string user = {};               // empty: etcd knows no users
  std::string password = {};
};
// "etcd[s]://host:port[,host:port...][/prefix]"; with the s: by TLS. InvalidArgument with what to give
// instead.
absl::StatusOr<EtcdPlace> ParseEtcdPlace(const std::string& text);

// Requests.
std::string EtcdReadLease(const std::string& prefix);
std::string EtcdWriteLease(const std::string& prefix, const Leadership::Step& step);
std::string EtcdWrite(const std::string& prefix, uint64_t epoch, const std::vector<StateChange>& changes);
std::string EtcdLogIn(const EtcdPlace& place);
// Lets etcd forget what its keys held before that revision.
std::string EtcdCompact(int64_t revision);
// Records from that key on (as the last page said; empty: from the first), so many at most.
std::string EtcdList(const std::string& prefix, const std::string& from, size_t most);

// Answers. DataLoss, FailedPrecondition: it is no answer of etcd's.
absl::StatusOr<LeaseSeen> ReadEtcdLease(const std::string& answer);
struct EtcdWritten {
  bool written = false;
  int64_t revision = 0;
};
absl::StatusOr<EtcdWritten> ReadEtcdWritten(const std::string& answer);
struct EtcdPage {
  std::vector<std::pair<std::string, std::string>> records;
  std::string next;  // where the next page begins; empty: that was all
};
absl::StatusOr<EtcdPage> ReadEtcdPage(const std::string& prefix, const std::string& answer);
absl::StatusOr<std::string> ReadEtcdToken(const std::string& answer);
// At a glance, whatever the length.
bool LooksLikeEtcd(const std::string& answer);
// What went wrong, with what to do. ResourceExhausted: etcd is full. Unauthenticated: log in (again).
// PermissionDenied: it refuses the user. NotFound: it knows no users. OutOfRange: that has been compacted.
// FailedPrecondition: it is no etcd. Unavailable: it cannot at present.
absl::Status ExplainEtcdError(const EtcdPlace& place, const std::string& endpoint, int http_status,
                              const std::string& body);

}  // namespace c4::c4p
