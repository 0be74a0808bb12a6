#include "c4d_master/limit_log.h"

#include "service/log.h"

namespace c4::c4d {

void LimitLog::Reached(const Limit& limit) {
  if (!reached_.emplace(limit.name, limit.sentence).second) return;
  service::LogWarning(limit.sentence);
  metrics_
      ->Gauge("c4d_limit_reached", "1: the job is larger than this limit, and some of it is not known",
              {{"limit", limit.name}})
      .Set(1);
}

}  // namespace c4::c4d
