#include "examples/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

namespace c4::examples {
namespace {

constexpr char kMagic[8] = {'c', '4', 't', 'r', 'a', 'i', 'n', '1'};
constexpr char kLatest[] = "/LATEST";

struct Header {
  char magic[8];
  int32_t iteration;
  int32_t reserved;
  double first_loss;
  uint64_t count;
  uint64_t checksum;  // of all before it, and of the weights
};
static_assert(sizeof(Header) == 40);

uint64_t Checksum(const char* bytes, size_t count, uint64_t hash) {
  for (size_t i = 0; i < count; ++i) hash = (hash ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3U;
  return hash;
}

uint64_t ChecksumOf(const Header& header, const char* weights) {
  const uint64_t hash =
      Checksum(reinterpret_cast<const char*>(&header), offsetof(Header, checksum), 0xcbf29ce484222325U);
  return Checksum(weights, header.count * sizeof(float), hash);
}

std::string ShardPrefix(const Shard& shard) {
  return "shard-" + std::to_string(shard.stage) + "-" + std::to_string(shard.tensor_rank) + "-";
}

std::string ShardPath(const std::string& directory, const Shard& shard, int iteration) {
  return directory + "/" + ShardPrefix(shard) + std::to_string(iteration) + ".ckpt";
}

bool Complain(const std::string& path) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread
  fprintf(stderr, "%s: cannot write %s: %s\n", program_invocation_short_name, path.c_str(), strerror(errno));
  return false;
}

// Under its name when it is whole.
bool WriteWhole(const std::string& path, const std::string& bytes) {
  const std::string temporary = path + ".new";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return Complain(temporary);
  size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t count = write(fd, bytes.data() + at, bytes.size() - at);
    if (count <= 0) break;
    at += static_cast<size_t>(count);
  }
  const bool written = at == bytes.size() && fdatasync(fd) == 0;
  const bool closed = close(fd) == 0;
  if (written && closed && rename(temporary.c_str(), path.c_str()) == 0) return true;
  return Complain(path);
}

// Iterations of which the shard has a file, newest first.
std::vector<int> IterationsOf(const std::string& directory, const Shard& shard) {
  std::vector<int> iterations;
  DIR* opened = opendir(directory.c_str());
  if (opened == nullptr) return iterations;
  const std::string prefix = ShardPrefix(shard);
  // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of its own
  while (const dirent* entry = readdir(opened)) {
    const std::string name = entry->d_name;
    if (name.rfind(prefix, 0) != 0 || name.size() < 5 || name.substr(name.size() - 5) != ".ckpt") continue;
    iterations.push_back(atoi(name.c_str() + prefix.size()));  // NOLINT(cert-err34-c): 0 is no iteration
  }
  closedir(opened);
  std::sort(iterations.rbegin(), iterations.rend());
  return iterations;
}

}  // namespace

std::string EncodeShard(const CheckpointContent& content) {
  Header header = {};
  memcpy(header.magic, kMagic, sizeof kMagic);
  header.iteration = content.iteration;
  header.first_loss = content.first_loss;
  header.count = content.weights.size();
  const char* const weights = reinterpret_cast<const char*>(content.weights.data());
  header.checksum = ChecksumOf(header, weights);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  return bytes.append(weights, content.weights.size() * sizeof(float));
}

bool DecodeShard(const std::string& bytes, int iteration, CheckpointContent* content) {
  Header header = {};
  if (bytes.size() < sizeof header) return false;
  memcpy(&header, bytes.data(), sizeof header);
  const size_t rest = bytes.size() - sizeof header;
  const bool whole = memcmp(header.magic, kMagic, sizeof kMagic) == 0 && header.iteration == iteration &&
                     rest % sizeof(float) == 0 && header.count == rest / sizeof(float) &&
                     ChecksumOf(header, bytes.data() + sizeof header) == header.checksum;
  if (!whole) return false;
  content->iteration = header.iteration;
  content->first_loss = header.first_loss;
  content->weights.resize(header.count);
  if (rest > 0) memcpy(content->weights.data(), bytes.data() + sizeof header, rest);
  return true;
}

bool WriteShard(const std::string& directory, const Shard& shard, const CheckpointContent& content) {
  return WriteWhole(ShardPath(directory, shard, content.iteration), EncodeShard(content));
}

void DropOlderShards(const std::string& directory, const Shard& shard, int iteration) {
  std::vector<int> iterations = IterationsOf(directory, shard);
  std::erase_if(iterations, [iteration](int one) { return one >= iteration; });
  for (size_t i = 1; i < iterations.size(); ++i) unlink(ShardPath(directory, shard, iterations[i]).c_str());
}

bool ReadShard(const std::string& directory, const Shard& shard, int iteration, CheckpointContent* content) {
  const int fd = open(ShardPath(directory, shard, iteration).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::string bytes;
  std::vector<char> buffer(size_t{1} << 16);
  ssize_t count = 0;
  while ((count = read(fd, buffer.data(), buffer.size())) > 0) {
    bytes.append(buffer.data(), static_cast<size_t>(count));
  }
  close(fd);
  return count == 0 && DecodeShard(bytes, iteration, content);
}

bool WriteLatest(const std::string& directory, int iteration) {
  return WriteWhole(directory + kLatest, std::to_string(iteration) + "\n");
}

int FindCheckpoint(const std::string& directory, int stages, int tensor_ranks) {
  for (const int iteration : IterationsOf(directory, {0, 0})) {
    bool whole = iteration > 0;
    for (int stage = 0; stage < stages && whole; ++stage) {
      for (int tensor_rank = 0; tensor_rank < tensor_ranks && whole; ++tensor_rank) {
        CheckpointContent content;
        whole = ReadShard(directory, {stage, tensor_rank}, iteration, &content);
      }
    }
    if (whole) return iteration;
  }
  return 0;
}

}  // namespace c4::examples
