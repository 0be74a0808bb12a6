// Remembers, between two readings of the hardware, how far each counter has grown and which levels have been
// entered. Pure: values and times are given. Bounded: devices beyond kMostWatched are not watched. One
// thread an object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "c4a/health/event.h"
#include "c4a/health/rules.h"

namespace c4::agent {

inline constexpr size_t kMostWatched = 8192;  // pairs of device and counter, or of device and level

class CounterWatch {
 public:
  // The counter's value at that moment. An event when it has grown by the rule's amount within a minute, at
  // most one a minute. A counter that goes back was reset: it begins anew. The first value tells nothing.
  void Take(const CounterRule& rule, const std::string& device, uint64_t value, int64_t now_ns,
            std::vector<HealthEvent>* events);

 private:
  struct State {
    uint64_t base = 0;
    int64_t base_ns = 0;
    int64_t told_ns = 0;  // 0: never
  };
  std::map<std::pair<std::string, std::string_view>, State, std::less<>> states_;
};

class LevelWatch {
 public:
  // True when the level is entered: it holds now, and has not for kRearmNs, or never has.
  bool Entered(std::string_view rule, const std::string& device, bool holds, int64_t now_ns);

 private:
  std::map<std::pair<std::string, std::string>, int64_t, std::less<>> held_ns_;  // when it last did
};

}  // namespace c4::agent
