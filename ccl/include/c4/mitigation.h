// Plans: how a training program lives with a part of the job that has become slow (docs/mitigation.md). C4's
// master decides; the program, which alone can, deals out micro-batches anew or lets workers change places.
// It asks between two steps:
//
//   c4Mitigation mitigation = c4FindMitigation();   // once NCCL is loaded
//   for each step:
//     c4Plan plan = {sizeof plan};
//     uint64_t number = mitigation.poll(&plan) ? plan.number : 0;
//     ... the least and the greatest number of all ranks, by a reduction ...
//     if they are equal and not 0:
//       ... do as the plan says: all ranks have it ...
//       mitigation.answer(number, C4_PLAN_DONE, nanoseconds that the job stood still);
//     ... the step ...
//     mitigation.report(&step);
//
// A plan reaches ranks at different moments: do nothing before all have the same one. The reduction costs
// little every step, and less every few steps; then poll as seldom.
//
// Before the first poll say which worker the process is (c4MarkWorker, c4/marks.h), and again once places
// have changed. A plan is made for a layout; where the process is another worker than the plan takes it for,
// the library refuses it by its number, and the program never sees it.
//
// C4_PLAN_MICRO_BATCHES: from now on this process's data-parallel group computes the micro-batches
// `first_micro_batch` to `first_micro_batch + group_micro_batches - 1` of the `micro_batches` of the whole
// batch. Every micro-batch has to count the same: a program that averages gradients over groups multiplies
// the mean of its own group by `weight` times the number of groups; one that sums them over all micro-batches
// divides by `micro_batches` as before.
//
// C4_PLAN_PLACEMENT: this process becomes the worker that `next_` says. Its parameters and its optimizer's
// state go to the job's rank `send_to`, those of its new place come from `receive_from`; -1: nothing goes, or
// comes. Communicators are made anew for the new places by all ranks, also by those that stay where they are.
//
// No call blocks, fails the program or needs an agent; any thread may call any of them at any time. A poll
// costs nanoseconds while there is no plan. Structures are the caller's; nothing of them is kept.
//
// c4FindMitigation finds the functions in the NCCL that is loaded; where that is not ours, there are never
// plans. A program that is linked with our library may call c4PlanPoll and the others directly.
#ifndef C4_MITIGATION_H_
#define C4_MITIGATION_H_

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  C4_PLAN_MICRO_BATCHES = 2,  // S2
  C4_PLAN_PLACEMENT = 3,      // S3
} c4PlanStrategy;

typedef enum {
  C4_PLAN_DONE = 2,     // the plan is in force, on all ranks
  C4_PLAN_REFUSED = 3,  // it cannot be done; nothing has changed
} c4PlanOutcome;

typedef struct {
  size_t size;      // of this structure, in bytes; the caller's
  uint64_t number;  // of the plan, never 0
  int strategy;     // a c4PlanStrategy
  int micro_batches;
  int first_micro_batch;
  int group_micro_batches;
  double weight;  // group_micro_batches / micro_batches
  int next_dp_rank;
  int next_stage;
  int next_tp_rank;
  int next_cp_rank;
  int send_to;
  int receive_from;
} c4Plan;

typedef struct {
  size_t size;  // of this structure, in bytes
  int64_t step;
  int micro_batches;        // of the whole batch
  int group_micro_batches;  // of this process's data-parallel group
  uint64_t micro_batch_ns;  // that this process computes for one, forward and backward
} c4Step;

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

// 1: there is a plan, which is the same again until it is answered or another one takes its place. 0: there
// is none, or `plan` makes no sense.
int c4PlanPoll(c4Plan* plan);

// What has become of the plan with this number: a c4PlanOutcome, and how long the job stood still for it. Of
// a plan that was not polled last: ncclInvalidArgument with a line in the log; else 0.
int c4PlanAnswer(uint64_t number, int outcome, uint64_t cost_ns);

// A step is over. Call it after each one: the newest goes to the agent, about once a second. 0, or
// ncclInvalidArgument with a line in the log.
int c4StepReport(const c4Step* step);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

typedef struct {
  int (*poll)(c4Plan* plan);
  int (*answer)(uint64_t number, int outcome, uint64_t cost_ns);
  int (*report)(const c4Step* step);
} c4Mitigation;

static inline int c4NoPlanPoll(c4Plan* plan) {
  (void)plan;
  return 0;
}
static inline int c4NoPlanAnswer(uint64_t number, int outcome, uint64_t cost_ns) {
  (void)number, (void)outcome, (void)cost_ns;
  return 0;
}
static inline int c4NoStepReport(const c4Step* step) {
  (void)step;
  return 0;
}

// Looks them up; to be kept, not called for each poll.
static inline c4Mitigation c4FindMitigation(void) {
  c4Mitigation mitigation = {c4NoPlanPoll, c4NoPlanAnswer, c4NoStepReport};
  void* const nccl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
  if (!nccl) return mitigation;
  void* const found[] = {dlsym(nccl, "c4PlanPoll"), dlsym(nccl, "c4PlanAnswer"), dlsym(nccl, "c4StepReport")};
  if (found[0] && found[1] && found[2]) {
    // C knows no conversion of a data pointer to a function.
    memcpy(&mitigation.poll, &found[0], sizeof mitigation.poll);
    memcpy(&mitigation.answer, &found[1], sizeof mitigation.answer);
    memcpy(&mitigation.report, &found[2], sizeof mitigation.report);
  }
  dlclose(nccl);
  return mitigation;
}

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // C4_MITIGATION_H_
