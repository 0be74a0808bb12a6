#include "cli/launch/job_file.h"

#include <nlohmann/json.hpp>

namespace c4::cli {

std::string JobFileText(const LaunchPlan& plan, pid_t launcher, const std::vector<pid_t>& ranks,
                        const std::vector<pid_t>& agents) {
  using Json = nlohmann::json;
  Json json = {{"job", plan.job},          {"fabric", plan.fabric},  {"incarnation", plan.incarnation},
               {"launcher_pid", launcher}, {"ranks", Json::array()}, {"agents", agents}};
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    json["ranks"].push_back(
        {{"rank", rank}, {"pid", ranks[rank]}, {"host", HostIndexOf(plan, static_cast<int>(rank))}});
  }
  return json.dump(2) + "\n";
}

}  // namespace c4::cli
