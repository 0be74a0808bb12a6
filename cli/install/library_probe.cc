#include "cli/install/library_probe.h"

#include <climits>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <optional>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ccl/include/c4/installed.h"
#include "cli/base/child.h"
#include "cli/base/memory_file.h"
#include "cli/base/plain_text.h"

namespace c4::cli {
namespace {

std::string Resolved(const char* path) {
  char resolved[PATH_MAX];
  return realpath(path, resolved) == nullptr ? path : resolved;
}

std::vector<std::string> Lines(const MemoryFile& file) {
  return Words(file.Text(), "\n");
}

void Say(int fd, const char* key, const std::string& value) {
  const std::string line = Cat(key, " ", value, "\n");
  [[maybe_unused]] const ssize_t written = write(fd, line.data(), line.size());
}

// Our library sits in front of the vendor's, which it has opened with names of its own.
int AddOther(dl_phdr_info* info, size_t, void* names) {
  if (info->dlpi_name != nullptr && info->dlpi_name[0] == '/') {
    static_cast<std::vector<std::string>*>(names)->emplace_back(info->dlpi_name);
  }
  return 0;
}

std::string VendorBehind(const std::string& ours) {
  std::vector<std::string> names;
  dl_iterate_phdr(&AddOther, &names);
  for (const std::string& name : names) {
    if (Resolved(name.c_str()) == ours) continue;
    void* const handle = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    void* const symbol = handle == nullptr ? nullptr : dlsym(handle, "ncclGetVersion");
    Dl_info info;
    // Not one that it only depends on.
    if (symbol != nullptr && dladdr(symbol, &info) != 0 && info.dli_fname == name) {
      return Resolved(name.c_str());
    }
  }
  return "";
}

// NOLINTBEGIN(concurrency-mt-unsafe): the child has one thread
void SetEnvironment(bool with_settings) {
  if (!with_settings) {
    for (const std::string& entry : OwnEnvironment()) {
      const std::string name = entry.substr(0, entry.find('='));
      if (name.starts_with("C4_") || name.starts_with("NCCL_")) unsetenv(name.c_str());
    }
  }
  setenv("C4_MONITOR", "0", 1);
  setenv("C4_CONTROL", "0", 1);
  setenv("NCCL_DEBUG", "INFO", 1);
  unsetenv("NCCL_DEBUG_FILE");
}

// A network plugin of the image's, of a version that C4 can stand before.
std::string DefaultNetPlugin() {
  void* const plugin = dlopen("libnccl-net.so", RTLD_LAZY | RTLD_LOCAL);
  const link_map* map = nullptr;
  if (plugin == nullptr || dlinfo(plugin, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return "";
  for (const char* table : {"ncclNetPlugin_v8", "ncclNetPlugin_v9", "ncclNetPlugin_v10", "ncclNetPlugin_v11",
                            "ncclNetPlugin_v12"}) {
    if (dlsym(plugin, table) != nullptr) return Resolved(map->l_name);
  }
  return "";
}

void Look(const std::string& library, int out) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = dlerror();
    return Say(out, "fault", reason == nullptr ? "the loader gave no reason" : reason);
  }
  const link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) {
    return Say(out, "fault", "the loader does not say from where");
  }
  const std::string path = Resolved(map->l_name);
  Say(out, "path", path);
  const auto get_version = reinterpret_cast<int (*)(int*)>(dlsym(handle, "ncclGetVersion"));
  if (get_version == nullptr) return Say(out, "fault", "it is no NCCL: it lacks ncclGetVersion");
  int version = 0;
  if (const int result = get_version(&version); result != 0) {
    return Say(out, "fault", Cat("ncclGetVersion failed with ", result));
  }
  Say(out, "version", Cat(version));
  if (dlsym(handle, kOurMark) == nullptr) return;
  Say(out, "ours", "1");
  Say(out, "vendor", VendorBehind(path));
  for (const char* name : {"NCCL_NET_PLUGIN", "NCCL_PROFILER_PLUGIN"}) {
    if (const char* const value = getenv(name)) Say(out, name, value);
  }
  if (const std::string plugin = DefaultNetPlugin(); !plugin.empty()) Say(out, "default-net", plugin);
}
// NOLINTEND(concurrency-mt-unsafe)

[[noreturn]] void RunChild(const ProbeRequest& request, int out, int log) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  dup2(log, STDERR_FILENO);
  dup2(log, STDOUT_FILENO);
  SetEnvironment(request.with_settings);
  Look(request.library, out);
  _exit(0);  // what the library wants to do at the end of the process is none of ours
}

// "host:pid:tid C4 INFO text" is of ours; the text.
std::optional<std::string> OurLine(const std::string& line) {
  for (const char* mark : {" C4 INFO ", " C4 WARN "}) {
    const size_t at = line.find(mark);
    if (at != std::string::npos) return line.substr(at + strlen(mark));
  }
  return std::nullopt;
}

}  // namespace

std::string VersionText(int version) {
  return Cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

StatusOr<LibraryProbe> ProbeLibrary(const ProbeRequest& request) {
  const MemoryFile out("c4-probe"), log("c4-probe-log");
  if (out.fd() < 0 || log.fd() < 0) return ErrnoStatus(errno, "cannot make a file in memory");
  fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "cannot start a process");
  if (pid == 0) RunChild(request, out.fd(), log.fd());
  const StatusOr<int> ended = ReapWithin(pid, request.limit);

  LibraryProbe probe;
  std::string fault;
  for (const std::string& line : Lines(out)) {
    const std::string key = line.substr(0, line.find(' '));
    const std::string value = line.substr(key.size() + 1);
    if (key == "fault") fault = value;
    if (key == "path") probe.path = value;
    if (key == "version") probe.version = atoi(value.c_str());
    if (key == "ours") probe.ours = true;
    if (key == "vendor") probe.vendor_path = value;
    if (key == "NCCL_NET_PLUGIN") probe.net_plugin = value;
    if (key == "NCCL_PROFILER_PLUGIN") probe.profiler_plugin = value;
    if (key == "default-net") probe.default_net = value;
  }
  for (const std::string& line : Lines(log)) {
    if (std::optional<std::string> text = OurLine(line)) probe.log.push_back(*std::move(text));
  }
  if (!ended.ok()) {
    return FailedPreconditionError(
        Cat(request.library, " hangs when it is loaded: ", ended.status().message()));
  }
  if (*ended != 0) {
    return FailedPreconditionError(Cat("a process that loads ", request.library, " ", DescribeExit(*ended)));
  }
  if (fault.empty()) return probe;
  const std::string sentence = Cat(request.library, " cannot be used: ", fault);
  return probe.path.empty() && request.library.find('/') == std::string::npos
             ? NotFoundError(sentence)
             : FailedPreconditionError(sentence);
}

}  // namespace c4::cli
