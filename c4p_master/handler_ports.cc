// Source ports that are asked for: which of them are probed, and when one may be given out.
#include <set>
#include <utility>
#include <vector>

#include "c4p_master/c4p_handler.h"

namespace c4::c4p {
namespace {

// Of ports of one group, in vain.
constexpr int kMostRounds = 6;

}  // namespace

// Of RoCE a port is as good as its two directions: how its acknowledgements go is learnt with it.
void C4pHandler::AskForPorts(int64_t now_ns) {
  for (const FlowGroup& group : book_.Wanting()) {
    if (asked_.contains(group)) continue;
    int& rounds = rounds_[group];
    if (rounds >= kMostRounds) continue;
    const std::vector<service::IpTuple> ports =
        plan_.Ask(group, static_cast<int>(options_.ports_per_pair), book_.KnownPorts(group));
    if (ports.empty()) continue;
    ++rounds;
    std::multiset<service::IpTuple>& waiting = asked_[group].waiting;
    waiting.insert(ports.begin(), ports.end());
    for (const service::IpTuple& tuple : std::set<service::IpTuple>(ports.begin(), ports.end())) {
      const auto acknowledgements = AcknowledgementsOf(tuple);
      if (!acknowledgements || catalogue_.Find(*acknowledgements, now_ns)) continue;
      if (plan_.AskAgain(*acknowledgements)) waiting.insert(*acknowledgements);
    }
  }
}

void C4pHandler::Answered(const FlowGroup& group, const service::IpTuple& tuple) {
  const auto found = asked_.find(group);
  if (found == asked_.end()) return;
  std::multiset<service::IpTuple>& waiting = found->second.waiting;
  const auto one = waiting.find(tuple);
  if (one == waiting.end()) return;
  waiting.erase(one);
  if (!waiting.empty()) return;
  const Asked asked = std::move(found->second);
  asked_.erase(found);
  Complete(group, asked);
}

void C4pHandler::Complete(const FlowGroup& group, const Asked& asked) {
  for (const uint16_t port : asked.named) book_.Learnt(group, port);
  (void)catalogue_.LearnHash(group);
}

// A port of RoCE is given out when both its directions are known, or nobody can tell more of it: a choice
// without them would put acknowledgements on any link.
void C4pHandler::LearnPort(const service::IpTuple& tuple, int64_t now_ns) {
  const FlowGroup group = GroupOf(tuple);
  const auto acknowledgements = AcknowledgementsOf(tuple);
  if (!acknowledgements || catalogue_.Find(*acknowledgements, now_ns)) {
    book_.Learnt(group, tuple.source_port);
    return;
  }
  const auto asked = asked_.find(group);
  if (asked != asked_.end() && asked->second.waiting.contains(tuple)) {
    asked->second.named.insert(tuple.source_port);
  }
}

}  // namespace c4::c4p
