// The network of the simulated job: which links its queue pairs take, and what the transport makes of those
// that carry nothing any more.
#include "tests/support/training_sim.h"

namespace c4::simulation {

std::vector<std::string> TrainingSim::LinksOf(const std::string& source,
                                              const std::string& destination) const {
  const auto it = links_.find({source, destination});
  return it == links_.end() ? std::vector<std::string>() : it->second;
}

std::string TrainingSim::target_cable() const {
  return "leaf" + std::to_string(target_ / shape_.spines) + "-spine" +
         std::to_string(target_ % shape_.spines);
}

// As C4P would know it: the links of both ways.
void TrainingSim::Publish(const Group& group, const QueuePair& queue_pair) {
  const uint32_t ranks[2] = {group.ranks[queue_pair.from], group.ranks[queue_pair.to]};
  const std::string ends[2] = {nic(ranks[0]) + ":" + std::to_string(queue_pair.port),
                               nic(ranks[1]) + ":9000"};
  for (const int way : {0, 1}) {
    const std::string from = "leaf" + std::to_string(leaf(ranks[way]));
    const std::string to = "leaf" + std::to_string(leaf(ranks[1 - way]));
    const std::string spine = "spine" + std::to_string(way == 0 ? queue_pair.spine : queue_pair.ack_spine);
    std::vector<std::string> links = {"host" + std::to_string(ranks[way]) + ">" + from};
    if (queue_pair.crosses) {
      links.push_back(from + ">" + spine);
      links.push_back(to + "<" + spine);
    }
    links.push_back("host" + std::to_string(ranks[1 - way]) + "<" + to);
    links_[{ends[way], ends[1 - way]}] = std::move(links);
  }
}

std::string TrainingSim::MoveTo(const std::string& source, const std::string& destination, uint32_t spine,
                                uint32_t port) {
  for (Group& group : groups_) {
    for (QueuePair& queue_pair : group.queue_pairs) {
      const std::string host = nic(group.ranks[queue_pair.from]);
      if (host + ":" + std::to_string(queue_pair.port) != source) continue;
      if (nic(group.ranks[queue_pair.to]) + ":9000" != destination) continue;
      queue_pair.spine = spine;
      queue_pair.port = port != 0 ? port : next_port_++;
      Publish(group, queue_pair);
      return host + ":" + std::to_string(queue_pair.port);
    }
  }
  return "";
}

bool TrainingSim::OverTarget(const Group& group, const QueuePair& queue_pair) const {
  const uint32_t cut = target_ / shape_.spines;
  return (leaf(group.ranks[queue_pair.from]) == cut || leaf(group.ranks[queue_pair.to]) == cut) &&
         (Takes(queue_pair, false) || Takes(queue_pair, true));
}

void TrainingSim::Fence(QueuePair* queue_pair) {
  queue_pair->dead = any_dead_ = true;
  ++queue_pair->fences;
}

void TrainingSim::Rebuild(const Group& group, QueuePair* queue_pair) {
  queue_pair->dead = false;
  queue_pair->port = next_port_++;
  const uint32_t bad = target_ % shape_.spines;
  for (uint32_t* spine : {&queue_pair->spine, &queue_pair->ack_spine}) {
    *spine = static_cast<uint32_t>(random_() % shape_.spines);
    if (shape_.steered && fault_ == Fault::kCutLink && *spine == bad) *spine = (bad + 1) % shape_.spines;
  }
  queue_pair->last_ns = now_ns_;
  Publish(group, *queue_pair);
}

// What the transport does between two batches: what is stuck is fenced, what was fenced is built anew.
void TrainingSim::FailOver() {
  const auto chance = [&](double share) {
    return std::uniform_real_distribution<double>(0, 1)(random_) < share;
  };
  // A receiver that got no processor time, or a queue that ran full.
  const bool burst = fault_ == Fault::kHiccups && chance(0.1);
  const bool by_link = burst && chance(0.5);
  const auto victim = static_cast<uint32_t>(random_() % ranks_.size());
  if (by_link) target_ = static_cast<uint32_t>(random_() % (shape_.spines * (1 + leaf(shape_.ranks() - 1))));
  any_dead_ = false;
  for (Group& group : groups_) {
    for (QueuePair& queue_pair : group.queue_pairs) {
      if (queue_pair.dead) {
        Rebuild(group, &queue_pair);
      } else if (fault_ == Fault::kHiccups) {
        const bool hit = burst && (by_link ? OverTarget(group, queue_pair) && chance(0.5)
                                           : group.ranks[queue_pair.to] == victim && chance(0.7));
        if (hit || chance(0.002)) Fence(&queue_pair);
      } else if (fault_ == Fault::kCutLink && OverTarget(group, queue_pair) &&
                 chance(0.6)) {  // with the next data, or the next sign of life
        Fence(&queue_pair);
      }
    }
  }
}

}  // namespace c4::simulation
