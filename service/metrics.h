// Metrics of one daemon, served at /metrics. A handle is a cheap value that stays valid as long as its
// Metrics; asking again for the same name and labels gives the same metric. Names follow Prometheus:
// c4a_… / c4d_…, counters end in _total, units in names. Each metric has its row in docs/metrics.md.
// Any thread. A wrong name or a second type for one name is a bug: the metric then counts nowhere, and an
// error is logged.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace c4::service {

using MetricLabels = std::map<std::string, std::string>;

class MetricCounter {
 public:
  void Add(double amount = 1);
  double Value() const;

 private:
  friend class Metrics;
  prometheus::Counter* counter_ = nullptr;
};

class MetricGauge {
 public:
  void Set(double value);
  void Add(double amount);
  double Value() const;

 private:
  friend class Metrics;
  prometheus::Gauge* gauge_ = nullptr;
};

class MetricHistogram {
 public:
  void Observe(double value);

 private:
  friend class Metrics;
  prometheus::Histogram* histogram_ = nullptr;
};

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  MetricCounter Counter(const std::string& name, const std::string& help, const MetricLabels& labels = {});
  MetricGauge Gauge(const std::string& name, const std::string& help, const MetricLabels& labels = {});
  // `bounds`: the upper ends of the buckets, ascending.
  MetricHistogram Histogram(const std::string& name, const std::string& help,
                            const std::vector<double>& bounds, const MetricLabels& labels = {});

  // Takes a counter or gauge with these labels out (a job that has left). Its handles must no longer be used.
  void Remove(const std::string& name, const MetricLabels& labels);

  std::string Serialise() const;  // Prometheus' text format

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace c4::service
