#include "tests/unit/ccl/api_fake_engine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <mutex>

namespace c4 {
namespace fake {
namespace {

std::mutex mutex;
Answers answers;
std::vector<Event> events;
std::string join_name;
std::vector<InitRequest> joins;
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
  void TakeBackCall(const Operation& operation) override { Note("take back", rank_, operation); }
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
  Result GatherRecords(const void* mine, size_t bytes, void* all) override {
    std::vector<int> ranks(static_cast<size_t>(rank_count_));
    for (int i = 0; i < rank_count_; ++i) ranks[static_cast<size_t>(i)] = i;
    return GatherRecordsAmong(ranks, mine, bytes, all, nullptr);
  }
  Result GatherRecordsAmong(const std::vector<int>& ranks, const void* mine, size_t bytes, void* all,
                            const std::atomic<bool>*) override {
    Note("exchange", rank_);
    auto* const records = static_cast<char*>(all);
    memset(records, 0, ranks.size() * bytes);
    const auto self = std::find(ranks.begin(), ranks.end(), rank_);
    EXPECT_NE(self, ranks.end());
    memcpy(records + static_cast<size_t>(self - ranks.begin()) * bytes, mine, bytes);
    const auto on_exchange = Current().on_exchange;
    return on_exchange ? on_exchange(ranks, bytes, records) : Ok();
  }
  void Revoke() override { Note("revoke", rank_); }
  Result Finalize() override {
    if (const auto on_finalize = Current().on_finalize) on_finalize();
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
  Result GetPrivateId(ncclUniqueId* id) override {
    *id = {};
    id->internal[0] = 'P';
    return Current().private_id;
  }
  void ForgetId(const ncclUniqueId&) override { Note("forget", -1); }
  Result InitRank(const InitRequest& request, std::unique_ptr<Communicator>* communicator) override {
    const Answers now = Current();
    C4_RETURN_IF_ERROR(now.join);
    if (now.on_join) C4_RETURN_IF_ERROR(now.on_join(request));
    Note("join", request.rank);
    const std::lock_guard<std::mutex> lock(mutex);
    join_name = request.name;
    joins.push_back(request);
    *communicator = std::make_unique<FakeCommunicator>(request.rank_count, request.rank, next_id++);
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
  joins.clear();
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

std::vector<InitRequest> Joins() {
  const std::lock_guard<std::mutex> lock(mutex);
  return joins;
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
