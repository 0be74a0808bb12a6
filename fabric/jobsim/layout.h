// The communicators of a job: who is in them, and in which of them each rank plays which role.
//
// Plain values, made once. No threads.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "fabric/jobsim/job.h"

namespace c4::jobsim {

enum class Role : uint8_t { kTensor, kExpert, kData, kPipeline, kWorld };
inline constexpr size_t kRoles = 5;
inline constexpr uint32_t kNoGroup = UINT32_MAX;

// A communicator.
struct Group {
  uint64_t id = 0;
  Role role = Role::kTensor;
  std::vector<uint32_t> ranks;  // of a pipeline: its stages, in order

  bool point_to_point() const { return role == Role::kPipeline; }
  std::string name() const;
};

// A rank's place in the group of a role.
struct Place {
  uint32_t group = kNoGroup;
  uint32_t member = 0;
};

struct Layout {
  std::vector<Group> groups;                      // of more than one rank
  std::vector<std::array<Place, kRoles>> places;  // by rank

  const Place& place(uint32_t rank, Role role) const { return places[rank][static_cast<size_t>(role)]; }
};

// `life`: communicators of another life of the job have other numbers.
Layout MakeLayout(const Shape& shape, uint32_t life = 0);

}  // namespace c4::jobsim
