#include "c4d_master/smon/smon_grpc.h"

#include <algorithm>
#include <functional>
#include <grpcpp/grpcpp.h>
#include <utility>

#include "c4/v1/smon.grpc.pb.h"
#include "c4d_master/grpc_service.h"
#include "service/grpc_server.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::ToGrpcStatus;

class SmonService final : public v1::Smon::CallbackService {
 public:
  SmonService(Smon* smon, service::StateThread* state_thread, service::Gate gate, const service::Clock& clock)
      : smon_(smon), state_thread_(state_thread), gate_(std::move(gate)), clock_(&clock) {}

  grpc::ServerUnaryReactor* RunSession(grpc::CallbackServerContext* context,
                                       const v1::RunSessionRequest* request,
                                       v1::RunSessionReply* reply) override {
    const std::string detail =
        service::Concat("steps=", request->steps(), " at_most_s=", request->at_most_s());
    return Answer(context, "c4.v1.Smon/RunSession", detail, [this, request, reply] {
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
    return Answer(context, "c4.v1.Smon/ListSessions", "", [this, request, reply] {
      *reply = smon_->List(std::min(request->limit(), kMaxListed));
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* GetSession(grpc::CallbackServerContext* context,
                                       const v1::GetSessionRequest* request,
                                       v1::GetSessionReply* reply) override {
    return Answer(context, "c4.v1.Smon/GetSession", "", [this, request, reply] {
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
    return Answer(context, "c4.v1.Smon/ListAlerts", "", [this, reply] {
      *reply = smon_->ListAlerts();
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* SilenceAlert(grpc::CallbackServerContext* context,
                                         const v1::SilenceAlertRequest* request,
                                         v1::SilenceAlertReply* reply) override {
    const std::string detail = service::Concat("rule=", request->rule(), " seconds=", request->seconds());
    return Answer(context, "c4.v1.Smon/SilenceAlert", detail, [this, request, reply] {
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
    return Answer(context, "c4.v1.Smon/TestAlert", detail, [this, request, reply] {
      const absl::StatusOr<uint64_t> delivery = smon_->Test(request->rule(), Moment());
      if (delivery.ok()) reply->set_delivery(*delivery);
      return delivery.status();
    });
  }

 private:
  static constexpr uint32_t kMaxListed = 1000;  // a message holds 4 MiB

  Now Moment() const { return ReadClock(*clock_); }

  // Request and reply live until the reactor is finished.
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, std::string_view call,
                                   std::string_view detail, std::function<absl::Status()> fill) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    const grpc::Status allowed = ToGrpcStatus(gate_.Admit(*context, call, detail).status());
    if (!allowed.ok()) {
      reactor->Finish(allowed);
    } else if (!state_thread_->Post(
                   [reactor, fill = std::move(fill)] { reactor->Finish(ToGrpcStatus(fill())); })) {
      reactor->Finish({grpc::StatusCode::UNAVAILABLE, "the master is about to end"});
    }
    return reactor;
  }

  Smon* const smon_;
  service::StateThread* const state_thread_;
  const service::Gate gate_;
  const service::Clock* const clock_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeSmonService(Smon* smon, service::StateThread* state_thread,
                                               const service::Gate& gate, const service::Clock& clock) {
  return std::make_unique<SmonService>(smon, state_thread, gate, clock);
}

}  // namespace c4::c4d
