#include "ccl/engine/vendor/library.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include "ccl/base/caught.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
#include "ccl/engine/vendor/settings.h"
#include "ccl/tap/tap.h"

namespace c4::vendor {
namespace internal {
std::atomic<const Api*> api{nullptr};
}

namespace {

constexpr char kFile[] = "libnccl.so.2";

std::string Resolved(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) == nullptr ? "" : resolved;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

bool IsFile(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

FileId IdOf(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

bool IsSameFile(const std::string& a, const std::string& b) {
  const FileId id = IdOf(a);
  return id.inode != 0 && id == IdOf(b);
}

bool IsUs(const std::string& path, const Places& places) {
  const FileId own = places.own_file.inode != 0 ? places.own_file : IdOf(places.own_path);
  return own.inode != 0 && IdOf(path) == own;
}

FileId loaded_file;

// While the path that we were loaded by still is us.
__attribute__((constructor)) void RememberOwnFile() {
  loaded_file = IdOf(OwnPath());
}

// The packages of Python that hold a loaded library: …/site-packages/torch/lib/libtorch_cuda.so.
std::string SitePackages(const std::string& loaded) {
  for (const char* name : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = loaded.rfind(name);
    if (at != std::string::npos) return loaded.substr(0, at + strlen(name) - 1);
  }
  return "";
}

int AddLoaded(dl_phdr_info* info, size_t, void* loaded) {
  if (info->dlpi_name != nullptr && info->dlpi_name[0] == '/') {
    static_cast<std::vector<std::string>*>(loaded)->emplace_back(info->dlpi_name);
  }
  return 0;
}

std::string VersionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

struct Decision {
  Library library;
  bool found = false;
  Result refusal;
};

// The first candidate that will do. What is wanted and will not do is a failure, what was only found is
// passed over.
void Search(const Places& places, bool needed, Decision* decision) {
  std::string passed_over;
  for (const Candidate& candidate : Candidates(places)) {
    Result opened = Open(candidate, places, &decision->library);
    if (opened.ok()) {
      decision->found = true;
      return;
    }
    if (!places.wanted.empty()) {
      decision->refusal = std::move(opened);
      return;
    }
    C4_INFO("passed over: %s", opened.message().c_str());
    passed_over += "; " + opened.message();
  }
  if (!needed) return;
  decision->refusal = Fail(ncclInvalidUsage,
                           "C4_ENGINE=vendor, and no NCCL of the vendor's was found%s: name it in "
                           "C4_VENDOR_LIBRARY, or install nvidia-nccl-cu12 or -cu13",
                           passed_over.c_str());
}

const Decision& Decide() {
  static const Decision* const decision = [] {
    auto* made = new Decision;
    const std::string wish = KnobText(Knob::C4_ENGINE);
    if (wish != "host") Search(ProcessPlaces(), wish == "vendor", made);
    if (made->found) {
      SettlePlugins(made->library.version);
      C4_INFO("C4, engine vendor: NCCL %s, %s (%s); %s", VersionText(made->library.version).c_str(),
              made->library.path.c_str(), made->library.why.c_str(),
              Describe(CurrentPlugins(), made->library.version,
                       ChooseKernelTimes(KnobText(Knob::C4_KERNEL_STAMPS), made->library.version))
                  .c_str());
      if (KnobNumber(Knob::C4_TAP) != 0) {
        const Result tapped = tap::Install(made->library.handle);
        if (!tapped.ok()) C4_INFO("its RDMA queue pairs are not watched: %s", tapped.message().c_str());
      }
      internal::api.store(&made->library.api, std::memory_order_release);
    }
    return made;
  }();
  return *decision;
}

}  // namespace

std::string OwnPath() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&OwnPath), &info) == 0 || info.dli_fname == nullptr) return "";
  return Resolved(info.dli_fname);
}

void* Library::Symbol(const char* name) const {
  return dlsym(handle, name);
}

Places ProcessPlaces() {
  Places places;
  places.own_path = OwnPath();
  places.own_file = loaded_file;
  places.wanted = KnobText(Knob::C4_VENDOR_LIBRARY);
  places.environment = [](const char* name) -> const char* {
    return getenv(name);  // NOLINT(concurrency-mt-unsafe)
  };
  dl_iterate_phdr(AddLoaded, &places.loaded);
  return places;
}

std::vector<Candidate> Candidates(const Places& places) {
  if (!places.wanted.empty()) return {{places.wanted, "C4_VENDOR_LIBRARY"}};
  std::vector<Candidate> all;
  const auto add = [&](const std::string& path, const char* why) {
    if (!IsFile(path) || IsUs(path, places)) return;
    const bool known = std::any_of(
        all.begin(), all.end(), [&](const Candidate& candidate) { return IsSameFile(candidate.path, path); });
    if (!known) all.push_back({path, why});
  };
  if (!places.own_path.empty()) {
    const std::string folder = FolderOf(places.own_path);
    add(folder + "/" + kInstalledName, "beside us");
    // In other words than those we were loaded by: for the loader a path that it has loaded is what it has
    // loaded.
    add(folder + "/./" + places.own_path.substr(folder.size() + 1), "put in our place since we were loaded");
  }
  // Python's packages: ours may lie in them, or what is loaded does (PyTorch), or an environment is active.
  std::vector<std::string> packages = {SitePackages(places.own_path)};
  for (const std::string& loaded : places.loaded) packages.push_back(SitePackages(loaded));
  for (const std::string& folder : packages) {
    if (!folder.empty()) add(folder + "/nvidia/nccl/lib/" + kFile, "of the process's Python packages");
  }
  for (const char* name : {"NCCL_HOME", "NCCL_ROOT", "CONDA_PREFIX", "CUDA_HOME"}) {
    const char* const folder = places.environment(name);
    if (folder == nullptr || folder[0] == '\0') continue;
    add(std::string(folder) + "/lib/" + kFile, name);
    add(std::string(folder) + "/lib64/" + kFile, name);
  }
  for (const char* folder :
       {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib",
        "/usr/local/nccl/lib", "/usr/local/cuda/lib64", "/opt/nccl/lib"}) {
    add(places.root + folder + "/" + kFile, "of the system");
  }
  return all;
}

Result Open(const Candidate& candidate, const Places& places, Library* library) {
  const char* const path = candidate.path.c_str();
  if (IsUs(candidate.path, places)) {
    return Fail(ncclInvalidUsage, "%s (%s) is this library itself: name the vendor's NCCL instead", path,
                candidate.why);
  }
  int flags = RTLD_NOW | RTLD_LOCAL;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which cannot do with it
  flags |= RTLD_DEEPBIND;
#endif
  // With a slash, or the loader would look for the name and find us.
  const std::string full =
      candidate.path.find('/') == std::string::npos ? "./" + candidate.path : candidate.path;
  void* const handle = dlopen(full.c_str(), flags);
  if (handle == nullptr) {
    const char* const reason = dlerror();  // NOLINT(concurrency-mt-unsafe): per thread in every libc of ours
    return Fail(ncclSystemError, "%s (%s) cannot be opened as the vendor's NCCL: %s", path, candidate.why,
                reason == nullptr ? "no reason was given" : reason);
  }
  Library opened;
  opened.handle = handle;
  opened.path = Resolved(full);
  opened.why = candidate.why;
#define C4_VENDOR_CALL(name, type) opened.api.name = reinterpret_cast<type>(dlsym(handle, "nccl" #name));
  C4_VENDOR_CALLS(C4_VENDOR_CALL)
#undef C4_VENDOR_CALL
  const auto refuse = [&](Result refusal) {
    dlclose(handle);
    return refusal;
  };
  if (dlsym(handle, kOurMark) != nullptr) {
    return refuse(Fail(ncclInvalidUsage, "%s (%s) is another copy of C4: name the vendor's NCCL instead",
                       path, candidate.why));
  }
  if (opened.api.GetVersion == nullptr || opened.api.CommInitRank == nullptr ||
      opened.api.AllReduce == nullptr) {
    return refuse(Fail(ncclInvalidUsage, "%s (%s) is no NCCL: it lacks %s", path, candidate.why,
                       opened.api.GetVersion == nullptr     ? "ncclGetVersion"
                       : opened.api.CommInitRank == nullptr ? "ncclCommInitRank"
                                                            : "ncclAllReduce"));
  }
  if (opened.api.GetVersion(&opened.version) != ncclSuccess || opened.version < kOldestVendorVersion) {
    return refuse(Fail(ncclInvalidUsage, "%s (%s) is NCCL %s: C4 needs %s or later", path, candidate.why,
                       VersionText(opened.version).c_str(), VersionText(kOldestVendorVersion).c_str()));
  }
  *library = std::move(opened);
  return Ok();
}

const Library* Get() {
  const Decision* decision = nullptr;
  // For want of memory nothing is decided: the next call tries again.
  (void)Caught([&decision] {
    decision = &Decide();
    return Ok();
  });
  return decision != nullptr && decision->found ? &decision->library : nullptr;
}

Result Refusal() {
  return Decide().refusal;
}

}  // namespace c4::vendor
