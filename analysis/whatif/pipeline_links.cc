#include "analysis/whatif/pipeline_links.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace c4::whatif {
namespace {

// A receive that starts later than this after its last computation has started, or a send that ends earlier
// than this before its first computation has ended, was recorded and never happened.
constexpr double kClockSlack_s = 50e-6;

struct Direction {
  OperationType compute;
  OperationType send;
  OperationType recv;
  int to;  // the next stage in this direction: +1 or -1
};

constexpr Direction kDirections[] = {
    {OperationType::kForwardCompute, OperationType::kForwardSend, OperationType::kForwardRecv, 1},
    {OperationType::kBackwardCompute, OperationType::kBackwardSend, OperationType::kBackwardRecv, -1},
};

class Linker {
 public:
  explicit Linker(const Trace& trace) : trace_(trace) {
    for (const TemplateOperation& operation : trace.operations)
      chunks_ = std::max(chunks_, operation.chunk + 1);
  }

  absl::StatusOr<PipelineLinks> Link() {
    for (const Direction& direction : kDirections) {
      std::vector<std::vector<uint32_t>> sends;
      std::vector<std::vector<uint32_t>> recvs;
      for (int stage = 0; stage < trace_.pp_size; ++stage) {
        for (const bool send : {true, false}) {
          absl::StatusOr<std::vector<uint32_t>> real = RealEnds(direction, stage, send);
          if (!real.ok()) return real.status();
          (send ? sends : recvs).push_back(*std::move(real));
        }
      }
      for (int stage = 0; stage < trace_.pp_size; ++stage) {
        const absl::Status paired = Pair(direction, stage, sends, recvs);
        if (!paired.ok()) return paired;
      }
    }
    return std::move(links_);
  }

 private:
  const TemplateOperation& At(uint32_t operation) const { return trace_.operations[operation]; }

  std::vector<uint32_t> Of(int stage, OperationType type) const {
    std::vector<uint32_t> operations;
    for (size_t i = 0; i < trace_.Count(stage, type); ++i) {
      operations.push_back(static_cast<uint32_t>(trace_.Find(stage, type, i)));
    }
    SortByStart(trace_, &operations);
    return operations;
  }

  // The sends (or receives) of a stage that have a partner, in order; each is given its computation.
  absl::StatusOr<std::vector<uint32_t>> RealEnds(const Direction& direction, int stage, bool send) {
    const OperationType type = send ? direction.send : direction.recv;
    std::vector<uint32_t> ends = Of(stage, type);
    const size_t computations = trace_.Count(stage, direction.compute);
    double last_start_s = -std::numeric_limits<double>::infinity();
    double first_end_s = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < computations; ++i) {
      const TemplateOperation& compute = trace_.operations[trace_.Find(stage, direction.compute, i)];
      last_start_s = std::max(last_start_s, compute.start_s);
      first_end_s = std::min(first_end_s, compute.end_s);
    }
    std::erase_if(ends, [&](uint32_t end) {
      return send ? At(end).end_s < first_end_s - kClockSlack_s
                  : At(end).start_s > last_start_s + kClockSlack_s;
    });
    // A profile has one for each computation; or one for each that has a partner; or, of the outer stages
    // with virtual ones, one too few, which is the first receive or the last send.
    std::vector<uint32_t> of_all;
    std::vector<uint32_t> of_partners;
    for (size_t i = 0; i < computations; ++i) {
      of_all.push_back(static_cast<uint32_t>(trace_.Find(stage, direction.compute, i)));
      if (HasPartner(direction, stage, send, At(of_all.back()))) of_partners.push_back(of_all.back());
    }
    const bool outer = stage == 0 || stage == trace_.pp_size - 1;
    std::vector<uint32_t>* matches = nullptr;
    if (ends.size() == of_all.size()) {
      matches = &of_all;
    } else if (ends.size() == of_partners.size()) {
      matches = &of_partners;
    } else if (outer && ends.size() + 1 == of_all.size()) {
      matches = &of_all;
      if (!send) of_all.erase(of_all.begin());
    } else if (!outer || !ends.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "stage ", stage, " has ", ends.size(), " ", OperationName(type), " operations for ", computations,
          " ", OperationName(direction.compute), " operations (in step ", trace_.steps.front(),
          ", dp_rank 0): ", "record every send and receive, or leave the step out with --steps"));
    }
    std::vector<uint32_t> real;
    for (size_t i = 0; i < ends.size(); ++i) {
      const uint32_t compute = (*matches)[i];
      links_.computations.emplace_back(ends[i], compute);
      if (HasPartner(direction, stage, send, At(compute))) real.push_back(ends[i]);
    }
    return real;
  }

  // The first chunk of the model receives nothing and the last sends nothing, whatever was recorded.
  bool HasPartner(const Direction& direction, int stage, bool send, const TemplateOperation& compute) const {
    const int chunk = compute.global_chunk >= 0 ? compute.global_chunk
                                                : stage + std::max(0, compute.chunk) * trace_.pp_size;
    const int partner = chunk + (send ? direction.to : -direction.to);
    return partner >= 0 && partner < std::max(1, chunks_) * trace_.pp_size;
  }

  absl::Status Pair(const Direction& direction, int stage, const std::vector<std::vector<uint32_t>>& sends,
                    const std::vector<std::vector<uint32_t>>& recvs) {
    const int next = (stage + direction.to + trace_.pp_size) % trace_.pp_size;
    const std::vector<uint32_t>& from = sends[static_cast<size_t>(stage)];
    const std::vector<uint32_t>& into = recvs[static_cast<size_t>(next)];
    if (from.size() != into.size()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "stage ", stage, " has ", from.size(), " ", OperationName(direction.send), " operations, stage ",
          next, " has ", into.size(), " ", OperationName(direction.recv), " operations for them (in step ",
          trace_.steps.front(), ", dp_rank 0): record both ends of every transfer"));
    }
    for (size_t i = 0; i < from.size(); ++i) links_.transfers.emplace_back(from[i], into[i]);
    return absl::OkStatus();
  }

  const Trace& trace_;
  int chunks_ = 0;
  PipelineLinks links_;
};

}  // namespace

void SortByStart(const Trace& trace, std::vector<uint32_t>* operations) {
  std::stable_sort(operations->begin(), operations->end(), [&trace](uint32_t a, uint32_t b) {
    const TemplateOperation& left = trace.operations[a];
    const TemplateOperation& right = trace.operations[b];
    if (left.start_s != right.start_s) return left.start_s < right.start_s;
    if (left.index != right.index) return left.index < right.index;
    return left.type < right.type;
  });
}

absl::StatusOr<PipelineLinks> LinkPipeline(const Trace& trace) {
  return Linker(trace).Link();
}

}  // namespace c4::whatif
