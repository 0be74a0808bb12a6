#include <nlohmann/json.hpp>

#include "analysis/whatif/report.h"

namespace c4::whatif {
namespace {

using Json = nlohmann::ordered_json;

Json Maybe(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json ByStep(const Job& job, const std::vector<double>& values) {
  Json json = Json::object();
  for (size_t i = 0; i < values.size(); ++i) json[std::to_string(job.trace.steps[i])] = values[i];
  return json;
}

// {"0": 1.17, ...}, by the index.
Json ByIndex(const std::vector<Slowdown>& slowdowns) {
  Json json = Json::object();
  for (size_t i = 0; i < slowdowns.size(); ++i) json[std::to_string(i)] = slowdowns[i].overall;
  return json;
}

// {"23": {"0": 1.17, ...}, ...}
template <typename Name>
Json PerStep(const Job& job, const std::vector<Slowdown>& slowdowns, const Name& name) {
  Json json = Json::object();
  for (size_t step = 0; step < job.trace.steps.size(); ++step) {
    Json& of_step = json[std::to_string(job.trace.steps[step])] = Json::object();
    for (size_t i = 0; i < slowdowns.size(); ++i) of_step[name(i)] = slowdowns[i].by_step[step];
  }
  return json;
}

Json OfShare(const Share& share) {
  return {{"removed", Maybe(share.removed)},
          {"added", Maybe(share.added)},
          {"step_time_removed_s", share.step_time_removed_s},
          {"step_time_added_s", share.step_time_added_s}};
}

Json OfJob(const Job& job) {
  const Trace& trace = job.trace;
  Json json = {{"name", trace.shape.name}, {"dp_size", trace.dp_size},
               {"pp_size", trace.pp_size}, {"workers", trace.workers()},
               {"steps", trace.steps},     {"operations", trace.operations.size() * trace.lanes()}};
  Json& ideal = json["ideal_duration_by_type_s"] = Json::object();
  for (size_t i = 0; i < kOperationTypes; ++i) {
    if (job.durations.counts[i] == 0) continue;
    ideal[OperationName(static_cast<OperationType>(i))] = job.durations.ideal_exact_s[i];
  }
  return json;
}

void AddWorkers(const Job& job, const Analysis& analysis, Json* json) {
  const Trace& trace = job.trace;
  Json exact = Json::object();
  Json approx = Json::object();
  Json place = Json::object();
  for (size_t worker = 0; worker < analysis.by_worker.size(); ++worker) {
    const std::string rank = std::to_string(trace.ranks[worker]);
    const auto dp_size = static_cast<size_t>(trace.dp_size);
    exact[rank] = analysis.by_worker[worker].overall;
    approx[rank] = analysis.by_worker_approx[worker];
    place[rank] = {{"dp_rank", worker % dp_size}, {"stage", worker / dp_size}};
  }
  (*json)["slowdown_by_worker"] = std::move(exact);
  (*json)["slowdown_by_worker_approx"] = std::move(approx);
  (*json)["worker_place"] = std::move(place);
  Json stands_for = Json::object();
  for (const auto& [rank, worker] : trace.members) {
    if (trace.ranks[worker] != rank) stands_for[std::to_string(rank)] = trace.ranks[worker];
  }
  (*json)["standing_for_rank"] = std::move(stands_for);
  Json map = Json::array();
  for (int dp = 0; dp < trace.dp_size; ++dp) {
    Json row = Json::array();
    for (int stage = 0; stage < trace.pp_size; ++stage) {
      row.push_back(analysis.by_worker_approx[trace.Worker(dp, stage)]);
    }
    map.push_back(std::move(row));
  }
  (*json)["heatmap"] = std::move(map);
}

void AddTypes(const Analysis& analysis, Json* json) {
  Json slowdown = Json::object();
  Json waste = Json::object();
  for (size_t i = 0; i < analysis.type_groups.size(); ++i) {
    const char* name = TypeGroupName(analysis.type_groups[i]);
    slowdown[name] = analysis.by_type[i].overall;
    waste[name] = 1 - 1 / analysis.by_type[i].overall;
  }
  (*json)["slowdown_by_type"] = std::move(slowdown);
  (*json)["waste_by_type"] = std::move(waste);
}

void AddShares(const Job& job, const Analysis& analysis, Json* json) {
  (*json)["m_w"] = Maybe(analysis.m_w.removed);
  (*json)["m_s"] = Maybe(analysis.m_s.removed);
  (*json)["m_w_detail"] = OfShare(analysis.m_w);
  Json& slowest = (*json)["m_w_detail"]["workers"] = Json::array();
  for (const size_t worker : analysis.slowest_workers) slowest.push_back(job.trace.ranks[worker]);
  (*json)["m_s_detail"] = OfShare(analysis.m_s);
}

void AddSteps(const Job& job, const Analysis& analysis, Json* json) {
  const auto index = [](size_t i) { return std::to_string(i); };
  const auto type = [&analysis](size_t i) { return TypeGroupName(analysis.type_groups[i]); };
  (*json)["slowdown_by_step"] = ByStep(job, analysis.slowdown_by_step);
  (*json)["launch_slowdown_by_step"] = ByStep(job, analysis.launch_by_step);
  (*json)["step_time_by_step_s"] = ByStep(job, analysis.simulated_s);
  (*json)["step_time_measured_by_step_s"] = ByStep(job, analysis.measured_s);
  (*json)["step_time_ideal_by_step_s"] = ByStep(job, analysis.ideal_s);
  (*json)["slowdown_by_dp_rank_by_step"] = PerStep(job, analysis.by_dp, index);
  (*json)["slowdown_by_stage_by_step"] = PerStep(job, analysis.by_stage, index);
  (*json)["slowdown_by_type_by_step"] = PerStep(job, analysis.by_type, type);
}

Json OfQuestion(const Question& question) {
  return {{"question", question.fix ? "fix" : "keep"},  {"chosen", question.words},
          {"step_time_s", question.answer.step_time_s}, {"slowdown", question.answer.slowdown},
          {"speedup", question.answer.speedup},         {"share", Maybe(question.answer.share)}};
}

Json OfGain(const Gain& gain) {
  return {{"what", gain.what},
          {"fix", gain.fix},
          {"step_time_s", gain.answer.step_time_s},
          {"speedup", gain.answer.speedup}};
}

Json OfCauses(const Causes& causes) {
  Json json = Json::array();
  for (const Cause& cause : causes.causes) {
    Json gains = Json::array();
    for (const Gain& gain : cause.gains) gains.push_back(OfGain(gain));
    json.push_back({{"cause", CauseName(cause.kind)},
                    {"share", cause.share},
                    {"share_beyond_others", cause.share_beyond},
                    {"step_time_without_s", cause.step_time_s},
                    {"ranks", cause.ranks},
                    {"evidence", cause.evidence},
                    {"advice", cause.advice},
                    {"gains", std::move(gains)}});
  }
  return json;
}

Json OfLeftOut(const Causes& causes) {
  Json json = Json::array();
  for (const LeftOutCause& cause : causes.left_out)
    json.push_back({{"cause", CauseName(cause.kind)}, {"share", cause.share}, {"why", cause.why}});
  return json;
}

}  // namespace

std::string ReportJson(const Report& report, int indent) {
  const Job& job = report.job;
  const Analysis& analysis = report.analysis;
  Json json = {{"job", OfJob(job)},
               {"slowdown", analysis.slowdown},
               {"waste", analysis.waste()},
               {"straggling", analysis.slowdown >= kStraggling},
               {"step_time_s", analysis.step_time_s},
               {"step_time_ideal_s", analysis.step_time_ideal_s},
               {"step_time_measured_s", analysis.step_time_measured_s},
               {"discrepancy", analysis.discrepancy},
               {"doubtful", analysis.discrepancy > kDoubtfulDiscrepancy},
               {"launch_slowdown", analysis.launch_slowdown}};
  AddTypes(analysis, &json);
  json["slowdown_by_dp_rank"] = ByIndex(analysis.by_dp);
  json["slowdown_by_stage"] = ByIndex(analysis.by_stage);
  AddWorkers(job, analysis, &json);
  AddShares(job, analysis, &json);
  Json& correlation = json["fwd_bwd_correlation"] = Json::object();
  for (size_t stage = 0; stage < analysis.correlation_by_stage.size(); ++stage) {
    correlation[std::to_string(stage)] = Maybe(analysis.correlation_by_stage[stage]);
  }
  json["fwd_bwd_correlation_all_stages"] = Maybe(analysis.correlation);
  json["speedup_if_pp_comm_zero"] = analysis.speedup_if_pp_comm_zero;
  json["speedup_if_dp_comm_zero"] = analysis.speedup_if_dp_comm_zero;
  AddSteps(job, analysis, &json);
  Json& what_if = json["what_if"] = Json::array();
  for (const Question& question : report.questions) what_if.push_back(OfQuestion(question));
  json["causes"] = OfCauses(report.causes);
  json["gain_together"] = report.causes.causes.empty() ? Json(nullptr) : OfGain(report.causes.together);
  json["causes_left_out"] = OfLeftOut(report.causes);
  Json& left_out = json["steps_left_out"] = Json::object();
  for (const auto& [step, why] : job.trace.left_out) left_out[std::to_string(step)] = why;
  json["notes"] = job.trace.notes;
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace c4::whatif
