#include "c4d_master/smon/smon_workers.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

namespace c4::c4d {
namespace {

// The thread has nothing to do by itself.
constexpr absl::Duration kSeldom = absl::Hours(24);
void Nothing() {}

// The master shares its machine, maybe with ranks.
int AnalysisThreads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 1, 8);
}

}  // namespace

SmonWorkers::SmonWorkers() : analyst_("c4d-smon", kSeldom, Nothing) {}

SmonWorkers::~SmonWorkers() {
  Stop();
}

void SmonWorkers::Stop() {
  analyst_.Stop();
}

void SmonWorkers::Analyse(uint64_t session, ProfiledJob profile) {
  // Tasks are copied, profiles are not.
  const auto shared = std::make_shared<ProfiledJob>(std::move(profile));
  analyst_.Post([this, session, shared] {
    Analysed result{session, AnalyseProfile(*shared, AnalysisThreads())};
    const std::lock_guard lock(mutex_);
    analysed_.push_back(std::move(result));
  });
}

std::vector<Analysed> SmonWorkers::TakeAnalysed() {
  const std::lock_guard lock(mutex_);
  return std::exchange(analysed_, {});
}

}  // namespace c4::c4d
