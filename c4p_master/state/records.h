// What the records of a path master's state say, and under which keys they stand: messages of
// path_state.proto, each behind a checksum of key and content, so that what was damaged is not believed.
//
// Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "c4p_master/catalogue.h"
#include "c4p_master/state/path_state.pb.h"
#include "c4p_master/state/state_store.h"
#include "c4p_master/topology.h"

namespace c4::c4p {

inline constexpr std::string_view kMasterKey = "master";
inline constexpr std::string_view kConnectionKeys = "connection/";
inline constexpr std::string_view kPathsKeys = "paths/";
inline constexpr std::string_view kLeafKeys = "leaf/";
inline constexpr std::string_view kSpineKeys = "spine/";
inline constexpr std::string_view kHostKeys = "host/";
inline constexpr std::string_view kDrainKeys = "drain/";

std::string Key(std::string_view keys, std::string_view name);
std::string PathsKey(const FlowGroup& group);

std::string Seal(std::string_view key, const google::protobuf::MessageLite& message);
// DataLoss: it is not what was written.
absl::Status Unseal(std::string_view key, std::string_view record, google::protobuf::MessageLite* message);

// The epoch of a master that comes after the one that wrote the records: `wished`, or the next after that
// one's, where a clock went back. DataLoss.
absl::StatusOr<uint64_t> NextEpoch(const StateRecords& records, uint64_t wished);

stored::Paths StoredPaths(const FlowGroup& group, const std::map<uint16_t, HopPath>& ways);
// What probes would say that saw these paths. Nothing where an address is none.
std::vector<PathObservation> ObservationsOf(const stored::Paths& paths);

// Names and addresses of the switches, and their links with what is wrong with them; by key.
StateRecords StoredSwitches(const Topology& topology);
// The same back again, as far as it can be: no servers.
absl::StatusOr<Topology> SwitchesOf(const StateRecords& records);

// For whoever reads that a store cannot be used; `place`: which.
std::string HowToGoOn(std::string_view place);

}  // namespace c4::c4p
