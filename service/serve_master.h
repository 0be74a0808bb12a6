// What every master does around its handler: it listens, publishes itself, serves until somebody asks for the
// end, and withdraws. The main thread's.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "service/config.h"
#include "service/credentials.h"
#include "service/gate.h"
#include "service/http_server.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace c4::service {

// Everything in it outlives the call.
struct MasterServing {
  std::string job;  // whose master it is; kPathMasterName for the path master
  uint64_t epoch = 0;
  std::string listen;  // HOST:PORT of gRPC
  std::string directory;
  const CommonOptions& common;
  const Credentials& credentials;
  const Gate& gate;
  std::span<grpc::Service* const> services;
  HttpServer* http;  // with its routes, not started
};

// Makes the directory above that of the masters, where it is missing; warns where somebody else owns it.
absl::Status PrepareMasters(const std::string& directory);

// Returns when a signal asks for the end or a later master has taken the place, the servers being shut down;
// fails when it cannot listen or publish itself.
absl::Status ServeMaster(const MasterServing& serving);

// The exit status of a program whose Run gave `status`, which is logged.
int ExitStatus(const absl::Status& status);

}  // namespace c4::service
