#include "tests/unit/ccl/front_door.h"

#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace c4::front_door {
namespace {

std::string RunFolder() {
  const char* const folder = getenv("C4_RUN_DIR");  // NOLINT(concurrency-mt-unsafe)
  return folder == nullptr ? "/tmp" : folder;
}

std::string ReadAll(int fd) {
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = read(fd, part, sizeof part)) > 0;) text.append(part, static_cast<size_t>(got));
  return text;
}

}  // namespace

std::string Variable(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? "" : value;
}

std::string BuildFolder() {
  const char* const folder = getenv("C4_BUILD_DIR");  // NOLINT(concurrency-mt-unsafe)
  return folder == nullptr ? "build" : folder;
}

std::string OurLibrary() {
  const std::string named = Variable("C4_LIBRARY");
  return named.empty() ? BuildFolder() + "/lib/libnccl.so.2" : named;
}

std::string Double(const std::string& version) {
  return BuildFolder() + "/tests/doubles/fake_nccl_" + version + ".so";
}

Door::Door(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) error_ = dlerror();  // NOLINT(concurrency-mt-unsafe)
}

void* Door::Symbol(const char* name) {
  return handle_ == nullptr ? nullptr : dlsym(handle_, name);
}

std::vector<wire::CommunicatorSlot> Door::Communicators() {
  std::vector<wire::CommunicatorSlot> slots;
  DIR* const folder = opendir(RunFolder().c_str());
  if (folder == nullptr) return slots;
  while (const dirent* const entry = readdir(folder)) {  // NOLINT(concurrency-mt-unsafe)
    const std::string name = entry->d_name;
    if (!name.ends_with(wire::kSegmentSuffix)) continue;
    const int fd = open((RunFolder() + "/" + name).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    const std::string bytes = ReadAll(fd);
    close(fd);
    wire::SegmentHeader header;
    if (bytes.size() < sizeof header) continue;
    memcpy(&header, bytes.data(), sizeof header);
    if (header.header.writer.pid != static_cast<uint32_t>(getpid())) continue;
    for (uint32_t i = 0; i < header.communicators_used; ++i) {
      wire::CommunicatorSlot slot;
      memcpy(&slot, bytes.data() + header.communicators.offset + i * header.communicators.stride_bytes,
             sizeof slot);
      slots.push_back(slot);
    }
  }
  closedir(folder);
  return slots;
}

Vendor::Vendor(const std::string& version)
    : handle_(dlopen(Double(version).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) {}

fake_vendor::LastCall Vendor::Last() {
  fake_vendor::LastCall last{};
  if (handle_ != nullptr)
    reinterpret_cast<fake_vendor::ReadLastCall>(dlsym(handle_, "fake_last_call"))(&last);
  return last;
}

uint64_t Vendor::Calls(const char* name) {
  return handle_ == nullptr ? 0
                            : reinterpret_cast<fake_vendor::CountCalls>(dlsym(handle_, "fake_calls"))(name);
}

void Vendor::Answer(const char* name, ncclResult_t result) {
  reinterpret_cast<fake_vendor::SetResult>(dlsym(handle_, "fake_set_result"))(name, result);
}

std::string InChild(const std::map<std::string, std::string>& environment,
                    const std::function<std::string()>& body) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
  char run[] = "/tmp/c4-front-door-XXXXXX";
  if (mkdtemp(run) == nullptr) return "no folder";
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    // NOLINTBEGIN(concurrency-mt-unsafe)
    unsetenv("C4_ENGINE");
    setenv("C4_RUN_DIR", run, 1);
    setenv("C4_CONTROL", "0", 1);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    // NOLINTEND(concurrency-mt-unsafe)
    const std::string text = body();
    if (write(ends[1], text.data(), text.size()) < 0) _exit(3);
    _exit(0);
  }
  close(ends[1]);
  std::string text = ReadAll(ends[0]);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  const std::string remove = std::string("rm -rf ") + run;
  if (system(remove.c_str()) != 0) text += " (left a folder behind)";  // NOLINT
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    text += " (died with status " + std::to_string(status) + ")";
  return text;
}

}  // namespace c4::front_door
