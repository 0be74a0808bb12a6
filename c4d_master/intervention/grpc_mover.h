// Moves by C4P (C4p.MovePaths, C4p.EndMoves), on a thread of its own: nobody waits for the network. C4P is
// looked up before every order; where there is none, or it does not answer in time, the answer says so.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "c4d_master/intervention/mover.h"
#include "service/credentials.h"
#include "service/status.h"

namespace grpc {
class ClientContext;
}  // namespace grpc

namespace c4::c4d {

class GrpcMover final : public Mover {
 public:
  struct Options {
    std::string job;
    std::function<absl::StatusOr<service::MasterAddress>()> address;  // NotFound while there is none
    service::Credentials credentials;
    int64_t call_limit_ms = 4'000;
  };
  explicit GrpcMover(Options options);
  ~GrpcMover() override;
  GrpcMover(const GrpcMover&) = delete;
  GrpcMover& operator=(const GrpcMover&) = delete;

  void Send(const MoveOrder& order) override;
  std::optional<MoveAnswer> Take() override;

 private:
  struct Connection;

  void Run();
  MoveAnswer Ask(const MoveOrder& order, Connection* connection);
  template <typename Call>
  absl::Status InTime(Connection* connection, const Call& call);

  const Options options_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<MoveOrder> order_;
  std::optional<MoveAnswer> answer_;
  grpc::ClientContext* call_ = nullptr;  // under way
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace c4::c4d
