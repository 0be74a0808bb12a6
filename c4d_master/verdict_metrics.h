// The open verdicts as series of Prometheus: c4d_verdict_info with the labels job, verdict, syndrome, state,
// culprit and host, 1 for each verdict that is open. A series goes away when its verdict is cleared, and a
// new one takes its place when the verdict is confirmed.
//
// There are at most kMaxSeries of them, so that a job in which everything fails costs Prometheus no more than
// that; c4d_verdicts_open counts all.
//
// One thread; no errors.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "c4/v1/c4d.pb.h"
#include "service/metrics.h"

namespace c4::c4d {

// "rank 2", "NIC 10.3.2.2", "link leaf0-spine1", "node", "connections", "ambiguous": without what differs
// from one process to the next. Printable UTF-8.
std::string CulpritLabel(const v1::Culprit& culprit);

class VerdictMetrics {
 public:
  static constexpr size_t kMaxSeries = 100;

  // `metrics` outlives the object.
  VerdictMetrics(std::string job, service::Metrics* metrics);

  // To be called with each change of a verdict, cleared ones included.
  void OnVerdict(const v1::Verdict& verdict);

 private:
  const std::string job_;
  service::Metrics* const metrics_;
  std::map<std::string, service::MetricLabels> series_;  // by verdict id
};

}  // namespace c4::c4d
