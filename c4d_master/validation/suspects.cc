#include "c4d_master/validation/suspects.h"

#include "c4d_master/validation/plan.h"

namespace c4::c4d {

absl::Status ValidateSuspects(Validator* validator, const JobSnapshot& snapshot, const Suspects& suspects,
                              OnValidated on_validated, Now now) {
  v1::RunValidationRequest request;
  for (const int32_t rank : suspects.ranks) request.add_ranks(rank);
  for (const auto& [from, to] : suspects.links) {
    v1::RankPair* const pair = request.add_links();
    pair->set_from(from);
    pair->set_to(to);
  }
  absl::StatusOr<ValidationPlan> plan = PlanValidation(snapshot, request);
  if (!plan.ok()) return plan.status();
  return validator
      ->Begin(*std::move(plan), request, true, now,
              [on_validated = std::move(on_validated)](const v1::Validation& validation) {
                on_validated(validation, EvidenceOf(validation));
              })
      .status();
}

}  // namespace c4::c4d
