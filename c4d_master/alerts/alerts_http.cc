#include "c4d_master/alerts/alerts_http.h"

#include <functional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "c4d_master/alerts/alerts_json.h"
#include "c4d_master/grpc_service.h"
#include "c4d_master/http_api.h"
#include "c4d_master/http_replies.h"

namespace c4::c4d {
namespace {

using service::HttpReply;
using service::HttpRequest;

constexpr int kIndent = 2;

// Who asks over HTTP is told by the gate's audit.
constexpr char kByHttp[] = "HTTP";

class Pages {
 public:
  Pages(AlertCenter* center, service::StateThread* state_thread, const service::Clock& clock)
      : center_(center), state_thread_(state_thread), clock_(&clock) {}

  HttpReply List(const HttpRequest& request) const {
    const std::string all = FromQuery(request, "resolved");
    v1::ListAlertsReply reply;
    const absl::Status asked =
        Ask([&] { reply = center_->List(!all.empty() && all != "false" && all != "0", ReadClock(*clock_)); });
    return asked.ok() ? JsonReply(AlertListJson(reply, kIndent)) : Refusal(asked);
  }

  HttpReply Acknowledge(const HttpRequest& request) const {
    v1::AcknowledgeAlertRequest wanted;
    wanted.set_id(FromQuery(request, "id"));
    wanted.set_by(kByHttp);
    wanted.set_comment(FromQuery(request, "comment"));
    return AnswerOf<v1::AcknowledgeAlertReply>(
        [&] { return center_->Acknowledge(wanted, ReadClock(*clock_)); },
        [](const v1::AcknowledgeAlertReply& reply) { return AlertsJson(reply, kIndent); });
  }

  HttpReply AddSilence(const HttpRequest& request) const {
    v1::AddSilenceRequest wanted;
    double seconds = 0;
    if (!absl::SimpleAtod(FromQuery(request, "seconds"), &seconds)) {
      return Refusal(absl::InvalidArgumentError("say for how long: ?seconds=3600"));
    }
    for (const auto& matcher : absl::StrSplit(FromQuery(request, "match"), ',', absl::SkipEmpty())) {
      wanted.add_matchers(std::string(matcher));
    }
    wanted.set_seconds(seconds);
    wanted.set_by(kByHttp);
    wanted.set_comment(FromQuery(request, "comment"));
    return AnswerOf<v1::AddSilenceReply>(
        [&] { return center_->AddSilence(wanted, ReadClock(*clock_)); },
        [](const v1::AddSilenceReply& reply) { return SilenceJson(reply.silence(), kIndent); });
  }

  HttpReply EndSilence(const HttpRequest& request) const {
    uint64_t number = 0;
    (void)absl::SimpleAtoi(request.parts.at(0), &number);  // 0 is no silence's
    return AnswerOf<v1::EndSilenceReply>(
        [&] { return center_->EndSilence(number, ReadClock(*clock_)); },
        [](const v1::EndSilenceReply& reply) { return SilenceJson(reply.silence(), kIndent); });
  }

  HttpReply Test(const HttpRequest& request) const {
    return AnswerOf<v1::TestAlertReply>(
        [&] { return center_->Test(request.parts.at(0), ReadClock(*clock_)); },
        [](const v1::TestAlertReply& reply) {
          return absl::StrFormat("{\"delivery\": %d}", reply.delivery());
        },
        202);
  }

 private:
  absl::Status Ask(const std::function<void()>& task) const { return state_thread_->Call(task, kHttpWait); }

  template <typename Reply, typename Do, typename Show>
  HttpReply AnswerOf(const Do& act, const Show& show, int code = 200) const {
    absl::StatusOr<Reply> reply = absl::UnknownError("");
    if (const absl::Status asked = Ask([&] { reply = act(); }); !asked.ok()) return Refusal(asked);
    return reply.ok() ? JsonReply(show(*reply), code) : Refusal(reply.status());
  }

  AlertCenter* center_;
  service::StateThread* state_thread_;
  const service::Clock* clock_;
};

}  // namespace

void AddAlertRoutes(service::HttpServer* server, AlertCenter* center, service::StateThread* state_thread,
                    const service::Clock& clock) {
  const Pages pages(center, state_thread, clock);
  const auto page = [&pages](HttpReply (Pages::*make)(const HttpRequest&) const) {
    return [pages, make](const HttpRequest& request) { return (pages.*make)(request); };
  };
  server->Get("/v1/alerts", page(&Pages::List));
  server->Post("/v1/alerts/acknowledge", page(&Pages::Acknowledge));
  server->Post("/v1/alerts/silences", page(&Pages::AddSilence));
  server->Post("/v1/alerts/silences/([0-9]+)/end", page(&Pages::EndSilence));
  server->Post("/v1/alerts/test/([A-Za-z0-9._-]+)", page(&Pages::Test));
}

}  // namespace c4::c4d
