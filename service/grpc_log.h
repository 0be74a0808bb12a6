// Takes gRPC's own log lines and protobuf's into the daemons' log, at level debug: what matters of them
// reaches us as a status as well, gRPC repeats itself at every retry, and protobuf says a line for every text
// of a peer that is no UTF-8. Any thread.
#pragma once

#include <string>

namespace c4::service {

// From now on, once a process.
void RouteGrpcLog();

// Collects what gRPC says on this thread while it lives, for calls that give no reason themselves.
class GrpcLogCapture {
 public:
  GrpcLogCapture();
  ~GrpcLogCapture();
  GrpcLogCapture(const GrpcLogCapture&) = delete;
  GrpcLogCapture& operator=(const GrpcLogCapture&) = delete;

  // The operating system's reason if there was one ("Address already in use"), else gRPC's first line.
  std::string Reason() const;
};

}  // namespace c4::service
