#include "service/grpc_server.h"

#include <chrono>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include "service/address.h"
#include "service/grpc_log.h"
#include "service/log.h"
#include "service/peer_uid.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr int kMaxMessageBytes = 64 * 1024 * 1024;  // a batch of a large node is some MiB

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const std::string& address, const Gate& gate,
                                                              std::span<grpc::Service* const> services) {
  const absl::StatusOr<HostPort> parts = ParseHostPort(address);
  if (!parts.ok()) return parts.status();
  if (!gate.has_identity() && !IsLoopback(parts->host)) {
    return absl::FailedPreconditionError(Concat(
        "refusing to listen on ", address,
        ": without --key-file (c4 pki key) or TLS nobody from elsewhere could show who he is; give one "
        "of the two, or listen on 127.0.0.1"));
  }
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, gate.credentials().Server(), &port);
  // gRPC shares ports by default: two masters on one port would each get some of the agents.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Clients ping every 5 s also while idle; without these the server would call that abuse.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 5000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 3000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  for (grpc::Service* service : services) builder.RegisterService(service);
  const GrpcLogCapture capture;
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    const std::string reason = capture.Reason();
    return absl::UnavailableError(Concat("cannot listen on ", address,
                                         gate.credentials().has_tls() ? " with TLS: " : ": ",
                                         reason.empty() ? "gRPC gives no reason" : reason));
  }
  const auto bound = static_cast<uint16_t>(port);
  gate.ListensOn(JoinHostPort(parts->host, bound));
  if (!gate.has_identity()) {
    LogInfo("without --key-file and TLS only uid ", geteuid(), " and root of this machine are let in");
  }
  return std::unique_ptr<GrpcServer>(
      new GrpcServer(std::move(server), JoinHostPort(parts->host, bound), bound));
}

GrpcServer::GrpcServer(std::unique_ptr<grpc::Server> server, std::string address, uint16_t port)
    : server_(std::move(server)), address_(std::move(address)), port_(port) {}

GrpcServer::~GrpcServer() {
  Shutdown(absl::ZeroDuration());
}

void GrpcServer::Shutdown(absl::Duration deadline) {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(deadline));
  server_->Wait();
  server_.reset();
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

}  // namespace c4::service
