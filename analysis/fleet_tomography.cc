#include "analysis/fleet_tomography.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <set>

namespace c4::analysis {
namespace {

constexpr int kPolishes = 4;
// A median's distance from the middle to a standard deviation, of normal values.
constexpr double kDeviationOfMedian = 1.4826;

// Which samples belong to which key, side by side: numbers of samples of key k stand from begin[k] on.
struct Index {
  std::vector<uint32_t> begin;
  std::vector<uint32_t> samples;

  size_t size(uint32_t key) const { return begin[key + 1] - begin[key]; }
};

// `each(sample, say)`: says every key of the sample.
template <typename Each>
Index IndexOf(size_t samples, uint32_t keys, const Each& each) {
  Index index;
  index.begin.assign(static_cast<size_t>(keys) + 1, 0);
  for (uint32_t i = 0; i < samples; ++i) each(i, [&](uint32_t key) { ++index.begin[key + 1]; });
  std::partial_sum(index.begin.begin(), index.begin.end(), index.begin.begin());
  index.samples.resize(index.begin.back());
  std::vector<uint32_t> at(index.begin.begin(), index.begin.end() - 1);
  for (uint32_t i = 0; i < samples; ++i) each(i, [&](uint32_t key) { index.samples[at[key]++] = i; });
  return index;
}

// Takes off what the samples of each key have in common.
void TakeOffMedians(const Index& index, std::vector<float>* values) {
  std::vector<float> of_key;
  for (uint32_t key = 0; key + 1 < index.begin.size(); ++key) {
    if (index.size(key) == 0) continue;
    of_key.clear();
    for (uint32_t at = index.begin[key]; at < index.begin[key + 1]; ++at) {
      of_key.push_back((*values)[index.samples[at]]);
    }
    const auto middle = of_key.begin() + static_cast<std::ptrdiff_t>(of_key.size() / 2);
    std::nth_element(of_key.begin(), middle, of_key.end());
    float median = *middle;
    if (of_key.size() % 2 == 0) median = (median + *std::max_element(of_key.begin(), middle)) / 2;
    for (uint32_t at = index.begin[key]; at < index.begin[key + 1]; ++at) {
      (*values)[index.samples[at]] -= median;
    }
  }
}

double DeviationOf(std::vector<float> values) {
  if (values.empty()) return 0;
  for (float& value : values) value = std::abs(value);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return kDeviationOfMedian * static_cast<double>(*middle);
}

class Search {
 public:
  Search(const std::vector<FleetSample>& samples, uint32_t nics, uint32_t links, const FleetOptions& options)
      : samples_(samples), options_(options), links_(links), values_(samples.size()) {
    for (size_t i = 0; i < samples.size(); ++i) values_[i] = samples[i].log_time;
    const Index by_source =
        IndexOf(samples.size(), nics, [&](uint32_t i, const auto& say) { say(samples_[i].source); });
    const Index by_destination =
        IndexOf(samples.size(), nics, [&](uint32_t i, const auto& say) { say(samples_[i].destination); });
    for (int i = 0; i < kPolishes; ++i) {
      TakeOffMedians(by_source, &values_);
      TakeOffMedians(by_destination, &values_);
    }
    by_link_ = IndexOf(samples.size(), links, [&](uint32_t i, const auto& say) {
      for (uint32_t k = 0; k < samples_[i].link_count; ++k) say(samples_[i].links[k]);
    });
  }

  FleetFindings Run() {
    FleetFindings findings;
    findings.deviation = DeviationOf(values_);
    for (uint32_t link = 0; link < links_; ++link) {
      if (by_link_.size(link) >= options_.least_samples) ++findings.judged_links;
    }
    // Values that are all the same leave nothing to divide by.
    deviation_ = std::max(findings.deviation, 1e-6);
    clip_ = options_.clip * deviation_;
    Centre();
    scores_.resize(links_);
    for (uint32_t link = 0; link < links_; ++link) scores_[link] = ScoreOf(link);
    while (findings.links.size() < options_.most_links) {
      const auto best = std::max_element(scores_.begin(), scores_.end());
      if (best == scores_.end() || *best < options_.least_score) break;
      GreyLink grey = Take(static_cast<uint32_t>(best - scores_.begin()), *best);
      if (grey.worse >= options_.least_worse) findings.links.push_back(std::move(grey));
    }
    return findings;
  }

 private:
  double Clipped(uint32_t sample) const {
    return std::clamp(static_cast<double>(values_[sample]), -clip_, clip_);
  }

  // Congestion makes the clipped values' mean a little more than their median.
  void Centre() {
    double sum = 0;
    for (uint32_t i = 0; i < values_.size(); ++i) sum += Clipped(i);
    const auto mean = static_cast<float>(values_.empty() ? 0 : sum / static_cast<double>(values_.size()));
    for (float& value : values_) value -= mean;
  }

  // -1: not to be judged.
  double ScoreOf(uint32_t link) const {
    const size_t count = by_link_.size(link);
    if (count < options_.least_samples) return -1;
    double sum = 0;
    for (uint32_t at = by_link_.begin[link]; at < by_link_.begin[link + 1]; ++at) {
      sum += Clipped(by_link_.samples[at]);
    }
    const double score = sum / (deviation_ * std::sqrt(static_cast<double>(count)));
    return score >= options_.least_score && !FromMany(link) ? -1 : score;
  }

  bool FromMany(uint32_t link) const {
    std::set<uint32_t> sources, destinations;
    for (uint32_t at = by_link_.begin[link]; at < by_link_.begin[link + 1]; ++at) {
      sources.insert(samples_[by_link_.samples[at]].source);
      destinations.insert(samples_[by_link_.samples[at]].destination);
      if (sources.size() >= options_.least_sources && destinations.size() >= options_.least_sources)
        return true;
    }
    return false;
  }

  // The median: what else slows one of the samples is not the link's.
  double EffectOf(uint32_t link) const {
    std::vector<float> values;
    for (uint32_t at = by_link_.begin[link]; at < by_link_.begin[link + 1]; ++at) {
      values.push_back(values_[by_link_.samples[at]]);
    }
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

  // Takes the link's effect off the samples over it.
  GreyLink Take(uint32_t link, double score) {
    const double effect = EffectOf(link);
    GreyLink grey{.link = link,
                  .worse = std::expm1(effect),
                  .score = score,
                  .samples = static_cast<uint32_t>(by_link_.size(link)),
                  .instead = {}};
    std::set<uint32_t> touched;
    for (uint32_t at = by_link_.begin[link]; at < by_link_.begin[link + 1]; ++at) {
      const FleetSample& sample = samples_[by_link_.samples[at]];
      touched.insert(sample.links.begin(), sample.links.begin() + sample.link_count);
    }
    for (const uint32_t other : touched) {
      if (other != link && scores_[other] > 0 &&
          scores_[other] * scores_[other] > score * score - options_.margin) {
        grey.instead.push_back(other);
      }
    }
    for (uint32_t at = by_link_.begin[link]; at < by_link_.begin[link + 1]; ++at) {
      values_[by_link_.samples[at]] -= static_cast<float>(effect);
    }
    for (const uint32_t other : touched) scores_[other] = ScoreOf(other);
    // Once each, so that the search ends.
    scores_[link] = -1;
    // Those that stood out as much and no longer do were the same trouble; those that still do are their own.
    std::erase_if(grey.instead, [&](uint32_t other) { return scores_[other] >= options_.least_score; });
    return grey;
  }

  const std::vector<FleetSample>& samples_;
  const FleetOptions options_;
  const uint32_t links_;
  std::vector<float> values_;
  Index by_link_;
  double deviation_ = 0;
  double clip_ = 0;
  std::vector<double> scores_;
};

}  // namespace

FleetFindings FindGreyLinks(const std::vector<FleetSample>& samples, uint32_t nics, uint32_t links,
                            const FleetOptions& options) {
  for ([[maybe_unused]] const FleetSample& sample : samples) {
    assert(sample.source < nics && sample.destination < nics && sample.link_count <= sample.links.size());
  }
  return Search(samples, nics, links, options).Run();
}

}  // namespace c4::analysis
