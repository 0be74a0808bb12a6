// Random programs on the exported functions, several ranks in this process: groups of collectives and
// transfers over communicators that are split and destroyed on the way, on several streams, and an abort in
// the middle of an operation at the end of some. Every result is checked against plain arithmetic.
//
// C4_SOAK_PROGRAMS and C4_SOAK_SEED run more of them; a failure says its seed, which is the whole program.
#include <array>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ccl/base/clock.h"
#include "ccl/include/c4/stream.h"
#include "ccl/include/nccl.h"

namespace c4 {
namespace {

constexpr uint64_t kSecondNs = 1000000000u;
constexpr int kStreams = 3;  // of each rank
constexpr size_t kCounts[] = {0, 1, 3, 17, 1000, 4099, 70001, 300000};

// Read when it is first used, so before that.
[[maybe_unused]] const bool environment = [] {
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);  // NOLINT(concurrency-mt-unsafe)
  setenv("NCCL_DEBUG", "NONE", 0);        // NOLINT(concurrency-mt-unsafe)
  setenv("C4_MONITOR", "0", 1);           // NOLINT(concurrency-mt-unsafe)
  setenv("C4_CONTROL", "0", 1);           // NOLINT(concurrency-mt-unsafe)
  unsetenv("NCCL_COMM_ID");               // NOLINT(concurrency-mt-unsafe)
  return true;
}();

unsigned Number(const char* name, unsigned otherwise) {
  const char* const text = getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody changes it
  return text == nullptr ? otherwise : static_cast<unsigned>(strtoul(text, nullptr, 10));
}

enum class Function {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAlltoAll,
  kGather,
  kScatter,
  kShift,  // a send and a receive
};
constexpr int kFunctions = 9;

struct Call {
  Function function = Function::kAllReduce;
  int id = 0;
  int comm = 0;
  int stream = 0;
  int root = 0;
  int shift = 0;
  size_t count = 0;
  bool is_float = true;  // else int8
  bool maximum = false;
  bool in_place = false;
};

struct Step {
  enum Kind { kGroup, kSplit, kDestroy, kSynchronize } kind = kGroup;
  std::vector<Call> calls;   // of a group
  int comm = 0;              // that is split or destroyed
  std::vector<int> colours;  // by rank of that communicator
  std::vector<int> keys;     // likewise
  std::vector<int> parts;    // by colour: the communicator that it makes
};

// The communicators of a program, by number, and what happens to them. All ranks make the same one.
struct Program {
  int ranks = 0;
  std::vector<std::vector<int>> comms;  // ranks of the first communicator, in the order of this one's
  std::vector<Step> steps;
  int aborted = -1;  // communicator; -1: none
  int aborts = 0;    // its rank that does it
};

class Author {
 public:
  explicit Author(unsigned seed) : random_(seed) {}

  Program Write() {
    program_.ranks = 2 + Below(5);
    std::vector<int> all;
    all.reserve(static_cast<size_t>(program_.ranks));
    for (int i = 0; i < program_.ranks; ++i) all.push_back(i);
    Open(all);
    const int steps = 6 + Below(10);
    for (int i = 0; i < steps; ++i) WriteStep();
    program_.steps.push_back(
        {.kind = Step::kSynchronize, .calls = {}, .colours = {}, .keys = {}, .parts = {}});
    if (Below(2) == 0) {
      const int comm = Alive();
      if (program_.comms[static_cast<size_t>(comm)].size() > 1) {
        program_.aborted = comm;
        program_.aborts = Below(static_cast<int>(program_.comms[static_cast<size_t>(comm)].size()));
      }
    }
    return program_;
  }

 private:
  int Below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
  int Alive() { return alive_[static_cast<size_t>(Below(static_cast<int>(alive_.size())))]; }
  int Open(std::vector<int> members) {
    program_.comms.push_back(std::move(members));
    alive_.push_back(static_cast<int>(program_.comms.size()) - 1);
    return alive_.back();
  }

  void WriteStep() {
    Step step;
    const int dice = Below(10);
    if (dice < 6) {
      const int calls = 1 + Below(5);
      for (int i = 0; i < calls; ++i) step.calls.push_back(WriteCall());
    } else if (dice < 8) {
      WriteSplit(&step);
    } else if (dice == 8 && alive_.size() > 1) {
      step.kind = Step::kDestroy;
      const int at = 1 + Below(static_cast<int>(alive_.size()) - 1);
      step.comm = alive_[static_cast<size_t>(at)];
      alive_.erase(alive_.begin() + at);
    } else {
      step.kind = Step::kSynchronize;
    }
    program_.steps.push_back(std::move(step));
  }

  Call WriteCall() {
    Call call;
    call.function = static_cast<Function>(Below(kFunctions));
    call.id = next_id_++;
    call.comm = Alive();
    call.stream = Below(kStreams);
    const int ranks = static_cast<int>(program_.comms[static_cast<size_t>(call.comm)].size());
    call.root = Below(ranks);
    call.shift = Below(ranks);
    call.count = kCounts[Below(static_cast<int>(std::size(kCounts)))];
    call.is_float = Below(2) == 0;
    call.maximum = Below(3) == 0;
    call.in_place = Below(2) == 0;
    return call;
  }

  void WriteSplit(Step* step) {
    step->kind = Step::kSplit;
    step->comm = Alive();
    const std::vector<int> members = program_.comms[static_cast<size_t>(step->comm)];
    for (size_t i = 0; i < members.size(); ++i) {
      step->colours.push_back(Below(4) == 0 ? NCCL_SPLIT_NOCOLOR : Below(2));
      step->keys.push_back(Below(3));
    }
    for (int colour = 0; colour < 2; ++colour) {
      std::vector<int> part;
      for (int key = 0; key < 3; ++key) {
        for (size_t i = 0; i < members.size(); ++i) {
          if (step->colours[i] == colour && step->keys[i] == key) part.push_back(members[i]);
        }
      }
      step->parts.push_back(part.empty() ? -1 : Open(part));
    }
  }

  std::mt19937 random_;
  Program program_;
  std::vector<int> alive_;
  int next_id_ = 0;
};

int ValueOf(const Call& call, int rank, size_t index) {
  return static_cast<int>((static_cast<size_t>(call.id) * 7 + static_cast<size_t>(rank) * 3 + index) % 5);
}

// The buffers of a call, and what has to be in them when it is over.
class Running {
 public:
  Running(const Call& call, int rank, int ranks) : call_(call), rank_(rank), ranks_(ranks) {
    const auto n = static_cast<size_t>(ranks);
    const Function f = call.function;
    const bool many_in = f == Function::kReduceScatter || f == Function::kAlltoAll ||
                         (f == Function::kScatter && rank == call.root);
    const bool many_out = f == Function::kAllGather || f == Function::kAlltoAll ||
                          (f == Function::kGather && rank == call.root);
    in_elements_ = call.count * (many_in ? n : 1);
    out_elements_ = call.count * (many_out ? n : 1);
    in_place_ =
        call.in_place && (f == Function::kAllReduce || f == Function::kReduce || f == Function::kBroadcast);
    input_.resize(in_elements_ * bytes() + 1);
    output_.resize(out_elements_ * bytes() + 1, 'x');
    for (size_t i = 0; i < in_elements_; ++i) Put(input_.data(), i, ValueOf(call, rank, i));
    if (in_place_) memcpy(output_.data(), input_.data(), in_elements_ * bytes());
  }

  ncclResult_t Enqueue(ncclComm_t comm, cudaStream_t stream) {
    const void* const in = in_place_ ? output_.data() : input_.data();
    void* const out = output_.data();
    const ncclDataType_t type = call_.is_float ? ncclFloat32 : ncclInt8;
    const ncclRedOp_t op = call_.maximum ? ncclMax : ncclSum;
    switch (call_.function) {
      case Function::kAllReduce:
        return ncclAllReduce(in, out, call_.count, type, op, comm, stream);
      case Function::kReduce:
        return ncclReduce(in, out, call_.count, type, op, call_.root, comm, stream);
      case Function::kBroadcast:
        return ncclBroadcast(in, out, call_.count, type, call_.root, comm, stream);
      case Function::kAllGather:
        return ncclAllGather(in, out, call_.count, type, comm, stream);
      case Function::kReduceScatter:
        return ncclReduceScatter(in, out, call_.count, type, op, comm, stream);
      case Function::kAlltoAll:
        return ncclAlltoAll(in, out, call_.count, type, comm, stream);
      case Function::kGather:
        return ncclGather(in, out, call_.count, type, call_.root, comm, stream);
      case Function::kScatter:
        return ncclScatter(in, out, call_.count, type, call_.root, comm, stream);
      case Function::kShift: {
        const ncclResult_t sent =
            ncclSend(in, call_.count, type, (rank_ + call_.shift) % ranks_, comm, stream);
        const ncclResult_t received =
            ncclRecv(out, call_.count, type, (rank_ + ranks_ - call_.shift) % ranks_, comm, stream);
        return sent == ncclSuccess ? received : sent;
      }
    }
    return ncclInternalError;
  }

  // Empty, or what is wrong.
  std::string Check() const {
    if ((call_.function == Function::kReduce || call_.function == Function::kGather) && rank_ != call_.root)
      return {};
    for (size_t i = 0; i < out_elements_; ++i) {
      const int wanted = Wanted(i);
      if (Get(i) == wanted) continue;
      return "call " + std::to_string(call_.id) + " (function " +
             std::to_string(static_cast<int>(call_.function)) + ", count " + std::to_string(call_.count) +
             ", rank " + std::to_string(rank_) + " of " + std::to_string(ranks_) + "): element " +
             std::to_string(i) + " is " + std::to_string(Get(i)) + ", not " + std::to_string(wanted);
    }
    return output_.back() == 'x' || in_place_
               ? ""
               : "call " + std::to_string(call_.id) + " wrote behind its buffer";
  }

 private:
  size_t bytes() const { return call_.is_float ? 4 : 1; }
  void Put(char* at, size_t index, int value) const {
    const auto typed = static_cast<float>(value);
    if (call_.is_float) {
      memcpy(at + index * 4, &typed, 4);
    } else {
      at[index] = static_cast<char>(value);
    }
  }
  int Get(size_t index) const {
    if (!call_.is_float) return static_cast<signed char>(output_[index]);
    float typed = 0;
    memcpy(&typed, output_.data() + index * 4, 4);
    return static_cast<int>(typed);
  }
  int Reduced(size_t index) const {
    int result = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      const int value = ValueOf(call_, rank, index);
      result = call_.maximum ? std::max(result, value) : result + value;
    }
    return result;
  }
  int Wanted(size_t i) const {
    const auto own = static_cast<size_t>(rank_);
    const size_t block = call_.count == 0 ? 0 : i / call_.count;
    const size_t within = call_.count == 0 ? 0 : i % call_.count;
    switch (call_.function) {
      case Function::kAllReduce:
      case Function::kReduce:
        return Reduced(i);
      case Function::kBroadcast:
        return ValueOf(call_, call_.root, i);
      case Function::kAllGather:
      case Function::kGather:
        return ValueOf(call_, static_cast<int>(block), within);
      case Function::kReduceScatter:
        return Reduced(own * call_.count + i);
      case Function::kAlltoAll:
        return ValueOf(call_, static_cast<int>(block), own * call_.count + within);
      case Function::kScatter:
        return ValueOf(call_, call_.root, own * call_.count + i);
      case Function::kShift:
        return ValueOf(call_, (rank_ + ranks_ - call_.shift) % ranks_, i);
    }
    return -1;
  }

  const Call call_;
  const int rank_;
  const int ranks_;
  size_t in_elements_ = 0;
  size_t out_elements_ = 0;
  bool in_place_ = false;
  std::vector<char> input_;
  std::vector<char> output_;
};

// One rank of a program.
class Player {
 public:
  Player(const Program& program, int rank, const ncclUniqueId& id, std::barrier<>* all)
      : program_(program), rank_(rank), all_(all), comms_(program.comms.size()) {
    for (size_t i = 0; i < kStreams; ++i) Expect(c4StreamCreate(&streams_[i]), "c4StreamCreate");
    Expect(ncclCommInitRank(&comms_[0], program.ranks, id, rank), "ncclCommInitRank");
  }

  void Play() {
    for (const Step& step : program_.steps) {
      if (!wrong_.empty()) break;
      switch (step.kind) {
        case Step::kGroup:
          PlayGroup(step);
          break;
        case Step::kSplit:
          PlaySplit(step);
          break;
        case Step::kDestroy:
          if (comms_[static_cast<size_t>(step.comm)] != nullptr) {
            Synchronize();
            Expect(ncclCommDestroy(std::exchange(comms_[static_cast<size_t>(step.comm)], nullptr)),
                   "ncclCommDestroy");
          }
          break;
        case Step::kSynchronize:
          Synchronize();
          break;
      }
    }
    // Whoever fails lets the others go. Nobody aborts what others are still working with, but for the one.
    if (!wrong_.empty()) AbortAll();
    all_->arrive_and_wait();
    if (wrong_.empty() && program_.aborted >= 0) PlayAbort();
    all_->arrive_and_wait();
    if (program_.aborted >= 0) AbortAll();
    for (ncclComm_t& comm : comms_) {
      if (comm != nullptr) Expect(ncclCommDestroy(std::exchange(comm, nullptr)), "ncclCommDestroy");
    }
    for (size_t i = 0; i < kStreams; ++i) Expect(c4StreamDestroy(streams_[i]), "c4StreamDestroy");
  }

  const std::string& wrong() const { return wrong_; }

 private:
  const std::vector<int>& MembersOf(int comm) const { return program_.comms[static_cast<size_t>(comm)]; }
  int RankIn(int comm) const {
    const std::vector<int>& members = MembersOf(comm);
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i] == rank_) return static_cast<int>(i);
    }
    return -1;
  }
  void Expect(ncclResult_t code, const char* what) {
    if (code != ncclSuccess && wrong_.empty()) {
      wrong_ = std::string(what) + " on rank " + std::to_string(rank_) + ": " + ncclGetLastError(nullptr);
    }
  }

  void AbortAll() {
    for (ncclComm_t& comm : comms_) {
      if (comm != nullptr) (void)ncclCommAbort(std::exchange(comm, nullptr));
    }
  }

  void PlayGroup(const Step& step) {
    Expect(ncclGroupStart(), "ncclGroupStart");
    for (const Call& call : step.calls) {
      const int rank = RankIn(call.comm);
      if (rank < 0) continue;
      running_.emplace_back(call, rank, static_cast<int>(MembersOf(call.comm).size()));
      Expect(running_.back().Enqueue(comms_[static_cast<size_t>(call.comm)],
                                     streams_[static_cast<size_t>(call.stream)]),
             "an operation");
    }
    Expect(ncclGroupEnd(), "ncclGroupEnd");
  }

  void PlaySplit(const Step& step) {
    const int rank = RankIn(step.comm);
    if (rank < 0) return;
    const int colour = step.colours[static_cast<size_t>(rank)];
    ncclComm_t child = nullptr;
    Expect(ncclCommSplit(comms_[static_cast<size_t>(step.comm)], colour, step.keys[static_cast<size_t>(rank)],
                         &child, nullptr),
           "ncclCommSplit");
    if (colour == NCCL_SPLIT_NOCOLOR || child == nullptr) return;
    const int comm = step.parts[static_cast<size_t>(colour)];
    comms_[static_cast<size_t>(comm)] = child;
    int seen = -1;
    Expect(ncclCommUserRank(child, &seen), "ncclCommUserRank");
    if (seen != RankIn(comm) && wrong_.empty()) wrong_ = "a split gave rank " + std::to_string(seen);
  }

  void Synchronize() {
    for (cudaStream_t stream : streams_) Expect(c4StreamSynchronize(stream), "c4StreamSynchronize");
    for (const Running& running : running_) {
      const std::string wrong = running.Check();
      if (wrong_.empty()) wrong_ = wrong;
    }
    running_.clear();
  }

  // One rank does not take part and aborts; the others are in the operation and have to hear of it.
  void PlayAbort() {
    const int rank = RankIn(program_.aborted);
    if (rank < 0) return;
    ncclComm_t& comm = comms_[static_cast<size_t>(program_.aborted)];
    if (rank == program_.aborts) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      Expect(ncclCommAbort(std::exchange(comm, nullptr)), "ncclCommAbort");
      return;
    }
    std::vector<float> data(500000, 1);
    const ncclResult_t enqueued =
        ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, streams_[1]);
    const uint64_t began_ns = MonotonicNs();
    const ncclResult_t result = enqueued == ncclSuccess ? c4StreamSynchronize(streams_[1]) : enqueued;
    if (result == ncclSuccess) wrong_ = "an operation succeeded without a rank that aborted";
    if (MonotonicNs() - began_ns > 20 * kSecondNs) wrong_ = "an abort was heard of after 20 s only";
    (void)ncclCommAbort(std::exchange(comm, nullptr));
  }

  const Program& program_;
  const int rank_;
  std::barrier<>* const all_;
  std::vector<ncclComm_t> comms_;
  std::array<cudaStream_t, kStreams> streams_{};
  std::deque<Running> running_;
  std::string wrong_;
};

TEST(Soak, RandomPrograms) {
  const unsigned programs = Number("C4_SOAK_PROGRAMS", 15);
  const unsigned first = Number("C4_SOAK_SEED", 1);
  for (unsigned seed = first; seed < first + programs; ++seed) {
    const Program program = Author(seed).Write();
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    std::vector<std::string> wrong(static_cast<size_t>(program.ranks));
    std::barrier<> all(program.ranks);
    std::vector<std::thread> threads;
    threads.reserve(static_cast<size_t>(program.ranks));
    for (int rank = 0; rank < program.ranks; ++rank) {
      threads.emplace_back([&program, &id, &wrong, &all, rank] {
        Player player(program, rank, id, &all);
        player.Play();
        wrong[static_cast<size_t>(rank)] = player.wrong();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& text : wrong) EXPECT_EQ(text, "") << "seed " << seed;
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace c4
