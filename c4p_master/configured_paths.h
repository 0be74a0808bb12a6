// The ways that the operator's switches are configured to take for certain source ports, from a file
// (docs/formats/paths.md): a list of rules, of which the first that fits a tuple counts. For networks whose
// switches steer by access lists or marks instead of a hash.
//
// Names are looked up in the topology at hand when a path is asked for; a rule that names what that topology
// does not have fits nothing. A value, one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "c4p_master/path_map.h"

namespace c4::c4p {

class ConfiguredPaths : public PathMap {
 public:
  // InvalidArgument: "line 12: ...".
  static absl::StatusOr<ConfiguredPaths> Parse(std::string_view text);

  // Must outlive its use; null: nothing is known.
  void SetTopology(const Topology* topology) { topology_ = topology; }
  std::optional<KnownPath> Find(const service::IpTuple& tuple, int64_t now_ns) const override;
  // Sentences for rules that name what `topology` does not have.
  std::vector<std::string> Contradictions(const Topology& topology) const;

  size_t size() const { return rules_.size(); }

 private:
  struct Prefix {
    service::IpAddress address;
    service::IpAddress mask;  // none: holds every address
    bool Holds(service::IpAddress one) const {
      return (one.high & mask.high) == address.high && (one.low & mask.low) == address.low;
    }
  };
  struct Rule {
    int line = 0;
    std::optional<service::IpProtocol> protocol;
    Prefix source, destination;
    int destination_port = 0;  // 0: any
    int first_port = 1, last_port = 65535;
    int modulo = 1, remainder = 0;
    std::string leaf;         // empty: the source's only one
    std::string spine;        // empty: within the leaf
    std::string remote_leaf;  // empty: the destination's only one
  };
  static bool Fits(const Rule& rule, const service::IpTuple& tuple);

  std::vector<Rule> rules_;
  const Topology* topology_ = nullptr;
};

}  // namespace c4::c4p
