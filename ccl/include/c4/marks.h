// Marks: what a training program tells of itself, so that the what-if analysis (docs/whatif.md) can say what
// its stragglers cost. The library sees all communication by itself; what it cannot see is which worker a
// process is, where a step begins and ends, and what is computed in between. A program says so by four calls:
//
//   c4Marks marks = c4FindMarks();                 // once NCCL is loaded
//   c4Worker worker = {sizeof worker};             // once, before the first step
//   worker.dp_rank = ...; worker.stage = ...; worker.dp_size = ...; worker.pp_size = ...;
//   marks.worker(&worker);
//   for each step:
//     uint64_t step_began = marks.begin();
//     uint64_t began = marks.begin();
//     ... the forward computation of a micro-batch ...
//     marks.operation(C4_FORWARD_COMPUTE, micro_batch, 0, began);
//     ... and so on ...
//     marks.step(step, step_began);
//
// Mark computations without the sends, receives and reductions before and behind them (those of a tensor
// group, within a computation, are part of it). Garbage collection within a computation is part of it, too.
// Needed are the worker, the steps, C4_FORWARD_COMPUTE and C4_BACKWARD_COMPUTE of every worker; the rest
// makes the analysis finer.
//
// Times are the CPU's. On a GPU the launch of a kernel takes no time: mark a computation whose end was waited
// for (torch.cuda.synchronize, an event), else what is marked is the launching. Communication has the times
// of its kernels without any of this.
//
// Nothing is recorded but while somebody asks for it (`c4 level fine`, a session of the master): then a mark
// costs some tens of nanoseconds, else two or three. No call blocks, fails the program or needs an agent; any
// thread may call any of them at any time. Arguments that make no sense are said once in the log and left
// out.
//
// c4FindMarks finds the functions in the NCCL that is loaded; where that is not ours, they do nothing. A
// program that is linked with our library may call c4MarkWorker and the others directly; so may Python by
// ctypes: `ctypes.CDLL("libnccl.so.2").c4MarkBegin` (restype c_uint64).
#ifndef C4_MARKS_H_
#define C4_MARKS_H_

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  C4_FORWARD_COMPUTE = 1,           // of one micro-batch and model chunk
  C4_BACKWARD_COMPUTE = 2,          // the same
  C4_OPTIMIZER = 3,                 // the update of the weights
  C4_OPTIMIZER_CLIP_MAIN_GRAD = 4,  // the clipping of gradients, with the norm over all workers
  C4_GC = 5,                        // planned garbage collection, outside of computations
} c4Operation;

// Which worker of the job's layout this process is. Ranks count from 0; a size of 0 counts as 1.
typedef struct {
  size_t size;  // of this structure, in bytes
  int dp_rank;  // data-parallel rank
  int stage;    // of the pipeline
  int tp_rank;  // in the tensor group
  int cp_rank;  // in the context or sequence group
  int dp_size;
  int pp_size;  // stages
  int tp_size;
  int cp_size;
  int vpp_size;  // model chunks a stage (virtual pipeline stages)
  int layers;    // of the model; 0: not said. For advice
} c4Worker;

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

// 0, or ncclInvalidArgument with a line in the log. Again when the job is laid out anew.
int c4MarkWorker(const c4Worker* worker);

// The moment at which something begins, for the two calls below; 0 while nobody records.
uint64_t c4MarkBegin(void);

// An operation that began at `began` is over. `operation`: a c4Operation; `micro_batch` of a computation, and
// `chunk`, the model chunk within the stage; -1: none.
void c4MarkOperation(int operation, int micro_batch, int chunk, uint64_t began);

// A training step, from 0, that began at `began` is over, with everything that belongs to it.
void c4MarkStep(int64_t step, uint64_t began);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

typedef struct {
  int (*worker)(const c4Worker* worker);
  uint64_t (*begin)(void);
  void (*operation)(int operation, int micro_batch, int chunk, uint64_t began);
  void (*step)(int64_t step, uint64_t began);
} c4Marks;

static inline int c4NoMarkWorker(const c4Worker* worker) {
  (void)worker;
  return 0;
}
static inline uint64_t c4NoMarkBegin(void) {
  return 0;
}
static inline void c4NoMarkOperation(int operation, int micro_batch, int chunk, uint64_t began) {
  (void)operation, (void)micro_batch, (void)chunk, (void)began;
}
static inline void c4NoMarkStep(int64_t step, uint64_t began) {
  (void)step, (void)began;
}

// Looks them up; to be kept, not called for each mark.
static inline c4Marks c4FindMarks(void) {
  c4Marks marks = {c4NoMarkWorker, c4NoMarkBegin, c4NoMarkOperation, c4NoMarkStep};
  void* const nccl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
  if (!nccl) return marks;
  void* const found[] = {dlsym(nccl, "c4MarkWorker"), dlsym(nccl, "c4MarkBegin"),
                         dlsym(nccl, "c4MarkOperation"), dlsym(nccl, "c4MarkStep")};
  if (found[0] && found[1] && found[2] && found[3]) {
    // C knows no conversion of a data pointer to a function.
    memcpy(&marks.worker, &found[0], sizeof marks.worker);
    memcpy(&marks.begin, &found[1], sizeof marks.begin);
    memcpy(&marks.operation, &found[2], sizeof marks.operation);
    memcpy(&marks.step, &found[3], sizeof marks.step);
  }
  dlclose(nccl);
  return marks;
}

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // C4_MARKS_H_
