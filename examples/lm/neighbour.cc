#include "examples/lm/neighbour.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <unistd.h>
#include <utility>

#include "ccl/include/c4/stream.h"
#include "examples/lm/mix.h"

namespace c4::examples::lm {
namespace {

namespace fs = std::filesystem;

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

uint64_t HashOf(const std::string& text) {
  uint64_t hash = 1;
  for (const char letter : text) hash = Mix(hash, static_cast<unsigned char>(letter));
  return hash;
}

bool Complain(const World& world, const char* what) {
  fprintf(stderr, "lm_trainer: rank %d: copies in memory: %s\n", world.rank, what);
  return false;
}

}  // namespace

size_t ShiftToOtherHosts(const std::vector<uint64_t>& hosts) {
  size_t best = 0;
  size_t most = 0;
  for (size_t shift = 1; shift < hosts.size(); ++shift) {
    size_t leave = 0;
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      leave += hosts[rank] == hosts[(rank + shift) % hosts.size()] ? 0 : 1;
    }
    if (leave > most) best = shift;
    most = std::max(most, leave);
  }
  return best;
}

NeighbourCopies::NeighbourCopies(const Groups& groups, const World& world, std::string directory,
                                 uint64_t job)
    : groups_(groups),
      world_(world),
      directory_(std::move(directory)),
      job_(job),
      host_folder_(directory_ + "/" + HostName()) {}

NeighbourCopies::~NeighbourCopies() {
  if (worker_.joinable()) worker_.join();
}

bool NeighbourCopies::Open(size_t most) {
  const auto ranks = static_cast<size_t>(world_.size);
  // Who is where; the run's number is rank 0's.
  std::vector<uint64_t> hosts(ranks + 1, 0);
  hosts[static_cast<size_t>(world_.rank)] = HashOf(HostName());
  if (world_.rank == 0) {
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    hosts[ranks] = Mix(static_cast<uint64_t>(now), static_cast<uint64_t>(getpid())) & UINT32_MAX;
  }
  if (!groups_.Reduce(hosts.data(), hosts.size(), ncclSum, Group::kAll)) return false;
  char name[64];
  snprintf(name, sizeof name, "/%016" PRIx64 "-%08" PRIx64, job_, hosts.back());
  hosts.pop_back();
  folder_ = host_folder_ + name + "/rank-" + std::to_string(world_.rank);
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    fprintf(stderr, "lm_trainer: rank %d: cannot make %s: %s\n", world_.rank, folder_.c_str(),
            error.message().c_str());
    return false;
  }
  shift_ = ShiftToOtherHosts(hosts);
  leaves_ = shift_ != 0;
  if (!leaves_) return true;
  sent_.resize(kHeadFloats + most);
  received_.resize(kHeadFloats + most);
  return groups_.Split("copies", &comm_) &&
         (c4StreamCreate(&stream_) == ncclSuccess || Complain(world_, "no stream can be made"));
}

// Whole ones of this job that lie on this host, whoever left them there.
std::vector<NeighbourCopies::Copy> NeighbourCopies::FindCopies() const {
  std::vector<Copy> copies;
  char prefix[32];
  snprintf(prefix, sizeof prefix, "%016" PRIx64 "-", job_);
  std::error_code error;
  for (const auto& run : fs::directory_iterator(host_folder_, error)) {
    const std::string name = run.path().filename();
    if (!name.starts_with(prefix)) continue;
    const uint64_t number = strtoull(name.c_str() + strlen(prefix), nullptr, 16) & UINT32_MAX;
    std::error_code inner;
    for (const auto& rank : fs::directory_iterator(run.path(), inner)) {
      std::error_code innermost;
      for (const auto& file : fs::directory_iterator(rank.path(), innermost)) {
        Copy copy;
        int iteration = 0;
        const std::string shard = file.path().filename();
        char end = 0;
        // NOLINTNEXTLINE(cert-err34-c): what is no number is no copy
        const int fields = sscanf(shard.c_str(), "shard-%d-%d-%d.ckp%c", &copy.shard.stage,
                                  &copy.shard.tensor_rank, &iteration, &end);
        CheckpointContent content;
        if (fields != 4 || end != 't' || iteration <= 0 || shard.ends_with(".new")) continue;
        copy.directory = rank.path();
        copy.key = static_cast<uint64_t>(iteration) << 32U | number;
        if (ReadShard(copy.directory, copy.shard, iteration, &content)) copies.push_back(std::move(copy));
      }
    }
  }
  return copies;
}

bool NeighbourCopies::Restore(const Shard& shard, int stages, int tensor_ranks, int newer_than,
                              CheckpointContent* content, bool* here) {
  *content = {};
  *here = false;
  const std::vector<Copy> copies = FindCopies();
  const auto shards = static_cast<size_t>(stages) * static_cast<size_t>(tensor_ranks);
  const auto number = [tensor_ranks](const Shard& one) {
    return static_cast<size_t>(one.stage) * static_cast<size_t>(tensor_ranks) +
           static_cast<size_t>(one.tensor_rank);
  };
  const auto nobody = static_cast<uint64_t>(world_.size);
  // The newest first, until all workers have one.
  for (uint64_t below = UINT64_MAX;;) {
    uint64_t key = 0;
    for (const Copy& copy : copies) {
      if (copy.key < below) key = std::max(key, copy.key);
    }
    if (!groups_.Reduce(&key, 1, ncclMax, Group::kAll)) return false;
    const auto iteration = static_cast<int>(key >> 32U);
    if (key == 0 || iteration <= newer_than) return true;
    below = key;
    std::vector<uint64_t> holders(shards, nobody);
    std::vector<const Copy*> local(shards, nullptr);
    for (const Copy& copy : copies) {
      const size_t at = number(copy.shard);
      if (copy.key != key || copy.shard.stage >= stages || copy.shard.tensor_rank >= tensor_ranks) continue;
      holders[at] = static_cast<uint64_t>(world_.rank);
      local[at] = &copy;
    }
    if (!groups_.Reduce(holders.data(), shards, ncclMin, Group::kAll)) return false;
    if (std::count(holders.begin(), holders.end(), nobody) != 0) continue;
    // By rank the worker's number that it has to be sent, from 1; 0: it lies on its host.
    std::vector<uint64_t> asks(static_cast<size_t>(world_.size), 0);
    *here = local[number(shard)] != nullptr;
    if (!*here) asks[static_cast<size_t>(world_.rank)] = number(shard) + 1;
    if (!groups_.Reduce(asks.data(), asks.size(), ncclSum, Group::kAll)) return false;
    bool whole = !*here || ReadShard(local[number(shard)]->directory, shard, iteration, content);
    for (int rank = 0; rank < world_.size; ++rank) {
      const uint64_t asked = asks[static_cast<size_t>(rank)];
      if (asked == 0) continue;
      const auto holder = static_cast<int>(holders[asked - 1]);
      std::vector<float> sent;
      std::vector<float> got;
      if (holder == world_.rank) {
        const Copy& copy = *local[asked - 1];
        CheckpointContent held;
        whole = ReadShard(copy.directory, copy.shard, iteration, &held) && whole;
        sent = std::move(held.weights);
        // Its first loss goes with it, as bits.
        float loss[2];
        memcpy(loss, &held.first_loss, sizeof loss);
        sent.insert(sent.end(), loss, loss + 2);
      }
      // How long it is, both have to know.
      uint64_t size = sent.size();
      if (!groups_.Reduce(&size, 1, ncclMax, Group::kAll)) return false;
      if (rank == world_.rank) got.resize(size);
      if (!groups_.Swap(sent, rank, &got, holder)) return false;
      if (rank != world_.rank) continue;
      memcpy(&content->first_loss, got.data() + size - 2, sizeof(double));
      got.resize(size - 2);
      content->weights = std::move(got);
    }
    content->iteration = iteration;
    uint64_t all = whole ? 1 : 0;
    if (!groups_.Reduce(&all, 1, ncclMin, Group::kAll)) return false;
    if (all == 1) return true;
    *content = {};  // somebody removed one meanwhile
  }
}

void NeighbourCopies::Work(const Shard& own, const CheckpointContent& content) {
  bool written = WriteShard(folder_, own, content);
  DropOlderShards(folder_, own, content.iteration);
  if (leaves_) {
    if (c4StreamSynchronize(stream_) != ncclSuccess) {
      failed_ = true;
      return;
    }
    Head head{};
    memcpy(&head, received_.data(), sizeof head);
    const bool fits = head.count <= received_.size() - kHeadFloats && head.iteration == content.iteration;
    const Shard shard = {head.stage, head.tensor_rank};
    const bool same = shard.stage == own.stage && shard.tensor_rank == own.tensor_rank;
    if (fits && !same) {
      CheckpointContent other;
      other.iteration = head.iteration;
      other.first_loss = head.first_loss;
      const float* const from = received_.data() + kHeadFloats;
      other.weights.assign(from, from + head.count);
      written = WriteShard(folder_, shard, other) && written;
      DropOlderShards(folder_, shard, other.iteration);
    }
  }
  (void)written;  // it said so; the job goes on with what there was before
}

bool NeighbourCopies::Settle() {
  if (worker_.joinable()) worker_.join();
  return !failed_ || Complain(world_, "the neighbour is gone");
}

bool NeighbourCopies::Begin(const Shard& shard, CheckpointContent content) {
  if (!Settle()) return false;
  // Between two copies all ranks have reduced with each other. So at the third all have begun the second, and
  // kept the first: copies of former runs have had their time.
  if (copies_ == 2) DropOtherRuns();
  ++copies_;
  if (leaves_) {
    const Head head = {content.iteration,  shard.stage,           shard.tensor_rank, 0,
                       content.first_loss, content.weights.size()};
    memcpy(sent_.data(), &head, sizeof head);
    std::copy(content.weights.begin(), content.weights.end(), sent_.begin() + kHeadFloats);
    const size_t ranks = static_cast<size_t>(world_.size);
    const auto self = static_cast<size_t>(world_.rank);
    const auto to = static_cast<int>((self + shift_) % ranks);
    const auto from = static_cast<int>((self + ranks - shift_) % ranks);
    const bool begun =
        ncclGroupStart() == ncclSuccess &&
        ncclSend(sent_.data(), sent_.size(), ncclFloat, to, comm_, stream_) == ncclSuccess &&
        ncclRecv(received_.data(), received_.size(), ncclFloat, from, comm_, stream_) == ncclSuccess &&
        ncclGroupEnd() == ncclSuccess;
    if (!begun) return Complain(world_, ncclGetLastError(comm_));
  }
  worker_ = std::thread([this, shard, content = std::move(content)] { Work(shard, content); });
  return true;
}

// Of this job on this host.
void NeighbourCopies::DropOtherRuns() const {
  char prefix[32];
  snprintf(prefix, sizeof prefix, "%016" PRIx64 "-", job_);
  const fs::path own = fs::path(folder_).parent_path();
  std::error_code error;
  for (const auto& run : fs::directory_iterator(host_folder_, error)) {
    if (run.path() == own || !run.path().filename().string().starts_with(prefix)) continue;
    std::error_code ignored;
    fs::remove_all(run.path(), ignored);
  }
}

void NeighbourCopies::Remove() {
  DropOtherRuns();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
  fs::remove(fs::path(folder_).parent_path(), ignored);  // the last rank of the host
  fs::remove(host_folder_, ignored);
}

bool NeighbourCopies::Close() {
  if (!Settle()) return false;
  if (comm_ == nullptr) return true;
  const bool destroyed = ncclCommDestroy(std::exchange(comm_, nullptr)) == ncclSuccess;
  return c4StreamDestroy(stream_) == ncclSuccess && destroyed;
}

}  // namespace c4::examples::lm
