// When the receives of a profile began, for the sends that belong to them. Part of JoinProfile.
//
// Plain values; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

namespace c4::c4d {

// When the receives of a step began, to be asked for by the sends that belong to them: those of one pair of
// ranks meet in order.
class ReceiveStarts {
 public:
  void Add(uint64_t communicator, uint32_t from, uint32_t to, int32_t step, int64_t started_ns) {
    pairs_[{communicator, from, to, step}].started_ns.push_back(started_ns);
  }
  // Of the next send from one to the other; nothing where its receive was not seen.
  std::optional<int64_t> Next(uint64_t communicator, uint32_t from, uint32_t to, int32_t step) {
    const auto found = pairs_.find({communicator, from, to, step});
    if (found == pairs_.end() || found->second.next == found->second.started_ns.size()) return std::nullopt;
    return found->second.started_ns[found->second.next++];
  }

 private:
  struct Pair {
    std::vector<int64_t> started_ns;
    size_t next = 0;
  };
  std::map<std::tuple<uint64_t, uint32_t, uint32_t, int32_t>, Pair> pairs_;
};

}  // namespace c4::c4d
