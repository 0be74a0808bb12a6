#include "c4d_master/alerts/alerts_grpc.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_join.h"
#include "c4/v1/alerts.grpc.pb.h"
#include "c4d_master/grpc_service.h"
#include "service/text.h"
#include "service/unary_answers.h"

namespace c4::c4d {
namespace {

using service::Concat;

// All methods take and give bytes: see bounded_parse.h.
using Raw = v1::Alerts::WithRawCallbackMethod_List<v1::Alerts::WithRawCallbackMethod_Acknowledge<
    v1::Alerts::WithRawCallbackMethod_AddSilence<v1::Alerts::WithRawCallbackMethod_EndSilence<
        v1::Alerts::WithRawCallbackMethod_Test<v1::Alerts::Service>>>>>;

class AlertsService final : public Raw {
 public:
  AlertsService(AlertCenter* center, service::StateThread* state_thread, const service::Gate& gate,
                const service::Clock& clock)
      : center_(center), clock_(&clock), answers_(state_thread, gate) {}

  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::ListAlertsRequest, v1::ListAlertsReply>(
        context, request, reply, "c4.v1.Alerts/List",
        [this](const v1::ListAlertsRequest& asked, v1::ListAlertsReply* answer) {
          *answer = center_->List(asked.include_resolved(), Moment());
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* Acknowledge(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::AcknowledgeAlertRequest, v1::AcknowledgeAlertReply>(
        context, request, reply, "c4.v1.Alerts/Acknowledge",
        [this](const v1::AcknowledgeAlertRequest& asked, v1::AcknowledgeAlertReply* answer) {
          return Take(center_->Acknowledge(asked, Moment()), answer);
        },
        [](const v1::AcknowledgeAlertRequest& asked) {
          return Concat("id=", asked.id(), asked.undo() ? " undo" : "");
        });
  }

  grpc::ServerUnaryReactor* AddSilence(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::AddSilenceRequest, v1::AddSilenceReply>(
        context, request, reply, "c4.v1.Alerts/AddSilence",
        [this](const v1::AddSilenceRequest& asked, v1::AddSilenceReply* answer) {
          return Take(center_->AddSilence(asked, Moment()), answer);
        },
        [](const v1::AddSilenceRequest& asked) {
          return Concat("match=", absl::StrJoin(asked.matchers(), " "), " seconds=", asked.seconds());
        });
  }

  grpc::ServerUnaryReactor* EndSilence(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::EndSilenceRequest, v1::EndSilenceReply>(
        context, request, reply, "c4.v1.Alerts/EndSilence",
        [this](const v1::EndSilenceRequest& asked, v1::EndSilenceReply* answer) {
          return Take(center_->EndSilence(asked.number(), Moment()), answer);
        },
        [](const v1::EndSilenceRequest& asked) { return Concat("number=", asked.number()); });
  }

  grpc::ServerUnaryReactor* Test(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* reply) override {
    return answers_.Answer<v1::TestAlertRequest, v1::TestAlertReply>(
        context, request, reply, "c4.v1.Alerts/Test",
        [this](const v1::TestAlertRequest& asked, v1::TestAlertReply* answer) {
          return Take(center_->Test(asked.target(), Moment()), answer);
        },
        [](const v1::TestAlertRequest& asked) { return Concat("target=", asked.target()); });
  }

 private:
  template <typename Reply>
  static absl::Status Take(absl::StatusOr<Reply> made, Reply* answer) {
    if (made.ok()) *answer = *std::move(made);
    return made.status();
  }

  Now Moment() const { return ReadClock(*clock_); }

  AlertCenter* const center_;
  const service::Clock* const clock_;
  const service::UnaryAnswers answers_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAlertsService(AlertCenter* center, service::StateThread* state_thread,
                                                 const service::Gate& gate, const service::Clock& clock) {
  return std::make_unique<AlertsService>(center, state_thread, gate, clock);
}

}  // namespace c4::c4d
