// What a communicator is for, by the workers that its members declared themselves to be: the members of one
// stage with different data-parallel ranks reduce gradients, those of one data-parallel rank with different
// stages are a pipeline.
//
// Plain values; the workers that it points to belong to the profile that it was made of.
#pragma once

#include <cstdint>
#include <map>

#include "c4d_master/smon/profile.h"

namespace c4::c4d {

enum class CommunicatorRole {
  kUnknown,   // too few of its members are known
  kInWorker,  // a tensor or context group: one stage of one data-parallel rank
  kData,      // one stage, several data-parallel ranks
  kPipeline,  // one data-parallel rank, several stages
  kAcross,    // several of both
};

struct RoledCommunicator {
  CommunicatorRole role = CommunicatorRole::kUnknown;
  uint32_t rank_count = 0;
  std::map<uint32_t, const DeclaredWorker*> members;  // those that are known, by rank in it
  bool outer_stages = false;                          // a pipeline of the first and the last stage alone
};

std::map<uint64_t, RoledCommunicator> FindRoles(const Profile& profile);

}  // namespace c4::c4d
