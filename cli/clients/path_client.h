// How the command line reaches the cluster's path master: found through the masters' directory, asked by
// gRPC. One thread; errors are sentences for the user that say what to do.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "c4/v1/c4p.pb.h"
#include "cli/options.h"
#include "service/config.h"
#include "service/status.h"

namespace c4::cli {

struct PathMasterOptions {
  std::string address;   // host:port; empty: by the directory
  std::string base_dir;  // empty: C4_RUN_DIR, else /dev/shm/c4
  service::SecurityOptions security;

  // --path-master, --run-dir, and those of DeclareSecurity (master_client.h)
  void Declare(Options* options);
};

class PathClient {
 public:
  // Looks it up; NotFound says how to start one. Connects on the first call.
  static absl::StatusOr<std::unique_ptr<PathClient>> Open(const PathMasterOptions& options);
  ~PathClient();
  PathClient(const PathClient&) = delete;
  PathClient& operator=(const PathClient&) = delete;

  absl::StatusOr<v1::ListPathsReply> ListPaths(const v1::ListPathsRequest& request) const;
  absl::StatusOr<v1::GetTopologyReply> GetTopology() const;
  absl::StatusOr<v1::ExplainReply> Explain(const std::string& connection) const;
  absl::StatusOr<v1::DrainPathsReply> DrainPaths(const v1::DrainPathsRequest& request) const;
  absl::StatusOr<v1::ListPathHistoryReply> ListPathHistory(const v1::ListPathHistoryRequest& request) const;

 private:
  struct Parts;
  explicit PathClient(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace c4::cli
