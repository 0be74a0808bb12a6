#include "c4d_master/smon/smon_http.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "analysis/whatif/drawings.h"
#include "analysis/whatif/report_reader.h"
#include "c4d_master/grpc_service.h"
#include "c4d_master/http_api.h"
#include "c4d_master/http_replies.h"
#include "c4d_master/smon/smon_json.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;
using service::HttpReply;
using service::HttpRequest;

constexpr int kIndent = 2;
constexpr uint32_t kMaxListed = 5000;
constexpr char kSvg[] = "image/svg+xml";

// The last of a name in the query, as a number; `fallback` where it is missing.
template <typename Number, typename Parse>
absl::StatusOr<Number> FromQuery(const HttpRequest& request, const char* name, Number fallback,
                                 const Parse& parse) {
  const auto found = request.query.find(name);
  if (found == request.query.end()) return fallback;
  Number number{};
  if (parse(found->second, &number)) return number;
  return absl::InvalidArgumentError(
      Concat("\"", service::ToUtf8(found->second), "\" is no number for ", name));
}

absl::StatusOr<uint32_t> WholeFromQuery(const HttpRequest& request, const char* name) {
  return FromQuery<uint32_t>(request, name, 0, [](const std::string& text, uint32_t* number) {
    return absl::SimpleAtoi(text, number);
  });
}

absl::StatusOr<double> RealFromQuery(const HttpRequest& request, const char* name) {
  return FromQuery<double>(request, name, 0, [](const std::string& text, double* number) {
    return absl::SimpleAtod(text, number);
  });
}

class Pages {
 public:
  Pages(Smon* smon, service::StateThread* state_thread, const service::Clock& clock)
      : smon_(smon), state_thread_(state_thread), clock_(&clock) {}

  HttpReply Sessions(const HttpRequest& request) const {
    const absl::StatusOr<uint32_t> limit = WholeFromQuery(request, "limit");
    if (!limit.ok()) return Refusal(limit.status());
    v1::ListSessionsReply reply;
    const absl::Status asked = Ask([&] { reply = smon_->List(std::min(*limit, kMaxListed)); });
    return asked.ok() ? JsonReply(SessionListJson(reply, kIndent)) : Refusal(asked);
  }

  HttpReply RunSession(const HttpRequest& request) const {
    const absl::StatusOr<uint32_t> steps = WholeFromQuery(request, "steps");
    const absl::StatusOr<double> seconds = RealFromQuery(request, "seconds");
    if (!steps.ok()) return Refusal(steps.status());
    if (!seconds.ok()) return Refusal(seconds.status());
    absl::StatusOr<v1::ProfilingSession> session = absl::UnknownError("");
    const absl::Status asked = Ask([&] { session = smon_->Run(*steps, *seconds, ReadClock(*clock_)); });
    if (!asked.ok()) return Refusal(asked);
    return session.ok() ? JsonReply(SessionJson(*session, "", kIndent), 202) : Refusal(session.status());
  }

  HttpReply Session(const HttpRequest& request) const {
    const absl::StatusOr<Smon::Found> found = Find(request);
    return found.ok() ? JsonReply(SessionJson(found->session, *found->report, kIndent))
                      : Refusal(found.status());
  }

  HttpReply Heatmap(const HttpRequest& request) const {
    const absl::StatusOr<Smon::Found> found = FindReport(request);
    if (!found.ok()) return Refusal(found.status());
    std::optional<int32_t> step;
    if (request.query.contains("step")) {
      const absl::StatusOr<int32_t> asked = FromQuery<int32_t>(
          request, "step", 0,
          [](const std::string& text, int32_t* number) { return absl::SimpleAtoi(text, number); });
      if (!asked.ok()) return Refusal(asked.status());
      step = *asked;
    }
    const absl::StatusOr<whatif::WorkerMap> map = whatif::ReadWorkerMap(*found->report, step);
    return map.ok() ? HttpReply{200, whatif::HeatmapSvg(*map), kSvg} : Refusal(map.status());
  }

  HttpReply Steps(const HttpRequest& request) const {
    const absl::StatusOr<Smon::Found> found = FindReport(request);
    if (!found.ok()) return Refusal(found.status());
    const absl::StatusOr<std::vector<whatif::StepSlowdown>> steps = whatif::ReadSteps(*found->report);
    if (!steps.ok()) return Refusal(steps.status());
    const std::string title = absl::StrFormat("%s session %d: slow-down by step",
                                              service::ToUtf8(smon_->job()), found->session.number());
    return {200, whatif::StepsSvg(title, *steps), kSvg};
  }

  HttpReply History(const HttpRequest&) const {
    std::vector<v1::ProfilingSession> history;
    const absl::Status asked = Ask([&] { history = smon_->History(); });
    return asked.ok() ? JsonReply(HistoryJson(smon_->job(), history, kIndent)) : Refusal(asked);
  }

  HttpReply HistoryDrawing(const HttpRequest&) const {
    std::vector<v1::ProfilingSession> history;
    if (const absl::Status asked = Ask([&] { history = smon_->History(); }); !asked.ok())
      return Refusal(asked);
    std::vector<whatif::LifePoint> points;
    points.reserve(history.size());
    for (const v1::ProfilingSession& session : history) {
      points.push_back({session.ended_unix_ns(), session.slowdown(), session.doubtful()});
    }
    return {200, whatif::LifeSvg(service::ToUtf8(smon_->job()) + ": slow-down over the job's life", points),
            kSvg};
  }

 private:
  absl::Status Ask(const std::function<void()>& task) const { return state_thread_->Call(task, kHttpWait); }

  // Of the path: a number, or "latest".
  absl::StatusOr<Smon::Found> Find(const HttpRequest& request) const {
    const std::string& name = request.parts.at(0);
    uint64_t number = 0;
    if (name != "latest" && (!absl::SimpleAtoi(name, &number) || number == 0)) {
      return absl::NotFoundError(Concat("there is no session ", name, "; sessions are counted from 1"));
    }
    absl::StatusOr<Smon::Found> found = absl::UnknownError("");
    absl::Status asked = Ask([&] { found = smon_->Find(number); });
    if (!asked.ok()) return asked;
    return found;
  }

  absl::StatusOr<Smon::Found> FindReport(const HttpRequest& request) const {
    absl::StatusOr<Smon::Found> found = Find(request);
    if (!found.ok() || !found->report->empty()) return found;
    const v1::ProfilingSession& session = found->session;
    if (session.state() == v1::SESSION_STATE_ANALYSED) {
      return absl::NotFoundError(
          Concat("the report of session ", session.number(),
                 " is no longer kept; --smon-keep-reports and --smon-keep-days say how long"));
    }
    return absl::NotFoundError(Concat("session ", session.number(), " has no figures (",
                                      SessionStateWord(session.state()), ")",
                                      session.why().empty() ? "" : ": ", session.why()));
  }

  Smon* smon_;
  service::StateThread* state_thread_;
  const service::Clock* clock_;
};

}  // namespace

void AddSmonRoutes(service::HttpServer* server, Smon* smon, service::StateThread* state_thread,
                   const service::Clock& clock) {
  const Pages pages(smon, state_thread, clock);
  const auto page = [&pages](HttpReply (Pages::*make)(const HttpRequest&) const) {
    return [pages, make](const HttpRequest& request) { return (pages.*make)(request); };
  };
  const std::string session = "/v1/smon/sessions/([0-9]+|latest)";
  server->Get("/v1/smon/sessions", page(&Pages::Sessions));
  server->Post("/v1/smon/sessions", page(&Pages::RunSession));
  server->Get(session, page(&Pages::Session));
  server->Get(session + "/heatmap.svg", page(&Pages::Heatmap));
  server->Get(session + "/steps.svg", page(&Pages::Steps));
  server->Get("/v1/smon/history", page(&Pages::History));
  server->Get("/v1/smon/history.svg", page(&Pages::HistoryDrawing));
}

}  // namespace c4::c4d
