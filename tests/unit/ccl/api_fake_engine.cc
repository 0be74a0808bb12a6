#include "tests/unit/ccl/api_fake_engine.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <mutex>

namespace c4 {
namespace fake {
namespace {

std::mutex mutex;
Answers answers;
std::vector<Event> events;
std::string join_name;
int enqueued = 0;
int batches = 0;
uint64_t next_id = 1;

void Note(const char* what, int rank, const Operation& operation = {}) {
  const std::lock_guard<std::mutex> lock(mutex);
  events.push_back({what, rank, operation});
}

Answers Current() {
  const std::lock_guard<std::mutex> lock(mutex);
  return answers;
}

class FakeCommunicator : public Communicator {
 public:
  FakeCommunicator(int rank_count, int rank, uint64_t id) : rank_count_(rank_count), rank_(rank), id_(id) {}
  ~FakeCommunicator() override { Note("free", rank_); }

  uint64_t id() const override { return id_; }
  int rank() const override { return rank_; }
  int rank_count() const override { return rank_count_; }
  uint64_t RecordCall(const Operation& operation) override {
    Note("record", rank_, operation);
    return 1;
  }
  Result Supports(const Operation&) const override { return Current().supports; }
  Result Enqueue(const Operation* operations, size_t count) override {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!answers.enqueue.ok() && enqueued++ >= answers.enqueue_after) return answers.enqueue;
      ++batches;
    }
    for (size_t i = 0; i < count; ++i) Note("enqueue", rank_, operations[i]);
    return Ok();
  }
  Result Finalize() override {
    Note("finalize", rank_);
    return Current().finalize;
  }
  void Abort() override { Note("abort", rank_); }
  Result AsyncError() const override { return Current().async; }

 private:
  const int rank_count_;
  const int rank_;
  const uint64_t id_;
};

class FakeEngine : public Engine {
 public:
  Result GetUniqueId(ncclUniqueId* id) override {
    *id = {};
    id->internal[0] = 'F';
    return Current().unique_id;
  }
  Result InitRank(int rank_count, const ncclUniqueId&, int rank, const char* name,
                  std::unique_ptr<Communicator>* communicator) override {
    C4_RETURN_IF_ERROR(Current().join);
    Note("join", rank);
    const std::lock_guard<std::mutex> lock(mutex);
    join_name = name;
    *communicator = std::make_unique<FakeCommunicator>(rank_count, rank, next_id++);
    return Ok();
  }
};

// The refusals that these tests provoke are not for the log of the test run.
[[maybe_unused]] const bool quiet = setenv("NCCL_DEBUG", "NONE", 0) == 0;  // NOLINT(concurrency-mt-unsafe)

}  // namespace

void Reset() {
  const std::lock_guard<std::mutex> lock(mutex);
  answers = {};
  events.clear();
  join_name.clear();
  enqueued = 0;
  batches = 0;
}

void SetAnswers(const Answers& wanted) {
  const std::lock_guard<std::mutex> lock(mutex);
  answers = wanted;
  enqueued = 0;
}

std::vector<Event> Events() {
  const std::lock_guard<std::mutex> lock(mutex);
  return events;
}

std::string Happened() {
  std::string text;
  for (const Event& event : Events()) {
    text += (text.empty() ? "" : ", ") + event.what + " " + std::to_string(event.rank);
  }
  return text;
}

int Batches() {
  const std::lock_guard<std::mutex> lock(mutex);
  return batches;
}

std::string LastJoinName() {
  const std::lock_guard<std::mutex> lock(mutex);
  return join_name;
}

ncclComm_t Join(int rank_count, int rank) {
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  EXPECT_EQ(ncclCommInitRank(&comm, rank_count, id, rank), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_NE(comm, nullptr);
  return comm;
}

}  // namespace fake

Result ChooseEngine(const ncclUniqueId*, Engine** engine) {
  static fake::FakeEngine the_engine;
  *engine = &the_engine;
  return fake::Current().choose;
}

}  // namespace c4
