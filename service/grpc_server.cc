#include "service/grpc_server.h"

#include <chrono>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include "service/address.h"
#include "service/grpc_log.h"
#include "service/ingress.h"
#include "service/limits.h"
#include "service/log.h"
#include "service/peer_uid.h"
#include "service/printable.h"
#include "service/text.h"

namespace c4::service {
namespace {

using ExternalType = grpc::ServerBuilder::experimental_type::ExternalConnectionType;

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
  absl::StatusOr<std::unique_ptr<Ingress>> ingress = Ingress::Open(parts->host, parts->port);
  if (!ingress.ok()) {
    return absl::UnavailableError(Concat("cannot listen on ", address, ": ", ingress.status().message()));
  }
  std::unique_ptr<TlsServer> tls;
  if (gate.credentials().has_tls()) {
    absl::StatusOr<std::unique_ptr<TlsServer>> opened = TlsServer::Open(gate.credentials().tls_files());
    if (!opened.ok()) return Annotate(opened.status(), Concat("cannot listen on ", address, " with TLS"));
    tls = *std::move(opened);
  }
  grpc::ServerBuilder builder;
  // What the door hands over is in clear already.
  auto acceptor = builder.experimental().AddExternalConnectionAcceptor(ExternalType::FROM_FD,
                                                                       grpc::InsecureServerCredentials());
  // Calls and buffers are charged to it: under pressure the library lets idle connections and streams go.
  grpc::ResourceQuota quota("c4");
  quota.Resize(limits::kGrpcMemoryBytes).SetMaxThreads(limits::kGrpcThreads);
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits::kGrpcStreams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, limits::kGrpcHeaderBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, limits::kGrpcIdleMs);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(limits::kGrpcHandshakeMs));
  // Clients ping every 5 s also while idle; without these the server would call that abuse.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 5000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 3000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.SetMaxReceiveMessageSize(limits::kGrpcMessageBytes);
  builder.SetMaxSendMessageSize(limits::kGrpcReplyBytes);
  for (grpc::Service* service : services) builder.RegisterService(service);
  const GrpcLogCapture capture;
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    const std::string reason = capture.Reason();
    return absl::UnavailableError(
        Concat("cannot listen on ", address, ": ", reason.empty() ? "gRPC gives no reason" : reason));
  }
  const std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> shared = std::move(acceptor);
  const absl::Status started = (*ingress)->Start(std::move(tls), [shared](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    shared->HandleNewConnection(&connection);
  });
  if (!started.ok()) return started;
  gate.CertificatesFrom((*ingress)->certificates());
  const std::string bound = JoinHostPort(parts->host, (*ingress)->port());
  gate.ListensOn(bound);
  if (!gate.has_identity()) {
    LogInfo("without --key-file and TLS only uid ", geteuid(), " and root of this machine are let in");
  }
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(server), *std::move(ingress), bound));
}

GrpcServer::GrpcServer(std::unique_ptr<grpc::Server> server, std::unique_ptr<Ingress> ingress,
                       std::string address)
    : server_(std::move(server)),
      address_(std::move(address)),
      port_(ingress->port()),
      ingress_(std::move(ingress)) {}

GrpcServer::~GrpcServer() {
  Shutdown(absl::ZeroDuration());
}

void GrpcServer::Shutdown(absl::Duration deadline) {
  if (server_ == nullptr) return;
  ingress_->Close();
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(deadline));
  server_->Wait();
  ingress_->Stop();
  server_.reset();
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // A peer's words: they end in a log or on a terminal.
  return {static_cast<absl::StatusCode>(status.error_code()), Printable(status.error_message())};
}

}  // namespace c4::service
