#include "c4d_master/http_api.h"

#include <functional>
#include <string>

#include "c4d_master/grpc_service.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

constexpr int kIndent = 2;

service::HttpReply Answer(service::StateThread* state_thread, const std::function<std::string()>& make) {
  std::string body;
  const absl::Status status = state_thread->Call([&] { body = make(); }, kHttpWait);
  if (status.ok()) return {200, body + "\n", "application/json"};
  return {503, std::string(status.message()) + "\n", "text/plain"};
}

bool IsTrue(const service::HttpRequest& request, const std::string& name) {
  const auto it = request.query.find(name);
  return it != request.query.end() && it->second != "false" && it->second != "0";
}

}  // namespace

void AddHttpRoutes(service::HttpServer* server, C4dHandler* handler, service::StateThread* state_thread,
                   const service::Clock& clock) {
  server->Get("/v1/verdicts", [=](const service::HttpRequest& request) {
    const bool include_cleared = IsTrue(request, "cleared");
    return Answer(state_thread,
                  [=] { return service::VerdictListJson(handler->ListVerdicts(include_cleared), kIndent); });
  });
  server->Get("/v1/status", [=, &clock](const service::HttpRequest&) {
    return Answer(state_thread,
                  [=, &clock] { return service::StatusJson(handler->GetStatus(ReadClock(clock)), kIndent); });
  });
}

}  // namespace c4::c4d
