// Predicts the way of ports that nobody probed, where the switches' hash is linear over GF(2) in the port's
// bits, as CRCs and folded XORs are. Two ports then take the same way exactly if their difference lies in the
// kernel of the hash. The differences of ports that were seen to take one way span that kernel (Gaussian
// elimination over 16 bits); its cosets are the ways. So neither the polynomial nor the order of the ways
// need be known.
//
// A quarter of the probed ports is held out: only if each of at least 16 held-out ports is predicted right,
// the model is used; it is dropped as soon as an observation contradicts it. Pure; one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "c4p_master/path_map.h"
#include "c4p_master/path_observation.h"

namespace c4::c4p {

// Label of a 16-bit port, an address that answers, as an affine function of its bits.
class AffineMap {
 public:
  using Sample = std::pair<uint16_t, service::IpAddress>;  // port, label

  static AffineMap Fit(const std::vector<Sample>& samples);
  // False: the samples fit no affine function; nothing is predicted.
  bool consistent() const { return consistent_; }
  // Nothing: of this coset no port was seen.
  std::optional<service::IpAddress> Predict(uint16_t port) const;
  // Independent bits of the hash that the samples leave open.
  int bits() const;

 private:
  void Insert(uint16_t difference);
  uint16_t Reduce(uint16_t port) const;

  std::array<uint16_t, 16> basis_{};  // of the kernel, by leading bit
  std::unordered_map<uint16_t, service::IpAddress> label_by_coset_;
  bool consistent_ = true;
};

enum class LinearState { kTooFew, kVerified, kNotLinear };

struct LinearVerdict {
  LinearState state = LinearState::kTooFew;
  int samples = 0;
  int checked = 0;  // held-out ports that were predicted
  int wrong = 0;
  std::string text() const;
};

class LinearPaths : public PathMap {
 public:
  // Collects; a contradiction to a model in use drops it. Only observations of a whole way count.
  void Add(const PathObservation& seen, int64_t now_ns);
  // Fits and verifies.
  LinearVerdict Learn(const FlowGroup& group);
  LinearVerdict verdict(const FlowGroup& group) const;
  std::optional<KnownPath> Find(const service::IpTuple& tuple, int64_t now_ns) const override;
  // The hash has changed (a link came or went): start anew.
  void Forget(const FlowGroup& group) { groups_.erase(group); }
  uint64_t dropped() const { return dropped_; }

 private:
  // The source's port, the spine and the far leaf are chosen one after the other, each by a hash of its own.
  struct Model {
    AffineMap egress;
    std::map<service::IpAddress, AffineMap> spine;                                  // by egress
    std::map<std::pair<service::IpAddress, service::IpAddress>, AffineMap> remote;  // by egress and spine
    std::optional<HopPath> Predict(uint16_t port) const;
  };
  struct Group {
    std::map<uint16_t, HopPath> samples;
    Model model;
    LinearVerdict verdict;
    int64_t seen_ns = 0;
  };
  static Model Fit(const std::map<uint16_t, HopPath>& samples);

  std::map<FlowGroup, Group> groups_;
  uint64_t dropped_ = 0;
};

}  // namespace c4::c4p
