#include "c4d_master/intervention/grpc_mover.h"

#include <chrono>
#include <grpcpp/grpcpp.h>
#include <pthread.h>
#include <utility>

#include "c4/v1/c4p.grpc.pb.h"
#include "c4d_master/tuple_text.h"
#include "service/channel.h"
#include "service/grpc_server.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

MoveAnswer::Moved MovedOf(const v1::PathMoved& said) {
  MoveAnswer::Moved moved;
  moved.moved = said.moved();
  moved.why = said.why();
  moved.number = said.number();
  if (said.moved()) moved.local = SourceText(said.tuple());
  moved.links.assign(said.links().begin(), said.links().end());
  return moved;
}

MoveAnswer NoAnswer(std::string why) {
  MoveAnswer answer;
  answer.kind = MoveAnswer::Kind::kNoAnswer;
  answer.why = std::move(why);
  return answer;
}

// Refused by who asks, or by what is asked: C4P has done nothing.
bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status) ||
         absl::IsUnauthenticated(status) || absl::IsUnimplemented(status) || absl::IsNotFound(status);
}

MoveAnswer Failed(const absl::Status& status) {
  MoveAnswer answer = NoAnswer(std::string(status.message()));
  if (IsRefusal(status)) answer.kind = MoveAnswer::Kind::kRefused;
  return answer;
}

}  // namespace

struct GrpcMover::Connection {
  service::MasterAddress master;
  std::unique_ptr<v1::C4p::Stub> stub;
};

GrpcMover::GrpcMover(Options options) : options_(std::move(options)), thread_([this] { Run(); }) {}

GrpcMover::~GrpcMover() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (call_ != nullptr) call_->TryCancel();
  }
  wake_.notify_all();
  thread_.join();
}

void GrpcMover::Send(const MoveOrder& order) {
  {
    const std::lock_guard lock(mutex_);
    order_ = order;
    answer_.reset();
  }
  wake_.notify_all();
}

std::optional<MoveAnswer> GrpcMover::Take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(answer_, std::nullopt);
}

template <typename Call>
absl::Status GrpcMover::InTime(Connection* connection, const Call& call) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(options_.call_limit_ms));
  options_.credentials.AddToken(&context, connection->master);
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return absl::CancelledError("this master ends");
    call_ = &context;
  }
  const grpc::Status status = call(&context);
  const std::lock_guard lock(mutex_);
  call_ = nullptr;
  return service::FromGrpcStatus(status);
}

MoveAnswer GrpcMover::Ask(const MoveOrder& order, Connection* connection) {
  MoveAnswer answer;
  answer.kind = MoveAnswer::Kind::kDone;
  if (order.kind == MoveOrder::Kind::kEnd) {
    v1::EndMovesRequest request;
    request.set_job(options_.job);
    request.set_experiment(order.experiment);
    for (const uint64_t number : order.keep) request.add_keep(number);
    v1::EndMovesReply reply;
    const absl::Status status = InTime(connection, [&](grpc::ClientContext* context) {
      return connection->stub->EndMoves(context, request, &reply);
    });
    if (!status.ok()) return Failed(status);
    for (const v1::PathMoved& moved : reply.moves()) answer.moves.push_back(MovedOf(moved));
    return answer;
  }
  v1::MovePathsRequest request;
  request.set_job(options_.job);
  request.set_experiment(order.experiment);
  request.set_why(order.why);
  request.set_hold_ns(order.hold_ns);
  for (const WantedMove& wanted : order.moves) {
    v1::PathMove* const move = request.add_moves();
    if (!FillTuple(wanted.flow.local, wanted.flow.remote, move->mutable_tuple())) {
      MoveAnswer none = NoAnswer(service::Concat(wanted.flow.local, " is no address with a port"));
      none.kind = MoveAnswer::Kind::kRefused;
      return none;
    }
    for (const std::string& cable : wanted.avoid) move->add_avoid(cable);
    move->set_through(wanted.through);
    move->set_other_plane(wanted.other_nic);
    move->set_optional(wanted.optional);
  }
  v1::MovePathsReply reply;
  const absl::Status status = InTime(connection, [&](grpc::ClientContext* context) {
    return connection->stub->MovePaths(context, request, &reply);
  });
  if (!status.ok()) return Failed(status);
  if (!reply.refused().empty()) {
    answer.kind = MoveAnswer::Kind::kRefused;
    answer.why = reply.refused();
    return answer;
  }
  for (const v1::PathMoved& moved : reply.moves()) answer.moves.push_back(MovedOf(moved));
  return answer;
}

void GrpcMover::Run() {
  pthread_setname_np(pthread_self(), "c4d-moves");
  Connection connection;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || order_.has_value(); });
    if (stopping_) return;
    const MoveOrder order = *std::exchange(order_, std::nullopt);
    lock.unlock();
    MoveAnswer answer;
    const absl::StatusOr<service::MasterAddress> master = options_.address();
    if (!master.ok()) {
      answer = NoAnswer(std::string(master.status().message()));
      // Nobody was asked, so nothing was done.
      if (order.kind == MoveOrder::Kind::kMove) answer.kind = MoveAnswer::Kind::kRefused;
    } else {
      if (connection.stub == nullptr || connection.master.address != master->address) {
        connection.stub = v1::C4p::NewStub(
            service::MakeChannel(master->address, options_.credentials, service::Role::kPathMaster));
      }
      connection.master = *master;
      answer = Ask(order, &connection);
    }
    lock.lock();
    // Of an order that was given meanwhile the answer is still to come.
    if (!order_) answer_ = std::move(answer);
  }
}

}  // namespace c4::c4d
