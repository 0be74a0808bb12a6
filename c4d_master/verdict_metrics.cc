#include "c4d_master/verdict_metrics.h"

#include <utility>

#include "service/printable.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

constexpr char kName[] = "c4d_verdict_info";
constexpr char kHelp[] =
    "1 for each verdict that is open: what happened (syndrome), whom it names (culprit, host), and whether "
    "it "
    "is certain (state)";

}  // namespace

std::string CulpritLabel(const v1::Culprit& culprit) {
  switch (culprit.kind()) {
    case v1::CULPRIT_KIND_RANK:
      return service::Concat("rank ", culprit.rank());
    case v1::CULPRIT_KIND_NIC:
      return service::Printable(service::Concat("NIC ", culprit.nic()));
    case v1::CULPRIT_KIND_LINK:
      return service::Printable(service::Concat("link ", culprit.cable()));
    case v1::CULPRIT_KIND_CONNECTION:
      return "connections";
    default:
      return std::string(service::CulpritKindWord(culprit.kind()));
  }
}

VerdictMetrics::VerdictMetrics(std::string job, service::Metrics* metrics)
    : job_(service::Printable(job)), metrics_(metrics) {}

void VerdictMetrics::OnVerdict(const v1::Verdict& verdict) {
  const auto known = series_.find(verdict.id());
  if (verdict.state() == v1::VERDICT_STATE_CLEARED) {
    if (known == series_.end()) return;
    metrics_->Remove(kName, known->second);
    series_.erase(known);
    return;
  }
  service::MetricLabels labels = {{"job", job_},
                                  {"verdict", verdict.id()},
                                  {"syndrome", std::string(service::SyndromeWord(verdict.syndrome()))},
                                  {"state", std::string(service::VerdictStateWord(verdict.state()))},
                                  {"culprit", CulpritLabel(verdict.culprit())},
                                  {"host", service::Printable(verdict.culprit().host())}};
  if (known != series_.end()) {
    if (known->second == labels) return;
    metrics_->Remove(kName, known->second);
    series_.erase(known);
  } else if (series_.size() >= kMaxSeries) {
    return;
  }
  metrics_->Gauge(kName, kHelp, labels).Set(1);
  series_.emplace(verdict.id(), std::move(labels));
}

}  // namespace c4::c4d
