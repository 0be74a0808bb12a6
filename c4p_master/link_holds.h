// Which cables are held back: nothing new goes over them, and what is on them moves, though they may carry
// something. Two reasons: somebody drained them (a cable, or a leaf or a spine: all its cables), or they come
// and go. The latter are damped as routers damp routes (RFC 2439): each failure counts 1, what is counted
// halves with each half-life, a cable with more than `hold_above` is held back, also when it is back, until
// less than `use_below` is left.
//
// A cable's name is its two switches', "leaf0-spine1"; several between two switches are one.
//
// Pure; one thread; the caller's monotonic clock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace c4::c4p {

struct FlapOptions {
  int64_t half_life_ns = 120'000'000'000;  // 0: no cable is held back for failing
  double hold_above = 2.5;
  double use_below = 0.75;
  double most = 12;  // counted: four half-lives after its last failure each is used again
};

class LinkHolds {
 public:
  explicit LinkHolds(const FlapOptions& options) : options_(options) {}

  // `target`: a cable's name, or a switch's. AlreadyExists: it is drained.
  absl::Status Drain(const std::string& target, std::string why);
  // NotFound: it is not drained, or only with a switch, which the sentence names.
  absl::Status Undrain(const std::string& target);
  // What was drained, and why.
  const std::map<std::string, std::string>& drains() const { return drains_; }

  // Such a cable carries nothing any more. True: it is held back from now on.
  bool Failed(const std::string& cable, int64_t now_ns);
  // Those that have been quiet for long enough: they are not held back any more.
  std::vector<std::string> Release(int64_t now_ns);
  // What is counted of its failures by now.
  double Flaps(const std::string& cable, int64_t now_ns) const;

  // Empty: it is not held back.
  std::string Why(std::string_view leaf, std::string_view spine) const;

 private:
  struct Flap {
    double count = 0;
    int64_t at_ns = 0;  // when it was that
    bool held = false;
  };
  double CountNow(const Flap& flap, int64_t now_ns) const;

  FlapOptions options_;
  std::map<std::string, std::string> drains_;
  std::map<std::string, Flap> flaps_;
};

}  // namespace c4::c4p
