#include "c4a/order_bounds.h"

#include <set>
#include <string>

namespace c4::agent {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

absl::Status TooMany(const char* what, size_t count, size_t most) {
  return absl::ResourceExhaustedError("it has " + std::to_string(count) + " " + what + ", of at most " +
                                      std::to_string(most));
}

}  // namespace

absl::Status OrderBounds::Check(const ProbeOrder& order, const ProberOptions& options, size_t queued,
                                int64_t now_ns) {
  if (now_ns - second_ns_ >= kSecondNs) {
    second_ns_ = now_ns;
    orders_ = 0;
  }
  if (++orders_ > options.max_orders_per_second) {
    return absl::ResourceExhaustedError("there are more than " +
                                        std::to_string(options.max_orders_per_second) + " orders a second");
  }
  const size_t tuples = order.tuples.size();
  if (tuples > options.max_order_tuples) return TooMany("ports to probe", tuples, options.max_order_tuples);
  std::set<service::IpAddress> targets;
  for (const service::IpTuple& tuple : order.tuples) targets.insert(tuple.destination);
  if (targets.size() > options.max_order_targets) {
    return TooMany("targets", targets.size(), options.max_order_targets);
  }
  if (queued + tuples > options.max_queued) {
    return absl::ResourceExhaustedError("the prober has " + std::to_string(queued) +
                                        " tuples waiting: ask again later, or for fewer");
  }
  return absl::OkStatus();
}

}  // namespace c4::agent
