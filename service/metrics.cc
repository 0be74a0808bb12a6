#include "service/metrics.h"

#include <exception>
#include <mutex>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "service/log.h"

namespace c4::service {

void MetricCounter::Add(double amount) {
  if (counter_ != nullptr) counter_->Increment(amount);
}
double MetricCounter::Value() const {
  return counter_ == nullptr ? 0 : counter_->Value();
}

void MetricGauge::Set(double value) {
  if (gauge_ != nullptr) gauge_->Set(value);
}
void MetricGauge::Add(double amount) {
  if (gauge_ != nullptr) gauge_->Increment(amount);
}
double MetricGauge::Value() const {
  return gauge_ == nullptr ? 0 : gauge_->Value();
}

void MetricHistogram::Observe(double value) {
  if (histogram_ != nullptr) histogram_->Observe(value);
}

struct Metrics::State {
  prometheus::Registry registry;
  std::mutex mutex;  // of the maps; the registry has its own
  std::map<std::string, prometheus::Family<prometheus::Counter>*> counters;
  std::map<std::string, prometheus::Family<prometheus::Gauge>*> gauges;
};

namespace {

// prometheus-cpp throws on a malformed name or label and on a name of two types.
void Refuse(const std::string& name, const std::exception& error) {
  LogError("metric ", name, " cannot be made: ", error.what());
}

}  // namespace

Metrics::Metrics() : state_(std::make_unique<State>()) {}
Metrics::~Metrics() = default;

MetricCounter Metrics::Counter(const std::string& name, const std::string& help, const MetricLabels& labels) {
  MetricCounter handle;
  try {
    auto& family = prometheus::BuildCounter().Name(name).Help(help).Register(state_->registry);
    {
      const std::lock_guard lock(state_->mutex);
      state_->counters[name] = &family;
    }
    handle.counter_ = &family.Add(labels);
  } catch (const std::exception& error) {
    Refuse(name, error);
  }
  return handle;
}

MetricGauge Metrics::Gauge(const std::string& name, const std::string& help, const MetricLabels& labels) {
  MetricGauge handle;
  try {
    auto& family = prometheus::BuildGauge().Name(name).Help(help).Register(state_->registry);
    {
      const std::lock_guard lock(state_->mutex);
      state_->gauges[name] = &family;
    }
    handle.gauge_ = &family.Add(labels);
  } catch (const std::exception& error) {
    Refuse(name, error);
  }
  return handle;
}

MetricHistogram Metrics::Histogram(const std::string& name, const std::string& help,
                                   const std::vector<double>& bounds, const MetricLabels& labels) {
  MetricHistogram handle;
  try {
    handle.histogram_ =
        &prometheus::BuildHistogram().Name(name).Help(help).Register(state_->registry).Add(labels, bounds);
  } catch (const std::exception& error) {
    Refuse(name, error);
  }
  return handle;
}

void Metrics::Remove(const std::string& name, const MetricLabels& labels) {
  const std::lock_guard lock(state_->mutex);
  // Add gives the metric that is there.
  if (const auto family = state_->counters.find(name); family != state_->counters.end()) {
    family->second->Remove(&family->second->Add(labels));
  }
  if (const auto family = state_->gauges.find(name); family != state_->gauges.end()) {
    family->second->Remove(&family->second->Add(labels));
  }
}

std::string Metrics::Serialise() const {
  return prometheus::TextSerializer().Serialize(state_->registry.Collect());
}

}  // namespace c4::service
