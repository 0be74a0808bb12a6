#include "c4d_master/smon/smon_json.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using Json = nlohmann::ordered_json;

double UnixSeconds(int64_t unix_ns) {
  // In two parts: a double holds nanoseconds since 1970 only to some 200 of them.
  const int64_t whole_s = unix_ns / 1'000'000'000;
  const int64_t rest_ns = unix_ns % 1'000'000'000;
  return static_cast<double>(whole_s) + static_cast<double>(rest_ns) / 1e9;
}

Json SecondsOrNull(int64_t unix_ns) {
  return unix_ns == 0 ? Json(nullptr) : Json(UnixSeconds(unix_ns));
}

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

template <typename Texts>
Json List(const Texts& texts) {
  Json json = Json::array();
  for (const auto& text : texts) json.push_back(text);
  return json;
}

Json OfCause(const v1::SuspectedCause& cause) {
  return {{"cause", cause.cause()},
          {"share", cause.share()},
          {"ranks", List(cause.ranks())},
          {"evidence", cause.evidence()},
          {"advice", cause.advice()}};
}

Json Figures(const v1::ProfilingSession& session) {
  Json causes = Json::array();
  for (const v1::SuspectedCause& cause : session.causes()) causes.push_back(OfCause(cause));
  return {{"steps", session.steps()},
          {"dp_size", session.dp_size()},
          {"pp_size", session.pp_size()},
          {"slowdown", session.slowdown()},
          {"waste", session.waste()},
          {"step_time_s", session.step_time_s()},
          {"step_time_ideal_s", session.step_time_ideal_s()},
          {"discrepancy", session.discrepancy()},
          {"doubtful", session.doubtful()},
          {"m_w", session.has_m_w() ? Json(session.m_w()) : Json(nullptr)},
          {"m_s", session.has_m_s() ? Json(session.m_s()) : Json(nullptr)},
          {"fwd_bwd_correlation",
           session.has_fwd_bwd_correlation() ? Json(session.fwd_bwd_correlation()) : Json(nullptr)},
          {"causes", std::move(causes)}};
}

Json OfSession(const v1::ProfilingSession& session) {
  Json json = {{"number", session.number()},
               {"job", session.job()},
               {"state", SessionStateWord(session.state())},
               {"requested", session.requested()},
               {"begun_unix_s", UnixSeconds(session.begun_unix_ns())},
               {"ended_unix_s", SecondsOrNull(session.ended_unix_ns())},
               {"wanted_steps", session.wanted_steps()},
               {"at_most_s", session.at_most_s()},
               {"why", session.why()},
               {"not_seen", List(session.not_seen())},
               {"notes", List(session.notes())},
               {"report_kept", session.report_kept()}};
  // No figure where there is none.
  json["figures"] = session.state() == v1::SESSION_STATE_ANALYSED ? Figures(session) : Json(nullptr);
  return json;
}

}  // namespace

std::string_view SessionStateWord(int state) {
  switch (state) {
    case v1::SESSION_STATE_COLLECTING:
      return "collecting";
    case v1::SESSION_STATE_ANALYSING:
      return "analysing";
    case v1::SESSION_STATE_ANALYSED:
      return "analysed";
    case v1::SESSION_STATE_NOTHING_TO_ANALYSE:
      return "nothing to analyse";
    case v1::SESSION_STATE_FAILED:
      return "failed";
    default:
      return "unknown";
  }
}

std::string SessionListJson(const v1::ListSessionsReply& reply, int indent) {
  Json sessions = Json::array();
  for (const v1::ProfilingSession& session : reply.sessions()) sessions.push_back(OfSession(session));
  return Dump(Json{{"job", reply.job()},
                   {"available", reply.available()},
                   {"not_available", reply.not_available()},
                   {"every_s", reply.every_s()},
                   {"sessions", std::move(sessions)}},
              indent);
}

std::string SessionJson(const v1::ProfilingSession& session, const std::string& report, int indent) {
  Json parsed = Json::parse(report, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) parsed = nullptr;
  return Dump(Json{{"session", OfSession(session)}, {"report", std::move(parsed)}}, indent);
}

std::string HistoryJson(const std::string& job, const std::vector<v1::ProfilingSession>& sessions,
                        int indent) {
  Json points = Json::array();
  for (const v1::ProfilingSession& session : sessions) {
    points.push_back({{"number", session.number()},
                      {"unix_s", UnixSeconds(session.ended_unix_ns())},
                      {"slowdown", session.slowdown()},
                      {"waste", session.waste()},
                      {"step_time_s", session.step_time_s()},
                      {"step_time_ideal_s", session.step_time_ideal_s()},
                      {"doubtful", session.doubtful()},
                      {"cause", session.causes().empty() ? Json(nullptr) : Json(session.causes(0).cause())}});
  }
  return Dump(Json{{"job", job}, {"sessions", std::move(points)}}, indent);
}

}  // namespace c4::c4d
