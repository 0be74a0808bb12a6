#include "service/serve_master.h"

#include <filesystem>
#include <memory>
#include <unistd.h>

#include "absl/time/time.h"
#include "service/address.h"
#include "service/directory.h"
#include "service/grpc_server.h"
#include "service/log.h"
#include "service/publish.h"
#include "service/run_dir.h"
#include "service/status.h"

namespace c4::service {
namespace {

constexpr absl::Duration kShutdownTime = absl::Seconds(1);

}  // namespace

absl::Status PrepareMasters(const std::string& directory) {
  const std::string base = std::filesystem::path(directory).parent_path().string();
  if (base.empty()) return absl::OkStatus();
  C4_RETURN_IF_NOT_OK(EnsureSharedDirectory(base));
  if (const std::string warning = ForeignOwner(base); !warning.empty()) LogWarning(warning);
  return absl::OkStatus();
}

absl::Status ServeMaster(const MasterServing& serving) {
  const absl::StatusOr<std::unique_ptr<GrpcServer>> grpc =
      GrpcServer::Start(serving.listen, serving.gate, serving.services);
  if (!grpc.ok()) return grpc.status();
  C4_RETURN_IF_NOT_OK(
      serving.http->Start(serving.common.http_address, serving.gate, serving.common.http_names));
  const MasterDirectory directory(serving.directory);
  const MasterEntry entry{.job = serving.job,
                          .address = ReachableAddress((*grpc)->address()),
                          .http_address = ReachableAddress(serving.http->address()),
                          .epoch = serving.epoch,
                          .pid = getpid(),
                          .host = HostName(),
                          .key_file = serving.credentials.key_file(),
                          .key_id = serving.credentials.key_id()};
  C4_RETURN_IF_NOT_OK(directory.Publish(entry));
  LogInfo("serving ", serving.job == kPathMasterName ? "paths" : Concat("job ", serving.job), ": gRPC on ",
          entry.address, ", HTTP on ", entry.http_address, ", published in ", serving.directory);

  ServePublished(directory, entry);

  if (const absl::Status status = directory.Remove(entry.job, entry.epoch); !status.ok()) {
    LogWarning(status.message());
  }
  serving.http->Stop();
  (*grpc)->Shutdown(kShutdownTime);
  return absl::OkStatus();
}

int ExitStatus(const absl::Status& status) {
  if (status.ok()) {
    LogInfo("ended in order");
  } else {
    LogError(status.message());
  }
  FlushLog();
  return status.ok() ? 0 : 1;
}

}  // namespace c4::service
