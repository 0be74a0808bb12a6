// The passes over the links of a validation: planned, tried, and tried again where one looks slow.
#include <algorithm>
#include <map>
#include <utility>

#include "analysis/failslow/link_passes.h"
#include "c4d_master/validation/validator.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr int64_t kMsToNs = 1'000'000;
constexpr int64_t kMostPassNs = 250 * kMsToNs;
constexpr int64_t kFewestPassNs = 40 * kMsToNs;
constexpr uint64_t kTransferBytes = uint64_t{1} << 40;  // the time ends it
constexpr int kMostTries = 4;                           // of a link that looks slow
constexpr uint32_t kStreams = 8;

}  // namespace

void Validator::BeginLinks(Now now) {
  step_ = Step::kLinks;
  std::vector<size_t> all;
  for (size_t i = 0; i < plan_.links.size(); ++i) {
    const PlannedLink& link = plan_.links[i];
    if (held_[link.from].port == 0 || held_[link.to].port == 0) {
      current().mutable_links(static_cast<int>(i))->set_fault("a tester of one of its ends was not there");
    } else {
      all.push_back(i);
    }
  }
  PlanPasses(all);
  tries_ = 1;
  const auto count = static_cast<int64_t>(std::max<size_t>(1, passes_.size()));
  pass_ns_ = std::clamp(LeftNs(now) / count - kAnswerNs / 2, kFewestPassNs, kMostPassNs);
  NextPass(now);
}

void Validator::PlanPasses(const std::vector<size_t>& chosen) {
  std::vector<analysis::Link> links;
  std::map<std::string, uint32_t> nics;
  const auto number = [&nics](const std::string& nic) {
    return nics.try_emplace(nic, static_cast<uint32_t>(nics.size())).first->second;
  };
  for (const size_t i : chosen) {
    links.push_back({number(plan_.links[i].from_address), number(plan_.links[i].to_address)});
  }
  passes_.clear();
  for (const std::vector<size_t>& pass : analysis::PlanLinkPasses(links).passes) {
    std::vector<size_t>& own = passes_.emplace_back();
    for (const size_t i : pass) own.push_back(chosen[i]);
  }
  next_pass_ = 0;
}

bool Validator::TryAgain(Now now) {
  if (tries_ >= kMostTries || LeftNs(now) < pass_ns_ + kAnswerNs) return false;
  v1::Validation judged = current();
  FirstFigures first = first_;
  Judge(&judged, &first);
  std::vector<size_t> slow;
  for (size_t i = 0; i < plan_.links.size(); ++i) {
    if (judged.links(static_cast<int>(i)).slow()) slow.push_back(i);
  }
  if (slow.empty()) return false;
  PlanPasses(slow);
  ++tries_;
  return true;
}

void Validator::NextPass(Now now) {
  for (const auto& [number, transfer] : transfers_) {
    if (!transfer.done && tries_ == 1) {
      current().mutable_links(static_cast<int>(transfer.link))->set_fault("its transfer did not end in time");
    }
  }
  transfers_.clear();
  if (next_pass_ >= passes_.size() && !TryAgain(now)) return Resume(v1::VALIDATION_STATE_DONE, "", now);
  if (tries_ > 1 && LeftNs(now) < pass_ns_ + kAnswerNs / 2) return Resume(v1::VALIDATION_STATE_DONE, "", now);
  if (LeftNs(now) < pass_ns_ + kAnswerNs / 2) {
    for (; next_pass_ < passes_.size(); ++next_pass_) {
      for (const size_t link : passes_[next_pass_]) {
        current().mutable_links(static_cast<int>(link))->set_fault("no time was left for it");
      }
    }
    return Resume(v1::VALIDATION_STATE_DONE, "the time was too short for some links", now);
  }
  const std::vector<size_t>& pass = passes_[next_pass_++];
  if (tries_ == 1) current().set_passes(current().passes() + 1);
  step_until_ns_ = now.monotonic_ns + pass_ns_ + kAnswerNs;
  for (const size_t i : pass) {
    const PlannedLink& link = plan_.links[i];
    if (tries_ == 1) current().mutable_links(static_cast<int>(i))->set_pass(current().passes());
    const uint64_t number = next_transfer_++;
    transfers_[number] = {i, false};
    v1::ValidationToAgent message;
    v1::TestTransfer* const order = message.mutable_transfer();
    order->set_transfer(number);
    order->set_pid(plan_.processes[link.from].pid);
    order->set_from(link.from_address);
    const bool is_ipv6 = link.to_address.find(':') != std::string::npos;
    order->set_to(Concat(is_ipv6 ? "[" : "", link.to_address, is_ipv6 ? "]" : "", ":", held_[link.to].port));
    order->set_bytes(kTransferBytes);
    order->set_streams(kStreams);
    order->set_ms(static_cast<uint32_t>(pass_ns_ / kMsToNs));
    SendTo(HostOf(link.from), std::move(message));
  }
}

void Validator::TakeTransfer(const v1::TransferResult& result, Now now) {
  const auto found = transfers_.find(result.transfer());
  if (found == transfers_.end() || found->second.done || step_ != Step::kLinks) return;
  found->second.done = true;
  c4d::TakeTransfer(result.fault(), {result.stream_mib_s().begin(), result.stream_mib_s().end()},
                    current().mutable_links(static_cast<int>(found->second.link)));
  const bool over =
      std::all_of(transfers_.begin(), transfers_.end(), [](const auto& entry) { return entry.second.done; });
  if (over) NextPass(now);
}

}  // namespace c4::c4d
