// A gRPC server from a daemon's options. The services belong to the caller and must outlive the server;
// they run on gRPC's own threads, and ask the gate before anything else (gate.h). Without key and TLS it
// listens on loopback only. Connections come through an Ingress, within the limits of service/limits.h. A
// port that somebody else has is an error (no port sharing). Pings of clients every 5 s are allowed, and dead
// clients are found by the same keepalive. Start and Shutdown by one thread.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/time/time.h"
#include "service/gate.h"
#include "service/status.h"

namespace grpc {
class Server;
class Service;
class Status;
}  // namespace grpc

namespace c4::service {

class Ingress;

class GrpcServer {
 public:
  // `address` is host:port; port 0: any.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const std::string& address, const Gate& gate,
                                                           std::span<grpc::Service* const> services);
  ~GrpcServer();  // as Shutdown with no time to spare
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  uint16_t port() const { return port_; }
  const std::string& address() const { return address_; }  // host as given, port as bound

  // Takes no new calls; calls under way that are not over by then are cancelled. Returns when all are.
  void Shutdown(absl::Duration deadline);

 private:
  GrpcServer(std::unique_ptr<grpc::Server> server, std::unique_ptr<Ingress> ingress, std::string address);
  std::unique_ptr<grpc::Server> server_;
  const std::string address_;
  const uint16_t port_;
  // After the server in life: it hands connections to it until it is stopped.
  std::unique_ptr<Ingress> ingress_;
};

// Between the two libraries' status types; codes are the same.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace c4::service
