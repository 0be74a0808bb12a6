#include "tests/support/hung_job.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <tuple>

namespace c4::testing {
namespace {

struct Group {
  std::string name;
  std::string description;
  std::vector<int> members;
};

struct Call {
  size_t group = 0;
  std::string operation;  // "all_reduce", "send", "recv"
  int64_t elements = 0;
  int peer = -1;
  bool waits = false;  // the rank goes on only when it is done
  int64_t sequence = 0;
  bool done = false;
};

struct Rank {
  std::vector<Call> program;
  size_t called = 0;  // of the program
  size_t done = 0;    // on the device, in order
  size_t stops_at = SIZE_MAX;
  size_t differs_at = SIZE_MAX;
  bool dead = false;
  bool stopped = false;
  std::map<size_t, int64_t> collectives;  // called so far, by group
  std::map<size_t, int64_t> transfers;
};

class Simulation {
 public:
  explicit Simulation(const HungJobOptions& options) : options_(options), random_(options.seed) {}

  HungJob Run() {
    MakeGroups();
    MakePrograms();
    PlaceFaults();
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) moved = CallNext(&ranks_[rank]) || moved;
      moved = Complete() || moved;
    }
    return Result();
  }

 private:
  int RankAt(int stage, int data, int tensor) const {
    return (stage * options_.data + data) * options_.tensor + tensor;
  }

  size_t AddGroup(const std::string& description, std::vector<int> members) {
    groups_.push_back({std::to_string(groups_.size()), description, std::move(members)});
    return groups_.size() - 1;
  }

  void MakeGroups() {
    ranks_.resize(static_cast<size_t>(options_.tensor) * static_cast<size_t>(options_.data) *
                  static_cast<size_t>(options_.pipeline));
    std::vector<int> all(ranks_.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    AddGroup("default_pg", all);
    if (options_.default_only) return;
    for (int stage = 0; stage < options_.pipeline; ++stage) {
      for (int tensor = 0; tensor < options_.tensor; ++tensor) {
        std::vector<int> members;
        for (int data = 0; data < options_.data; ++data) members.push_back(RankAt(stage, data, tensor));
        data_[{stage, tensor}] = AddGroup("DATA_PARALLEL_GROUP", members);
      }
      for (int data = 0; data < options_.data; ++data) {
        std::vector<int> members;
        for (int tensor = 0; tensor < options_.tensor; ++tensor)
          members.push_back(RankAt(stage, data, tensor));
        if (options_.tensor > 1) tensor_[{stage, data}] = AddGroup("TENSOR_MODEL_PARALLEL_GROUP", members);
      }
    }
    for (int data = 0; data < options_.data && options_.pipeline > 1; ++data) {
      for (int tensor = 0; tensor < options_.tensor; ++tensor) {
        std::vector<int> members;
        for (int stage = 0; stage < options_.pipeline; ++stage)
          members.push_back(RankAt(stage, data, tensor));
        pipeline_[{data, tensor}] = AddGroup("PIPELINE_MODEL_PARALLEL_GROUP", members);
      }
    }
  }

  void MakePrograms() {
    constexpr int kSteps = 4;
    for (int stage = 0; stage < options_.pipeline; ++stage) {
      for (int data = 0; data < options_.data; ++data) {
        for (int tensor = 0; tensor < options_.tensor; ++tensor) {
          std::vector<Call>& program = ranks_[static_cast<size_t>(RankAt(stage, data, tensor))].program;
          for (int step = 0; step < kSteps; ++step) Step(stage, data, tensor, &program);
        }
      }
    }
  }

  void Step(int stage, int data, int tensor, std::vector<Call>* program) {
    if (options_.default_only) {
      for (const int64_t elements : {1048576, 524288, 4096}) program->push_back({0, "all_reduce", elements});
      program->back().waits = true;
      return;
    }
    for (int micro = 0; micro < 2; ++micro) {
      if (stage > 0) Transfer(stage, data, tensor, "recv", stage - 1, program);
      Layers(stage, data, program);
      if (stage + 1 < options_.pipeline) Transfer(stage, data, tensor, "send", stage + 1, program);
    }
    const size_t gradients = data_.at({stage, tensor});
    program->push_back({gradients, "_reduce_scatter_base", 1 << 20});
    program->push_back({gradients, "_allgather_base", 1 << 18});
    program->back().waits = true;
  }

  void Layers(int stage, int data, std::vector<Call>* program) const {
    if (options_.tensor < 2) return;
    for (int layer = 0; layer < 3; ++layer)
      program->push_back({tensor_.at({stage, data}), "all_reduce", 65536 + layer});
  }

  void Transfer(int stage, int data, int tensor, const std::string& operation, int other,
                std::vector<Call>* program) {
    (void)stage;
    Call call = {pipeline_.at({data, tensor}), operation, 8192};
    call.peer = RankAt(other, data, tensor);
    program->push_back(call);
  }

  int64_t Below(size_t limit) {
    return std::uniform_int_distribution<int64_t>(0, static_cast<int64_t>(limit) - 1)(random_);
  }

  // In the later half of the run, so that dumps have a past.
  void PlaceFaults() {
    std::set<int64_t> taken;
    for (const HangFault fault : options_.faults) {
      int64_t rank = Below(ranks_.size());
      while (!taken.insert(rank).second) rank = Below(ranks_.size());
      Rank& one = ranks_[static_cast<size_t>(rank)];
      const size_t half = one.program.size() / 2;
      size_t at = half + static_cast<size_t>(Below(one.program.size() - half));
      if (fault == HangFault::kAbsent || fault == HangFault::kDead) {
        one.stops_at = at;
        one.dead = fault == HangFault::kDead;
        continue;
      }
      while (one.program[at].peer >= 0 || groups_[one.program[at].group].members.size() < 3)
        at = (at + 1) % one.program.size();
      if (fault == HangFault::kMismatch) {
        one.differs_at = at;
        one.program[at].elements += 7;
        if (Below(2) == 0) one.program[at].operation = "_broadcast_oop";
      } else {
        int64_t before = 0;
        for (size_t i = 0; i < at; ++i) before += one.program[i].group == one.program[at].group ? 1 : 0;
        stuck_.insert({one.program[at].group, before + 1});
      }
    }
  }

  bool CallNext(Rank* rank) {
    if (rank->stopped || rank->called == rank->program.size()) return false;
    if (rank->called == rank->stops_at) {
      rank->stopped = true;
      return true;
    }
    // A rank may be a few operations ahead of its device, and waits for some at once.
    constexpr size_t kAhead = 6;
    if (rank->called - rank->done >= kAhead) return false;
    if (rank->called > 0 && rank->program[rank->called - 1].waits && rank->done < rank->called) return false;
    Call& call = rank->program[rank->called++];
    call.sequence = call.peer < 0 ? ++rank->collectives[call.group] : ++rank->transfers[call.group];
    return true;
  }

  const Call* Head(int rank) const {
    const Rank& one = ranks_[static_cast<size_t>(rank)];
    if (one.done >= one.called || (one.dead && one.stopped)) return nullptr;
    return &one.program[one.done];
  }

  void Finish(int rank) {
    Rank& one = ranks_[static_cast<size_t>(rank)];
    one.program[one.done++].done = true;
  }

  bool Complete() {
    bool moved = false;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      const Call* call = Head(rank);
      if (call == nullptr) continue;
      const std::vector<int> together =
          call->peer < 0 ? groups_[call->group].members : std::vector{rank, call->peer};
      if (!AllIn(*call, rank, together)) continue;
      for (const int member : together) Finish(member);
      moved = true;
    }
    return moved;
  }

  // Every one of them has the operation at the head of its device, and all mean the same.
  bool AllIn(const Call& call, int rank, const std::vector<int>& together) {
    bool same = true;
    for (const int member : together) {
      const Call* other = Head(member);
      if (other == nullptr || other->group != call.group) return false;
      if (call.peer >= 0) {
        if (member != rank && (other->peer != rank || other->operation == call.operation)) return false;
        continue;
      }
      if (other->peer >= 0 || other->sequence != call.sequence) return false;
      same = same && other->operation == call.operation && other->elements == call.elements;
    }
    if (!same) Disagree(call, together);
    if (call.peer < 0 && stuck_.contains({call.group, call.sequence})) {
      if (same) hung_.insert(groups_[call.group].name);
      return false;
    }
    return same;
  }

  // The rank whose call is unlike the most.
  void Disagree(const Call& call, const std::vector<int>& members) {
    (void)call;
    std::map<std::pair<std::string, int64_t>, std::vector<int>> meanings;
    for (const int member : members) {
      const Call* head = Head(member);
      meanings[{head->operation, head->elements}].push_back(member);
    }
    size_t most = 0;
    for (const auto& [meaning, who] : meanings) most = std::max(most, who.size());
    for (const auto& [meaning, who] : meanings) {
      if (who.size() < most) disagreeing_.insert(who.begin(), who.end());
    }
  }

  // It has nothing left to do itself, and some device cannot go on without it.
  bool HoldsUp(int rank) const {
    const Rank& one = ranks_[static_cast<size_t>(rank)];
    if (!one.dead && one.done < one.called) return false;
    for (int other = 0; other < static_cast<int>(ranks_.size()); ++other) {
      const Call* head = Head(other);
      if (other == rank || head == nullptr) continue;
      if (head->peer == rank) return true;
      const std::vector<int>& members = groups_[head->group].members;
      if (head->peer < 0 && std::find(members.begin(), members.end(), rank) != members.end()) return true;
    }
    return false;
  }

  HungJob Result() {
    HungJob job;
    std::set<int> culprits = disagreeing_;
    std::set<int> latent;
    std::bernoulli_distribution lost(options_.lose_dumps);
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      const Rank& one = ranks_[static_cast<size_t>(rank)];
      if (one.stopped) (HoldsUp(rank) ? culprits : latent).insert(rank);
      if (one.called > one.differs_at && !culprits.contains(rank)) latent.insert(rank);
      if ((one.dead && one.stopped) || lost(random_)) {
        job.without_dump.push_back(rank);
      } else {
        job.dumps.push_back({rank, Json(rank)});
      }
    }
    job.culprits.assign(culprits.begin(), culprits.end());
    job.latent.assign(latent.begin(), latent.end());
    job.stuck_groups.assign(hung_.begin(), hung_.end());
    return job;
  }

  std::string Json(int rank) const {
    const Rank& one = ranks_[static_cast<size_t>(rank)];
    std::string config;
    std::string status;
    std::map<size_t, std::pair<int64_t, int64_t>> last;  // entered, completed
    for (size_t g = 0; g < groups_.size(); ++g) {
      const std::vector<int>& members = groups_[g].members;
      if (std::find(members.begin(), members.end(), rank) == members.end()) continue;
      std::string list;
      for (const int member : members) list += (list.empty() ? "" : ", ") + std::to_string(member);
      config += (config.empty() ? "\"" : ",\"") + groups_[g].name + R"(":{"name":")" + groups_[g].name +
                R"(","desc":")" + groups_[g].description + R"(","ranks":"[)" + list + "]\"}";
      last[g] = {-1, -1};
    }
    std::string entries;
    std::map<size_t, int64_t> calls;
    for (size_t i = 0; i < one.called; ++i) {
      const std::string entry = Entry(rank, i, &last);
      ++calls[one.program[i].group];
      if (options_.style == DumpStyle::kOpen && one.program[i].done) continue;
      entries += (entries.empty() ? "" : ",") + entry;
    }
    if (options_.style == DumpStyle::kRetired) {
      for (auto& [g, progress] : last) {
        const int64_t more = calls[g] - std::max<int64_t>(progress.first, 0);
        progress.first += more;
        progress.second += more;
      }
    }
    int64_t local = 0;
    for (const auto& [g, progress] : last) {
      status += (status.empty() ? "\"" : ",\"") + std::to_string(local++) +
                R"(":{"last_enqueued_collective":)" + std::to_string(progress.first) +
                R"(,"last_started_collective":-1,"last_completed_collective":)" +
                std::to_string(progress.second) + "}";
    }
    return R"({"version":"2.10","pg_config":{)" + config + "},\"pg_status\":{" + status + "},\"entries\":[" +
           entries + "]}";
  }

  std::string Entry(int rank, size_t at, std::map<size_t, std::pair<int64_t, int64_t>>* last) const {
    const Call& call = ranks_[static_cast<size_t>(rank)].program[at];
    const Group& group = groups_[call.group];
    auto& progress = (*last)[call.group];
    progress.first = std::max(progress.first, call.sequence);
    if (call.done) progress.second = std::max(progress.second, call.sequence);
    std::string name = "nccl:" + call.operation;
    const bool transfer = call.peer >= 0;
    if (transfer) {
      name += " " + Place(group, rank) + (call.operation == "send" ? "->" : "<-") + Place(group, call.peer);
    }
    const auto local = std::distance(last->begin(), last->find(call.group));
    const std::string sizes = "[[" + std::to_string(call.elements) + "]]";
    return R"({"record_id":)" + std::to_string(at) + R"(,"pg_id":)" + std::to_string(local) +
           R"(,"process_group":[")" + group.name + "\",\"" + group.description +
           R"("],"collective_seq_id":)" + std::to_string(transfer ? 0 : call.sequence) + R"(,"p2p_seq_id":)" +
           std::to_string(transfer ? call.sequence : 0) + R"(,"profiling_name":")" + name +
           R"(","input_sizes":)" + sizes + R"(,"input_dtypes":["BFloat16"],"output_sizes":)" + sizes +
           R"(,"output_dtypes":["BFloat16"],"state":")" +
           (call.done && options_.style != DumpStyle::kRetired ? "completed" : "scheduled") +
           R"(","retired":)" + (call.done ? "true" : "false") + R"(,"is_p2p":)" +
           (transfer ? "true" : "false") + "}";
  }

  static std::string Place(const Group& group, int rank) {
    return std::to_string(std::find(group.members.begin(), group.members.end(), rank) -
                          group.members.begin());
  }

  const HungJobOptions& options_;
  std::mt19937_64 random_;
  std::vector<Group> groups_;
  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, size_t> data_;      // by stage and tensor rank
  std::map<std::pair<int, int>, size_t> tensor_;    // by stage and data-parallel rank
  std::map<std::pair<int, int>, size_t> pipeline_;  // by data-parallel and tensor rank
  std::set<std::pair<size_t, int64_t>> stuck_;
  std::set<std::string> hung_;
  std::set<int> disagreeing_;
};

}  // namespace

HungJob SimulateHang(const HungJobOptions& options) {
  return Simulation(options).Run();
}

}  // namespace c4::testing
