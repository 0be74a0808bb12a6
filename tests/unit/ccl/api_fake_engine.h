// An engine for tests of the API layer: it does nothing and remembers what it was asked. Linked in place of
// the real engines, whose ChooseEngine it stands in for.
//
// One record for the whole test program, cleared by Reset; safe from any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ccl/engine/engine.h"

namespace c4::fake {

struct Event {
  std::string what;  // join, record, enqueue, exchange, revoke, finalize, abort, free, forget
  int rank = -1;
  Operation operation;
};

// What the engine answers from now on; Ok until set.
struct Answers {
  Result choose;
  Result unique_id;
  Result private_id;
  Result join;
  // Runs in each join before it is answered, without a lock; may block, and looks at request.cancelled
  // itself.
  std::function<Result(const InitRequest& request)> on_join;
  // Stands for the other ranks of an exchange: fills in what they tell. Empty: all tell zeros.
  std::function<Result(const std::vector<int>& ranks, size_t bytes, char* all)> on_exchange;
  std::function<void()> on_finalize;  // may block
  Result supports;
  Result enqueue;
  int enqueue_after = 0;  // this many Enqueue calls succeed before `enqueue` is given
  Result finalize;
  Result async;
};

void Reset();
void SetAnswers(const Answers& answers);

std::vector<Event> Events();
// Only what happened, such as "record 0, enqueue 0": the number is the rank.
std::string Happened();
// Enqueue calls that succeeded, each with one operation or several.
int Batches();
std::string LastJoinName();
// What the joins that succeeded were asked, in their order.
std::vector<InitRequest> Joins();

// A communicator whose id is greater than those before it, of `rank_count` ranks, of which this is `rank`.
ncclComm_t Join(int rank_count = 1, int rank = 0);

}  // namespace c4::fake
