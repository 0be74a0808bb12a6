#include "examples/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
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
  uint64_t checksum;  // of the weights
};

uint64_t Checksum(const std::vector<float>& weights) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const float weight : weights) {
    uint32_t bits = 0;
    memcpy(&bits, &weight, sizeof bits);
    hash = (hash ^ bits) * 0x100000001b3U;
  }
  return hash;
}

std::string ShardPrefix(const Shard& shard) {
  return "shard-" + std::to_string(shard.stage) + "-" + std::to_string(shard.tensor_rank) + "-";
}

std::string ShardPath(const std::string& directory, const Shard& shard, int iteration) {
  return directory + "/" + ShardPrefix(shard) + std::to_string(iteration) + ".ckpt";
}

bool Complain(const std::string& path) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread
  fprintf(stderr, "hybrid_trainer: cannot write %s: %s\n", path.c_str(), strerror(errno));
  return false;
}

// Under its name when it is whole.
bool WriteWhole(const std::string& path, const void* first, size_t first_bytes, const void* second,
                size_t second_bytes) {
  const std::string temporary = path + ".new";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return Complain(temporary);
  const auto write_all = [fd](const void* data, size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t count = write(fd, at, bytes);
      if (count <= 0) return false;
      at += count;
      bytes -= static_cast<size_t>(count);
    }
    return true;
  };
  const bool written = write_all(first, first_bytes) && write_all(second, second_bytes) && fdatasync(fd) == 0;
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

bool WriteShard(const std::string& directory, const Shard& shard, const CheckpointContent& content) {
  Header header = {};
  memcpy(header.magic, kMagic, sizeof kMagic);
  header.iteration = content.iteration;
  header.first_loss = content.first_loss;
  header.count = content.weights.size();
  header.checksum = Checksum(content.weights);
  if (!WriteWhole(ShardPath(directory, shard, content.iteration), &header, sizeof header,
                  content.weights.data(), content.weights.size() * sizeof(float))) {
    return false;
  }
  const std::vector<int> iterations = IterationsOf(directory, shard);
  for (size_t i = 2; i < iterations.size(); ++i) unlink(ShardPath(directory, shard, iterations[i]).c_str());
  return true;
}

bool ReadShard(const std::string& directory, const Shard& shard, int iteration, CheckpointContent* content) {
  const int fd = open(ShardPath(directory, shard, iteration).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat status {};
  Header header = {};
  bool whole = fstat(fd, &status) == 0 && read(fd, &header, sizeof header) == sizeof header &&
               memcmp(header.magic, kMagic, sizeof kMagic) == 0 && header.iteration == iteration &&
               header.count < (uint64_t{1} << 32) &&
               static_cast<uint64_t>(status.st_size) == sizeof header + header.count * sizeof(float);
  if (whole) {
    content->iteration = header.iteration;
    content->first_loss = header.first_loss;
    content->weights.resize(header.count);
    const auto bytes = static_cast<ssize_t>(header.count * sizeof(float));
    whole = read(fd, content->weights.data(), static_cast<size_t>(bytes)) == bytes &&
            Checksum(content->weights) == header.checksum;
  }
  close(fd);
  return whole;
}

bool WriteLatest(const std::string& directory, int iteration) {
  const std::string text = std::to_string(iteration) + "\n";
  return WriteWhole(directory + kLatest, text.data(), text.size(), nullptr, 0);
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
