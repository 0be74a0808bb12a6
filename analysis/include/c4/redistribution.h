/* Sequences dealt out so that all data-parallel ranks, and in them all micro-batches, have the same work: for
 * a data loader that has a global batch before it and can say which sequence goes where. In libc4_whatif.so;
 * from Python: c4_train.redistribution.
 *
 * Every rank that calls this with the same lengths and options gets the same answer, so nothing but the
 * lengths has to be exchanged. Any thread; nothing is kept between calls; no call blocks or throws. All
 * memory is the caller's. */
#ifndef C4_REDISTRIBUTION_H_
#define C4_REDISTRIBUTION_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

typedef struct {
  size_t size; /* sizeof of this struct, as the caller knows it */
  int32_t dp_size;
  int32_t micro_batches; /* of one data-parallel rank in one step */
  int32_t pp_size;       /* pipeline stages, for the gain alone */
  /* A sequence of n tokens costs n * (per_token + n * per_token_squared), in any unit. */
  double per_token;
  double per_token_squared;
  uint64_t most_tokens; /* that a micro-batch can hold; 0: any number */
} c4_redistribution_options_t;

/* No parallelism, work by the token, no limit. */
#define C4_REDISTRIBUTION_OPTIONS_INITIALIZER \
  { sizeof(c4_redistribution_options_t), 1, 1, 1, 1.0, 0.0, 0 }

/* A step in the unit of the costs: what the slowest rank has to compute, and its largest micro-batch once
 * more for each further stage of the pipeline. Communication, and stages that are not alike, are not in it.
 */
typedef struct {
  double step_before;
  double step_after;
  double speedup;          /* before / after */
  uint64_t fullest_tokens; /* of a micro-batch; above most_tokens where not all could be kept to it */
} c4_redistribution_gain_t;

typedef enum {
  C4_REDISTRIBUTION_OK = 0,
  C4_REDISTRIBUTION_BAD_ARGUMENT = 1,
  C4_REDISTRIBUTION_NO_MEMORY = 2
} c4_redistribution_result_t;

/* Fills dp_rank[i] and micro_batch[i] for each of `count` sequences of tokens[i]. With `placed` they hold
 * before where the sequences stand now, which the gain is counted from; otherwise it is counted from
 * sequences dealt out as they come, an even number to each micro-batch. `gain` may be NULL. Unless it returns
 * OK nothing is written. */
c4_redistribution_result_t c4_redistribute(const c4_redistribution_options_t* options, const uint32_t* tokens,
                                           size_t count, int placed, int32_t* dp_rank, int32_t* micro_batch,
                                           c4_redistribution_gain_t* gain);

/* What was wrong with this thread's last call, as a sentence; "" when it returned OK. Not to be freed. */
const char* c4_redistribution_error(void);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
