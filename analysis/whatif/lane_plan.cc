#include "analysis/whatif/lane_plan.h"

#include <algorithm>

namespace c4::whatif {
namespace {

template <typename T>
bool Has(const std::vector<T>& list, T value) {
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

LanePlan::LanePlan(const Trace& trace, const Scenario& scenario) : trace_(trace), scenario_(scenario) {
  std::map<std::vector<uint32_t>, uint32_t> kinds;
  std::vector<std::vector<uint32_t>> of_step(trace.steps.size());
  for (uint32_t i = 0; i < scenario.chosen.size(); ++i) {
    const std::vector<size_t>& steps = scenario.chosen[i].steps;
    if (steps.empty()) {
      for (std::vector<uint32_t>& selections : of_step) selections.push_back(i);
    } else {
      for (const size_t step : steps) of_step[step].push_back(i);
    }
  }
  for (const std::vector<uint32_t>& selections : of_step) {
    const auto [kind, made] = kinds.try_emplace(selections, static_cast<uint32_t>(kinds_.size()));
    if (made) kinds_.push_back(MakeKind(selections));
    kind_of_.push_back(kind->second);
  }
}

LanePlan::Kind LanePlan::MakeKind(const std::vector<uint32_t>& selections) {
  const auto dp_size = static_cast<size_t>(trace_.dp_size);
  std::vector<uint32_t> everywhere;
  std::map<int, std::vector<uint32_t>> only;  // by data-parallel rank
  for (const uint32_t i : selections) {
    const Selection& selection = scenario_.chosen[i];
    if (selection.dp_ranks.empty()) everywhere.push_back(i);
    for (const int dp : selection.dp_ranks) only[dp].push_back(i);
  }
  Kind kind;
  kind.masks.assign(dp_size, Mask(everywhere));
  for (auto& [dp, more] : only) {
    more.insert(more.end(), everywhere.begin(), everywhere.end());
    kind.masks[static_cast<size_t>(dp)] = Mask(more);
  }
  bool replaced = false;
  for (const OperationMask* mask : kind.masks) {
    if (mask == all_replaced_) {
      replaced = true;
    } else {
      ++kind.lanes;
    }
  }
  kind.lanes += replaced ? 1 : 0;
  if (kind.lanes == dp_size && std::count(kind.masks.begin(), kind.masks.end(), kind.masks.front()) ==
                                   static_cast<ptrdiff_t>(dp_size)) {
    kind.uniform = kind.masks.front();
  }
  return kind;
}

const OperationMask* LanePlan::Mask(const std::vector<uint32_t>& selections) {
  std::unique_ptr<OperationMask>& mask = masks_[selections];
  if (mask != nullptr) return mask.get();
  const bool keep = scenario_.mode == Scenario::Chosen::kKeep;
  mask = std::make_unique<OperationMask>(trace_.operations.size(), keep ? 0 : 1);
  for (const uint32_t i : selections) {
    const Selection& selection = scenario_.chosen[i];
    for (size_t operation = 0; operation < trace_.operations.size(); ++operation) {
      const TemplateOperation& one = trace_.operations[operation];
      if ((selection.types & TypeBit(one.type)) == 0 || !Has(selection.stages, one.stage)) continue;
      (*mask)[operation] = keep ? 1 : 0;
    }
  }
  if (std::find(mask->begin(), mask->end(), uint8_t{1}) == mask->end()) {
    if (all_replaced_ != nullptr) return all_replaced_;
    all_replaced_ = mask.get();
  }
  return mask.get();
}

void LanePlan::Append(size_t step, std::vector<Lane>* lanes) const {
  const Kind& kind = KindOf(step);
  bool replaced = false;
  for (int dp = 0; dp < trace_.dp_size; ++dp) {
    const OperationMask* mask = kind.masks[static_cast<size_t>(dp)];
    if (mask == all_replaced_) {
      if (replaced) continue;
      replaced = true;
    }
    lanes->push_back({static_cast<uint32_t>(trace_.Lane(step, dp)), mask, &scenario_.replacement});
  }
}

void LanePlan::AppendAll(size_t step, std::vector<Lane>* lanes) const {
  for (int dp = 0; dp < trace_.dp_size; ++dp) {
    lanes->push_back({static_cast<uint32_t>(trace_.Lane(step, dp)),
                      KindOf(step).masks[static_cast<size_t>(dp)], &scenario_.replacement});
  }
}

}  // namespace c4::whatif
