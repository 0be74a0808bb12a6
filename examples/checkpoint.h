// Checkpoints of the trainer: a file for each shard of the weights (a stage and a place in its tensor group),
// all of one iteration, and a file LATEST that names the iteration once all of them are written. What is half
// written never counts: a shard appears under its name when it is whole, holds a checksum, and an iteration
// counts only with all of its shards.
//
// In a directory that all ranks see. One thread. Errors are sentences on standard error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace c4::examples {

struct Shard {
  int stage = 0;
  int tensor_rank = 0;
};

struct CheckpointContent {
  int iteration = 0;  // the next one to do
  double first_loss = 0;
  std::vector<float> weights;
};

// The bytes of a shard's file, as this machine writes numbers, and back: false where they are not whole, or
// of another iteration. Pure.
std::string EncodeShard(const CheckpointContent& content);
bool DecodeShard(const std::string& bytes, int iteration, CheckpointContent* content);

bool WriteShard(const std::string& directory, const Shard& shard, const CheckpointContent& content);
// False where it is not there or not whole.
bool ReadShard(const std::string& directory, const Shard& shard, int iteration, CheckpointContent* content);
// Once all shards of `iteration` are written: removes this one's files of before, but for the newest of them.
void DropOlderShards(const std::string& directory, const Shard& shard, int iteration);
// After all shards were written.
bool WriteLatest(const std::string& directory, int iteration);
// The newest iteration with all shards whole; 0: there is none.
int FindCheckpoint(const std::string& directory, int stages, int tensor_ranks);

}  // namespace c4::examples
