// The C side of redistribution.h: arguments checked, exceptions kept in.
#include <algorithm>
#include <cmath>
#include <exception>
#include <vector>

#include "analysis/include/c4/redistribution.h"
#include "analysis/whatif/redistribution.h"

namespace c4::whatif {
namespace {

// Far more than any job has; what is above is a mistake and would only take memory.
constexpr int64_t kMostRanks = 1 << 20;
constexpr int64_t kMostMicroBatches = 1 << 24;  // of all ranks

thread_local const char* last_error = "";

// What is wrong with the arguments; nullptr: nothing.
const char* Wrong(const c4_redistribution_options_t* options, const uint32_t* tokens, size_t count,
                  const int32_t* dp_rank, const int32_t* micro_batch) {
  if (options == nullptr) return "options is NULL";
  if (options->size != sizeof(c4_redistribution_options_t)) {
    return "options.size is not that of this library's options: begin with "
           "C4_REDISTRIBUTION_OPTIONS_INITIALIZER, and compile with the header of the installed library";
  }
  if (count > 0 && (tokens == nullptr || dp_rank == nullptr || micro_batch == nullptr)) {
    return "tokens, dp_rank and micro_batch have to be arrays of `count` elements, and one is NULL";
  }
  if (options->dp_size < 1 || options->micro_batches < 1 || options->pp_size < 1) {
    return "dp_size, micro_batches and pp_size have to be 1 or more";
  }
  if (options->dp_size > kMostRanks || options->pp_size > kMostRanks ||
      int64_t{options->dp_size} * options->micro_batches > kMostMicroBatches) {
    return "dp_size, micro_batches or pp_size is beyond what a job can have";
  }
  const double costs[] = {options->per_token, options->per_token_squared};
  for (const double cost : costs) {
    if (!std::isfinite(cost) || cost < 0) return "per_token and per_token_squared have to be 0 or more";
  }
  if (costs[0] == 0 && costs[1] == 0) return "per_token or per_token_squared has to be above 0";
  return nullptr;
}

bool Within(const c4_redistribution_options_t& options, size_t count, const int32_t* dp_rank,
            const int32_t* micro_batch) {
  for (size_t i = 0; i < count; ++i) {
    if (dp_rank[i] < 0 || dp_rank[i] >= options.dp_size) return false;
    if (micro_batch[i] < 0 || micro_batch[i] >= options.micro_batches) return false;
  }
  return true;
}

c4_redistribution_result_t Deal(const c4_redistribution_options_t& options, std::span<const uint32_t> tokens,
                                bool placed, int32_t* dp_rank, int32_t* micro_batch,
                                c4_redistribution_gain_t* gain) {
  const SequenceCost cost = {options.per_token, options.per_token_squared};
  const BatchShape shape = {options.dp_size, options.micro_batches, options.pp_size};
  std::vector<Place> before = InOrder(tokens.size(), shape);
  for (size_t i = 0; placed && i < before.size(); ++i) before[i] = {dp_rank[i], micro_batch[i]};
  const std::vector<Place> after =
      Redistribute(tokens, options.dp_size, options.micro_batches, cost, options.most_tokens);
  if (gain != nullptr) {
    gain->step_before = StepWork(tokens, before, shape, cost);
    gain->step_after = StepWork(tokens, after, shape, cost);
    gain->speedup = gain->step_after > 0 ? gain->step_before / gain->step_after : 1;
    gain->fullest_tokens = FullestTokens(tokens, after, shape);
  }
  for (size_t i = 0; i < after.size(); ++i) {
    dp_rank[i] = after[i].dp_rank;
    micro_batch[i] = after[i].micro_batch;
  }
  return C4_REDISTRIBUTION_OK;
}

}  // namespace
}  // namespace c4::whatif

c4_redistribution_result_t c4_redistribute(const c4_redistribution_options_t* options, const uint32_t* tokens,
                                           size_t count, int placed, int32_t* dp_rank, int32_t* micro_batch,
                                           c4_redistribution_gain_t* gain) {
  using namespace c4::whatif;
  last_error = "";
  const char* wrong = Wrong(options, tokens, count, dp_rank, micro_batch);
  if (wrong == nullptr && placed != 0 && !Within(*options, count, dp_rank, micro_batch)) {
    wrong = "a dp_rank or micro_batch of the present places is out of range";
  }
  if (wrong != nullptr) {
    last_error = wrong;
    return C4_REDISTRIBUTION_BAD_ARGUMENT;
  }
  try {
    return Deal(*options, {tokens, count}, placed != 0, dp_rank, micro_batch, gain);
  } catch (const std::exception&) {  // of memory or lengths: nothing else is thrown there
    last_error = "there is not memory enough for so many sequences";
    return C4_REDISTRIBUTION_NO_MEMORY;
  }
}

const char* c4_redistribution_error(void) {
  return c4::whatif::last_error;
}
