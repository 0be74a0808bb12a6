// One rank of the language model's training: computes the passes of its worker in 1F1B, reduces gradients
// over the data group, steps. Uses NCCL's API, the marks of c4/marks.h and the plans of c4/mitigation.h,
// nothing else of C4.
//
// Micro-batches are numbered over the whole batch; each replica computes a stretch of them, and each counts
// as much as every other, so that gradients and loss are those of the whole batch, however it is dealt out.
//
// One thread. Errors are sentences on standard error.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ccl/include/c4/marks.h"
#include "ccl/include/c4/mitigation.h"
#include "examples/lm/groups.h"
#include "examples/lm/model.h"
#include "examples/lm/neighbour.h"
#include "examples/lm/options.h"
#include "examples/lm/schedule.h"
#include "examples/lm/state.h"
#include "examples/lm/text.h"

namespace c4::examples::lm {

class Trainer {
 public:
  // REQUIRES: Fits(options, world.size), a text longer than a sequence.
  Trainer(const Options& options, std::string text, const World& world);

  bool Connect();
  bool Train();
  bool Disconnect() { return (!copies_.has_value() || copies_->Close()) && groups_.Disconnect(); }

 private:
  bool first_stage() const { return worker_.stage == 0; }
  bool last_stage() const { return worker_.stage + 1 == layout_.pipeline; }
  Samples SamplesFor(int micro_batch) const;
  void Declare() const;
  // Whether all ranks were given one plan; it is carried out then.
  bool FollowPlan();
  bool DealOut(const c4Plan& plan);
  bool ChangePlaces(const c4Plan& plan);
  void ReportStep() const;
  bool Iterate();
  // Which gives `made` the pass's result. `input`: what its neighbour gave for it.
  bool Compute(const Pass& pass, const std::vector<float>& input, std::vector<float>* made);
  bool Passes();
  bool Update();
  void Linger(double began_s, double least_ms) const;
  bool Report(bool* stop);
  bool Save();
  bool Resume();
  bool ResumeFromMemory(int newer_than, bool* found);
  bool BeginWith(const CheckpointContent& content);
  uint64_t JobHash() const;
  bool KeepCopy();
  bool Summarize();
  // Of all workers, wherever they are.
  bool HashAll(uint64_t* hash) const;

  const Options options_;
  const std::string text_;
  const World world_;
  const Layout layout_;
  Worker worker_;  // which one this rank is now
  Groups groups_;
  std::optional<NeighbourCopies> copies_;
  Model<float> model_;
  Adam adam_;
  const c4Marks marks_ = c4FindMarks();
  const c4Mitigation mitigation_ = c4FindMitigation();
  int first_micro_batch_ = 0;  // of this replica, in the whole batch
  int group_micro_batches_ = 0;
  // Between forward and backward pass, by micro-batch as the replica counts them.
  std::map<int, Model<float>::Kept> flights_;
  int iteration_ = 0;
  double loss_ = 0;  // of this replica's micro-batches, its share of the batch's
  double first_loss_ = 0;
  double last_loss_ = 0;
  double computed_s_ = 0;  // in this iteration's passes
  double copying_s_ = 0;   // that copies in memory took from the training
  double started_s_ = 0;
  double reported_s_ = 0;
  int reported_ = 0;  // iterations
};

}  // namespace c4::examples::lm
