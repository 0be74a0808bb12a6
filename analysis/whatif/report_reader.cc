#include "analysis/whatif/report_reader.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace c4::whatif {
namespace {

using Json = nlohmann::ordered_json;

absl::Status NoReport(const char* why) {
  return absl::DataLossError(absl::StrCat("what was kept is no report of a what-if analysis: ", why));
}

// Reads with `read`, which may throw as nlohmann's access does.
template <typename Result, typename Read>
absl::StatusOr<Result> Reading(const std::string& report, const Read& read) {
  const Json json = Json::parse(report, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return NoReport("it is no JSON object");
  try {
    return read(json);
  } catch (const Json::exception& error) {
    return NoReport(error.what());
  }
}

absl::StatusOr<WorkerMap> MapFrom(const Json& json, std::optional<int32_t> step) {
  WorkerMap map;
  const Json& job = json.at("job");
  map.dp_size = job.at("dp_size").get<int>();
  map.pp_size = job.at("pp_size").get<int>();
  const Json& places = json.at("worker_place");
  const auto workers =
      static_cast<size_t>(std::max(0, map.dp_size)) * static_cast<size_t>(std::max(0, map.pp_size));
  if (places.size() != workers) return NoReport("its workers are not those of its shape");
  map.ranks.resize(workers);
  map.slowdown.resize(workers);
  const std::string wanted = step ? absl::StrCat(*step) : "";
  if (step && !json.at("slowdown_by_step").contains(wanted)) {
    return absl::NotFoundError(absl::StrCat("the session has no step ", *step));
  }
  if (!step) map.alone.resize(workers);
  for (const auto& [rank, place] : places.items()) {
    const auto dp = place.at("dp_rank").get<size_t>();
    const auto stage = place.at("stage").get<size_t>();
    const size_t worker = stage * static_cast<size_t>(map.dp_size) + dp;
    if (worker >= workers) return NoReport("a worker is outside of its shape");
    if (!absl::SimpleAtoi(rank, &map.ranks[worker])) return NoReport("a rank is no number");
    if (step) {
      const auto of_dp = json.at("slowdown_by_dp_rank_by_step").at(wanted).at(absl::StrCat(dp)).get<double>();
      const auto of_stage =
          json.at("slowdown_by_stage_by_step").at(wanted).at(absl::StrCat(stage)).get<double>();
      map.slowdown[worker] = std::min(of_dp, of_stage);
    } else {
      map.slowdown[worker] = json.at("slowdown_by_worker_approx").at(rank).get<double>();
      map.alone[worker] = json.at("slowdown_by_worker").at(rank).get<double>();
    }
  }
  if (const auto groups = json.find("standing_for_rank"); groups != json.end()) {
    for (const auto& [text, stands] : groups->items()) {
      int32_t rank = -1;
      if (!absl::SimpleAtoi(text, &rank)) return NoReport("a rank of a group is no number");
      map.standing_for[rank] = stands.get<int32_t>();
    }
  }
  const std::string name = job.at("name").get<std::string>();
  const auto slowdown = (step ? json.at("slowdown_by_step").at(wanted) : json.at("slowdown")).get<double>();
  map.title = absl::StrFormat("%s%s slow-down %.3f; by worker", name,
                              step ? absl::StrCat(" step ", wanted) : "", slowdown);
  return map;
}

absl::StatusOr<std::vector<StepSlowdown>> StepsFrom(const Json& json) {
  std::vector<StepSlowdown> steps;
  for (const auto& [step, slowdown] : json.at("slowdown_by_step").items()) {
    StepSlowdown one{.slowdown = slowdown.get<double>()};
    if (!absl::SimpleAtoi(step, &one.step)) return NoReport("a step is no number");
    steps.push_back(one);
  }
  return steps;
}

}  // namespace

absl::StatusOr<WorkerMap> ReadWorkerMap(const std::string& report, std::optional<int32_t> step) {
  return Reading<WorkerMap>(report, [step](const Json& json) { return MapFrom(json, step); });
}

absl::StatusOr<std::vector<StepSlowdown>> ReadSteps(const std::string& report) {
  return Reading<std::vector<StepSlowdown>>(report, StepsFrom);
}

}  // namespace c4::whatif
