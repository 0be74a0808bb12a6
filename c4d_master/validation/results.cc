#include "c4d_master/validation/results.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "analysis/median.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr size_t kMostSentences = 8;

// 0 where there are too few to have one. Of an even number the higher one of the two in the middle: where
// half of them are slow, these are not the measure.
double MedianOf(std::vector<double> rates) {
  if (rates.size() < kFewestToCompare) return 0;
  for (double& rate : rates) rate = -rate;
  return -analysis::LowerMedian(std::move(rates));
}

double RatioTo(double rate, double reference) {
  return reference > 0 ? rate / reference : 0;
}

// The smaller of two ratios of which 0 is none.
double Worse(double a, double b) {
  if (a <= 0 || b <= 0) return std::max(a, b);
  return std::min(a, b);
}

bool IsSlow(double ratio, double ratio_to_first) {
  const double worst = Worse(ratio, ratio_to_first);
  return worst > 0 && worst < kSlowRate;
}

double ToFirst(const std::string& key, double rate, bool is_sound, FirstFigures* first) {
  const auto [found, added] = first->rates.try_emplace(key, rate);
  if (!added) return RatioTo(rate, found->second);
  // A rate that is slow already is no measure for later ones.
  if (!is_sound) first->rates.erase(found);
  return 0;
}

void JudgeDevices(v1::Validation* validation, FirstFigures* first) {
  // Devices of one kind are compared, test by test.
  std::map<std::pair<std::string, std::string>, std::vector<double>> rates;
  for (const v1::ValidatedDevice& device : validation->devices()) {
    for (const v1::DeviceFigure& figure : device.figures()) {
      if (device.fault().empty()) rates[{device.device(), figure.test()}].push_back(figure.gflops());
    }
  }
  for (v1::ValidatedDevice& device : *validation->mutable_devices()) {
    for (const v1::DeviceFigure& figure : device.figures()) {
      const double ratio = RatioTo(figure.gflops(), MedianOf(rates[{device.device(), figure.test()}]));
      device.set_ratio(Worse(device.ratio(), ratio));
      const double own = ToFirst(Concat("rank ", device.rank(), " ", figure.test()), figure.gflops(),
                                 !IsSlow(ratio, 0), first);
      device.set_ratio_to_first(Worse(device.ratio_to_first(), own));
    }
    device.set_slow(IsSlow(device.ratio(), device.ratio_to_first()));
  }
}

// Streams of a link take paths of their own, and share them out unevenly: one alone counts only where it is
// so slow that this cannot be the cause.
void JudgeLinks(v1::Validation* validation, FirstFigures* first) {
  std::vector<double> rates;
  std::vector<double> slowest;
  for (const v1::ValidatedLink& link : validation->links()) {
    if (!link.fault().empty()) continue;
    rates.push_back(link.mib_s());
    slowest.push_back(link.slowest_stream_mib_s());
  }
  const double median = MedianOf(rates);
  const double slowest_median = MedianOf(slowest);
  for (v1::ValidatedLink& link : *validation->mutable_links()) {
    if (!link.fault().empty()) continue;
    link.set_ratio(RatioTo(link.mib_s(), median));
    const double of_stream = RatioTo(link.slowest_stream_mib_s(), slowest_median);
    if (of_stream > 0 && of_stream < kSlowStream) link.set_ratio(Worse(link.ratio(), of_stream));
    link.set_ratio_to_first(
        ToFirst(Concat(link.from(), ">", link.to()), link.mib_s(), !IsSlow(link.ratio(), 0), first));
    link.set_slow(IsSlow(link.ratio(), link.ratio_to_first()));
  }
}

std::string Beside(double ratio, double ratio_to_first) {
  std::string text;
  if (ratio > 0) text = absl::StrFormat("%.2f of its peers' median", ratio);
  if (ratio_to_first > 0) {
    text += absl::StrFormat("%s%.2f of its own at the first validation", text.empty() ? "" : ", ",
                            ratio_to_first);
  }
  return text;
}

}  // namespace

void TakeTransfer(const std::string& fault, const std::vector<double>& stream_mib_s,
                  v1::ValidatedLink* link) {
  const bool failed = !fault.empty() || stream_mib_s.empty();
  if (failed && link->mib_s() > 0) return;
  link->set_fault(fault.empty() && failed ? "its transfer said nothing" : fault);
  if (failed) return;
  double all = 0;
  for (const double rate : stream_mib_s) all += rate;
  const double slowest = *std::min_element(stream_mib_s.begin(), stream_mib_s.end());
  link->set_mib_s(std::max(link->mib_s(), all));
  link->set_slowest_stream_mib_s(std::max(link->slowest_stream_mib_s(), slowest));
}

void Judge(v1::Validation* validation, FirstFigures* first) {
  JudgeDevices(validation, first);
  JudgeLinks(validation, first);
}

std::vector<v1::Evidence> EvidenceOf(const v1::Validation& validation) {
  std::vector<v1::Evidence> evidence;
  size_t sound_devices = 0;
  size_t sound_links = 0;
  const auto add = [&evidence](const char* kind, const std::string& text) {
    if (evidence.size() >= kMostSentences) return;
    v1::Evidence& item = evidence.emplace_back();
    item.set_kind(kind);
    item.set_text(text);
  };
  for (const v1::ValidatedDevice& device : validation.devices()) {
    if (!device.slow()) {
      sound_devices += device.fault().empty() ? 1 : 0;
      continue;
    }
    std::string figures;
    for (const v1::DeviceFigure& figure : device.figures()) {
      figures += absl::StrFormat("%s%s %.1f", figures.empty() ? "" : ", ", figure.test(), figure.gflops());
    }
    add("validated-device", Concat("rank ", device.rank(), " on ", device.host(), " (", device.device(),
                                   ") multiplies matrices at ", figures,
                                   " GFLOP/s: ", Beside(device.ratio(), device.ratio_to_first())));
  }
  for (const v1::ValidatedLink& link : validation.links()) {
    if (!link.slow()) {
      sound_links += link.fault().empty() ? 1 : 0;
      continue;
    }
    add("validated-link", Concat("rank ", link.from_rank(), " to rank ", link.to_rank(), " (", link.from(),
                                 " to ", link.to(), "): ", absl::StrFormat("%.1f MiB/s", link.mib_s()), ", ",
                                 Beside(link.ratio(), link.ratio_to_first())));
  }
  if (sound_devices + sound_links > 0) {
    v1::Evidence& item = evidence.emplace_back();
    item.set_kind("validated");
    item.set_text(Concat("while the job stood still for ",
                         absl::StrFormat("%.1f s", static_cast<double>(validation.held_ns()) / 1e9), ", ",
                         sound_devices, " devices and ", sound_links, " links were tested and are sound"));
  }
  return evidence;
}

}  // namespace c4::c4d
