// Which limits the job has reached (docs/limits.md), so that nobody takes what is left for the whole: said in
// the log once, in a metric, and to whoever asks for the status. One thread; no errors.
#pragma once

#include <map>
#include <string>

#include "c4d_master/telemetry_decode.h"
#include "service/metrics.h"

namespace c4::c4d {

class LimitLog {
 public:
  // `metrics` outlives it.
  explicit LimitLog(service::Metrics* metrics) : metrics_(metrics) {}

  void Reached(const Limit& limit);

  // By name: what was said of each when it was reached first.
  const std::map<std::string, std::string>& reached() const { return reached_; }

 private:
  service::Metrics* const metrics_;
  std::map<std::string, std::string> reached_;
};

}  // namespace c4::c4d
