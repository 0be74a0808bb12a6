#include "c4d_master/smon/smon_grpc.h"

#include <algorithm>
#include <grpcpp/grpcpp.h>
#include <utility>

#include "c4/v1/smon.grpc.pb.h"
#include "c4d_master/grpc_service.h"
#include "service/text.h"
#include "service/unary_answers.h"

namespace c4::c4d {
namespace {

using Raw = v1::Smon::WithRawCallbackMethod_RunSession<v1::Smon::WithRawCallbackMethod_ListSessions<
    v1::Smon::WithRawCallbackMethod_GetSession<v1::Smon::Service>>>;

class SmonService final : public Raw {
 public:
  SmonService(Smon* smon, service::StateThread* state_thread, service::Gate gate, const service::Clock& clock)
      : smon_(smon), clock_(&clock), answers_(state_thread, std::move(gate)) {}

  grpc::ServerUnaryReactor* RunSession(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::RunSessionRequest, v1::RunSessionReply>(
        context, request, reply, "c4.v1.Smon/RunSession",
        [this](const v1::RunSessionRequest& asked, v1::RunSessionReply* answer) {
          absl::StatusOr<v1::ProfilingSession> session =
              smon_->Run(asked.steps(), asked.at_most_s(), Moment());
          if (!session.ok()) return session.status();
          *answer->mutable_session() = *std::move(session);
          return absl::OkStatus();
        },
        [](const v1::RunSessionRequest& asked) {
          return service::Concat("steps=", asked.steps(), " at_most_s=", asked.at_most_s());
        });
  }

  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::ListSessionsRequest, v1::ListSessionsReply>(
        context, request, reply, "c4.v1.Smon/ListSessions",
        [this](const v1::ListSessionsRequest& asked, v1::ListSessionsReply* answer) {
          *answer = smon_->List(std::min(asked.limit(), kMaxListed));
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* GetSession(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::GetSessionRequest, v1::GetSessionReply>(
        context, request, reply, "c4.v1.Smon/GetSession",
        [this](const v1::GetSessionRequest& asked, v1::GetSessionReply* answer) {
          absl::StatusOr<Smon::Found> found = smon_->Find(asked.number());
          if (!found.ok()) return found.status();
          *answer->mutable_session() = std::move(found->session);
          answer->set_report_json(*found->report);
          answer->set_report_text(*found->text);
          return absl::OkStatus();
        });
  }

 private:
  static constexpr uint32_t kMaxListed = 1000;  // a message holds 4 MiB

  Now Moment() const { return ReadClock(*clock_); }

  Smon* const smon_;
  const service::Clock* const clock_;
  const service::UnaryAnswers answers_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeSmonService(Smon* smon, service::StateThread* state_thread,
                                               const service::Gate& gate, const service::Clock& clock) {
  return std::make_unique<SmonService>(smon, state_thread, gate, clock);
}

}  // namespace c4::c4d
