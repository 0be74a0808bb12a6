#include "ccl/base/identity.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace c4 {
namespace {

std::string ReadSmallFile(const char* path) {
  char text[4096];
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t bytes = read(fd, text, sizeof text);
  close(fd);
  return bytes > 0 ? std::string(text, static_cast<size_t>(bytes)) : std::string();
}

// Field 22 of /proc/self/stat. The program's name may hold spaces and parentheses: count after the last.
uint64_t StartTimeTicks() {
  const std::string stat = ReadSmallFile("/proc/self/stat");
  size_t at = stat.rfind(')');
  for (int field = 2; at != std::string::npos && field < 22; ++field) at = stat.find(' ', at + 1);
  return at == std::string::npos ? 0 : strtoull(stat.c_str() + at + 1, nullptr, 10);
}

bool ReadBootId(uint8_t (&id)[16]) {
  const std::string text = ReadSmallFile("/proc/sys/kernel/random/boot_id");
  size_t nibbles = 0;
  for (const char c : text) {
    if (nibbles == 32) break;
    int value = -1;
    if (c >= '0' && c <= '9') value = c - '0';
    if (c >= 'a' && c <= 'f') value = c - 'a' + 10;
    if (value < 0) continue;
    id[nibbles / 2] = static_cast<uint8_t>(id[nibbles / 2] << 4 | value);
    ++nibbles;
  }
  return nibbles == 32;
}

// The first of `names` that is set and a whole number; -1 otherwise.
int32_t FirstNumber(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = environment(name);
    if (value == nullptr || *value == '\0') continue;
    char* end = nullptr;
    errno = 0;
    const long number = strtol(value, &end, 10);
    if (errno == 0 && *end == '\0' && number >= 0 && number <= INT32_MAX) return static_cast<int32_t>(number);
  }
  return -1;
}

std::string Value(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

wire::ProcessIdentity CurrentProcess() {
  wire::ProcessIdentity identity{};
  if (!ReadBootId(identity.boot_id)) memset(identity.boot_id, 0, sizeof identity.boot_id);
  identity.start_time_ticks = StartTimeTicks();
  identity.pid = static_cast<uint32_t>(getpid());
  return identity;
}

uint64_t CurrentPidNamespace() {
  struct stat status;
  return stat("/proc/self/ns/pid", &status) == 0 ? static_cast<uint64_t>(status.st_ino) : 0;
}

const std::string& HostName() {
  static const std::string* const name = [] {
    char text[65] = "";
    if (gethostname(text, sizeof text - 1) != 0 || text[0] == '\0') return new std::string("unknown-host");
    return new std::string(text);
  }();
  return *name;
}

std::string ProgramName() {
  char path[1024];
  const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path);
  if (bytes <= 0) return "unknown";
  const std::string whole(path, static_cast<size_t>(bytes));
  return whole.substr(whole.rfind('/') + 1);
}

JobIdentity ReadJobIdentity(const Environment& environment) {
  JobIdentity job;
  const std::string slurm = Value(environment, "SLURM_JOB_ID");
  if (std::string c4 = Value(environment, "C4_JOB_ID"); !c4.empty()) {
    job.name = std::move(c4);
    job.source = wire::kJobC4;
  } else if (!slurm.empty()) {
    const std::string step = Value(environment, "SLURM_STEP_ID");
    job.name = step.empty() ? slurm : slurm + "." + step;
    job.source = wire::kJobSlurm;
  } else if (std::string torch = Value(environment, "TORCHELASTIC_RUN_ID"); !torch.empty()) {
    job.name = std::move(torch);
    job.source = wire::kJobTorchElastic;
  } else if (std::string pod = Value(environment, "C4_POD_JOB"); !pod.empty()) {
    job.name = std::move(pod);
    job.source = wire::kJobPodLabel;
  }
  job.rank = FirstNumber(environment, {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"});
  job.local_rank = FirstNumber(
      environment, {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"});
  job.world = FirstNumber(environment, {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"});
  const int32_t restarts =
      FirstNumber(environment, {"C4_INCARNATION", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"});
  job.incarnation = restarts < 0 ? 0 : static_cast<uint32_t>(restarts);
  return job;
}

JobIdentity ReadJobIdentity() {
  return ReadJobIdentity([](const char* name) -> const char* {
    return getenv(name);  // NOLINT(concurrency-mt-unsafe): the library never writes the environment
  });
}

std::string ProvisionalJobName(uint64_t communicator_id) {
  char text[32];
  snprintf(text, sizeof text, "job-%016" PRIx64, communicator_id);
  return text;
}

// FNV-1a over the bytes, then a finalizer that spreads every input bit over the word.
uint64_t HashBytes(const void* data, size_t bytes, uint64_t seed) {
  const auto* at = static_cast<const uint8_t*>(data);
  uint64_t hash = 0xcbf29ce484222325u ^ seed;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3u;
  hash ^= hash >> 30;
  hash *= 0xbf58476d1ce4e5b9u;
  hash ^= hash >> 27;
  hash *= 0x94d049bb133111ebu;
  return hash ^ (hash >> 31);
}

uint64_t ChildCommunicatorId(uint64_t parent_id, uint64_t split_number, int colour) {
  const uint64_t parts[] = {parent_id, split_number, static_cast<uint64_t>(static_cast<int64_t>(colour))};
  return HashBytes(parts, sizeof parts);
}

}  // namespace c4
