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

class SmonService final : public v1::Smon::CallbackService {
 public:
  SmonService(Smon* smon, service::StateThread* state_thread, service::Gate gate, const service::Clock& clock)
      : smon_(smon), clock_(&clock), answers_(state_thread, std::move(gate)) {}

  grpc::ServerUnaryReactor* RunSession(grpc::CallbackServerContext* context,
                                       const v1::RunSessionRequest* request,
                                       v1::RunSessionReply* reply) override {
    const std::string detail =
        service::Concat("steps=", request->steps(), " at_most_s=", request->at_most_s());
    return answers_.Answer(context, "c4.v1.Smon/RunSession", detail, [this, request, reply] {
      absl::StatusOr<v1::ProfilingSession> session =
          smon_->Run(request->steps(), request->at_most_s(), Moment());
      if (!session.ok()) return session.status();
      *reply->mutable_session() = *std::move(session);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const v1::ListSessionsRequest* request,
                                         v1::ListSessionsReply* reply) override {
    return answers_.Answer(context, "c4.v1.Smon/ListSessions", "", [this, request, reply] {
      *reply = smon_->List(std::min(request->limit(), kMaxListed));
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* GetSession(grpc::CallbackServerContext* context,
                                       const v1::GetSessionRequest* request,
                                       v1::GetSessionReply* reply) override {
    return answers_.Answer(context, "c4.v1.Smon/GetSession", "", [this, request, reply] {
      absl::StatusOr<Smon::Found> found = smon_->Find(request->number());
      if (!found.ok()) return found.status();
      *reply->mutable_session() = std::move(found->session);
      reply->set_report_json(*found->report);
      reply->set_report_text(*found->text);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListAlerts(grpc::CallbackServerContext* context, const v1::ListAlertsRequest*,
                                       v1::ListAlertsReply* reply) override {
    return answers_.Answer(context, "c4.v1.Smon/ListAlerts", "", [this, reply] {
      *reply = smon_->ListAlerts();
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* SilenceAlert(grpc::CallbackServerContext* context,
                                         const v1::SilenceAlertRequest* request,
                                         v1::SilenceAlertReply* reply) override {
    const std::string detail = service::Concat("rule=", request->rule(), " seconds=", request->seconds());
    return answers_.Answer(context, "c4.v1.Smon/SilenceAlert", detail, [this, request, reply] {
      absl::StatusOr<v1::Alert> alert = smon_->Silence(request->rule(), request->seconds(), Moment());
      if (!alert.ok()) return alert.status();
      *reply->mutable_alert() = *std::move(alert);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* TestAlert(grpc::CallbackServerContext* context,
                                      const v1::TestAlertRequest* request,
                                      v1::TestAlertReply* reply) override {
    const std::string detail = service::Concat("rule=", request->rule());
    return answers_.Answer(context, "c4.v1.Smon/TestAlert", detail, [this, request, reply] {
      const absl::StatusOr<uint64_t> delivery = smon_->Test(request->rule(), Moment());
      if (delivery.ok()) reply->set_delivery(*delivery);
      return delivery.status();
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
