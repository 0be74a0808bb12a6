// What the agent says of itself as metrics (docs/metrics.md).
#include "c4a/agent.h"

namespace c4::agent {
namespace {

constexpr char kProcesses[] = "c4a_processes";
constexpr char kConnected[] = "c4a_master_connected";
constexpr char kSent[] = "c4a_batches_sent_total";
constexpr char kDropped[] = "c4a_batches_dropped_total";

}  // namespace

void Agent::RemoveJobMetrics(const std::string& name) {
  for (const char* metric : {kProcesses, kConnected, kSent, kDropped})
    metrics_.Remove(metric, {{"job", name}});
}

void Agent::UpdateHealthMetrics() {
  if (hardware_ == nullptr) return;
  for (const auto& [kind, total] : hardware_->log().totals()) {
    uint64_t& told = told_events_[kind];
    metrics_
        .Counter("c4a_hardware_events_total", "Faults that the node's hardware or kernel reported, by kind",
                 {{"kind", kind}})
        .Add(static_cast<double>(total - told));
    told = total;
  }
  const uint64_t left_out = hardware_->log().left_out();
  metrics_
      .Counter("c4a_hardware_events_left_out_total",
               "Faults of the hardware that no master was told of, because too many came in a minute")
      .Add(static_cast<double>(left_out - told_left_out_));
  told_left_out_ = left_out;
  for (const HealthMonitor::SourceFigures& source : hardware_->Figures()) {
    const service::MetricLabels labels = {{"source", source.name}};
    metrics_
        .Gauge("c4a_health_source_stalled",
               "1 while a read of this health source hangs, mostly in a stuck driver", labels)
        .Set(source.stalled ? 1 : 0);
    metrics_
        .Gauge("c4a_health_source_absent",
               "1 if this node does not have the health source, or the agent may not read it", labels)
        .Set(source.absent ? 1 : 0);
    metrics_.Gauge("c4a_health_read_seconds", "Time that the last read of this health source took", labels)
        .Set(static_cast<double>(source.read_ns) / 1e9);
  }
}

void Agent::UpdateMetrics() {
  const ScanFigures& now = scanner_->figures();
  metrics_.Gauge("c4a_segments", "Processes of this node whose counters are watched")
      .Set(static_cast<double>(now.processes));
  metrics_.Gauge("c4a_segments_refused", "Segment files that this agent cannot read")
      .Set(static_cast<double>(now.segments_refused));
  metrics_
      .Gauge("c4a_segments_suspect",
             "Segments whose content contradicts itself; only the health of their processes is reported")
      .Set(static_cast<double>(now.segments_suspect));
  metrics_.Counter("c4a_records_read_total", "Records of operations and messages that were read")
      .Add(static_cast<double>(now.records_read - told_.records_read));
  metrics_.Counter("c4a_records_lost_total", "Records that were overwritten before the agent read them")
      .Add(static_cast<double>(now.records_lost - told_.records_lost));
  metrics_.Gauge("c4a_path_master_connected", "1 while the agent is in session with the path master")
      .Set(paths_->connected() ? 1 : 0);
  metrics_.Gauge("c4a_path_connections", "Connections of this node's ranks that ask for paths")
      .Set(static_cast<double>(paths_->connections()));
  const ProberCounts probes = paths_->probe_counts();
  metrics_.Counter("c4a_probe_packets_total", "Packets sent to learn paths")
      .Add(static_cast<double>(probes.packets - told_probes_.packets));
  metrics_.Counter("c4a_probe_answers_total", "Answers of routers and hosts to the agent's probes")
      .Add(static_cast<double>(probes.answers - told_probes_.answers));
  metrics_.Counter("c4a_probe_orders_refused_total", "Orders of probes that were more than an agent does")
      .Add(static_cast<double>(probes.refused - told_probes_.refused));
  told_probes_ = probes;
  metrics_.Gauge("c4a_control_connections", "Libraries connected to the control socket")
      .Set(control_->clients());
  told_ = now;
  UpdateHealthMetrics();
  for (auto& [name, job] : jobs_) {
    const service::MetricLabels labels = {{"job", name}};
    const uint64_t sent = job.uplink->sent();
    const uint64_t dropped = job.uplink->dropped();
    metrics_.Gauge(kProcesses, "Processes of the job that the last report held", labels)
        .Set(static_cast<double>(job.processes));
    metrics_.Gauge(kConnected, "1 if the job's master answered the last batch", labels)
        .Set(job.uplink->connected());
    metrics_.Counter(kSent, "Telemetry batches that the job's master has answered", labels)
        .Add(static_cast<double>(sent - job.sent));
    metrics_.Counter(kDropped, "Telemetry batches that a newer one replaced before they were sent", labels)
        .Add(static_cast<double>(dropped - job.dropped));
    job.sent = sent;
    job.dropped = dropped;
  }
}

std::string Agent::MetricsText() {
  metrics_.Gauge("c4a_uptime_seconds", "Time since the agent was started")
      .Set(static_cast<double>(clock_.MonotonicNs() - started_ns_) / 1e9);
  return metrics_.Serialise();
}

}  // namespace c4::agent
