#include "ccl/engine/vendor/settings.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <vector>

#include "ccl/base/knobs.h"
#include "ccl/engine/vendor/library.h"

namespace c4::vendor {
namespace {

constexpr char kNet[] = "NCCL_NET_PLUGIN";
constexpr char kProfiler[] = "NCCL_PROFILER_PLUGIN";
constexpr char kTuner[] = "NCCL_TUNER_PLUGIN";
constexpr char kDefaultTuner[] = "libnccl-tuner.so";
constexpr char kDefaultNet[] = "libnccl-net.so";
constexpr int kNewestTuner = 9;                   // of the interface; 6 is in use
constexpr int kFirstVersionWithProfiler = 22600;  // of the interface that we serve
constexpr char kUserProfiler[] = "C4_USER_PROFILER";
constexpr char kNone[] = "none";
// Releases 2.28 and 2.29 forget the plugin's name with their last communicator, unless they never unload it.
constexpr char kKeepNet[] = "NCCL_NET_PLUGIN_REF_COUNT";

const char* ProcessVariable(const char* name) {
  return getenv(name);  // NOLINT(concurrency-mt-unsafe)
}

std::string ReadFile(const std::string& path) {
  constexpr size_t kMostBytes = 65536;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "re"), &fclose);
  if (file == nullptr) return "";
  std::string text(kMostBytes, '\0');
  text.resize(fread(text.data(), 1, text.size(), file.get()));
  return text;
}

// A line "NAME=value" of one of NCCL's configuration files.
std::string InFile(const std::string& text, const std::string& name) {
  size_t at = 0;
  while (at < text.size()) {
    size_t end = text.find('\n', at);
    if (end == std::string::npos) end = text.size();
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.compare(0, name.size() + 1, name + "=") != 0) continue;
    std::string value = line.substr(name.size() + 1);
    while (!value.empty() && (value.back() == '\r' || value.back() == ' ')) value.pop_back();
    return value;
  }
  return "";
}

// The files that NCCL reads, the first that has a value wins: it never overwrites.
std::vector<std::string> ConfigFiles(const std::function<const char*(const char*)>& environment) {
  std::vector<std::string> files;
  const char* const named = environment("NCCL_CONF_FILE");
  const char* const home = environment("HOME");
  if (named != nullptr && named[0] != '\0') {
    files.emplace_back(named);
  } else if (home != nullptr) {
    files.push_back(std::string(home) + "/.nccl.conf");
  }
  files.emplace_back("/etc/nccl.conf");
  return files;
}

bool Asked() {
  return KnobText(Knob::C4_ENGINE) != "host" && KnobNumber(Knob::C4_PLUGINS) != 0;
}

// A process that has no vendor's library has no use for its settings, and neither have its children.
__attribute__((constructor)) void HandOver() {
  const bool asked = Asked();
  // The program may still set its own before its first call: a Python program imports us first.
  ForgetKnobs();
  if (!asked) return;
  const Places places = ProcessPlaces();
  if (places.own_path.empty() || Candidates(places).empty()) return;
  const PluginSettings settings = ChoosePlugins(places.own_path, &ProcessVariable, &ReadFile);
  // NOLINTBEGIN(concurrency-mt-unsafe)
  if (settings.net.ours) {
    setenv(kNet, settings.net.value.c_str(), 1);
    setenv(kKeepNet, "1", 0);
  }
  if (settings.profiler.ours) setenv(kProfiler, settings.profiler.value.c_str(), 1);
  if (!settings.profiler.beside.empty()) setenv(kUserProfiler, settings.profiler.beside.c_str(), 1);
  // NOLINTEND(concurrency-mt-unsafe)
  ForgetKnobs();  // who looked for the vendor's library has read them
}

std::string Say(const Setting& setting) {
  if (!setting.beside.empty()) return "ours, and " + setting.beside + " (" + setting.from + ") beside it";
  if (setting.ours) return "ours";
  if (setting.value.empty()) return "the vendor's own";
  return setting.value + " (" + setting.from + ")";
}

}  // namespace

PluginSettings ChoosePlugins(const std::string& own_path,
                             const std::function<const char*(const char*)>& environment,
                             const std::function<std::string(const std::string&)>& file) {
  const auto choose = [&](const char* name) {
    const char* const set = environment(name);
    if (set != nullptr && set[0] != '\0' && own_path != set) return Setting{set, false, "the environment"};
    for (const std::string& path : ConfigFiles(environment)) {
      const std::string value = InFile(file(path), name);
      if (!value.empty()) return Setting{value, value == own_path, path};
    }
    return Setting{own_path, true, ""};
  };
  Setting profiler = choose(kProfiler);
  const char* const beside = environment(kUserProfiler);
  if (!profiler.ours && profiler.value != kNone) {
    profiler = {own_path, true, profiler.from, profiler.value};
  } else if (profiler.ours && beside != nullptr && beside[0] != '\0' && own_path != beside) {
    profiler.beside = beside;  // as a parent process of ours left it, or the user himself
    profiler.from = kUserProfiler;
  }
  Setting tuner = choose(kTuner);
  if (tuner.ours) tuner = {};  // nobody has named one
  return {choose(kNet), profiler, tuner};
}

void SettlePlugins(int version) {
  const PluginSettings settings = CurrentPlugins();
  // NOLINTBEGIN(concurrency-mt-unsafe): at the program's first call, as NCCL itself sets what its files say
  if (version < kFirstVersionWithProfiler && settings.profiler.ours && !settings.profiler.beside.empty()) {
    setenv(kProfiler, settings.profiler.beside.c_str(), 1);
  }
  if (!settings.net.ours || !ChoosePlugins(OwnPath(), &ProcessVariable, &ReadFile).tuner.value.empty())
    return;
  if (dlopen(kDefaultTuner, RTLD_NOW | RTLD_LOCAL) != nullptr) return;  // which NCCL finds by itself
  void* const net = dlopen(kDefaultNet, RTLD_NOW | RTLD_LOCAL);
  for (int i = 1; net != nullptr && i <= kNewestTuner; ++i) {
    if (dlsym(net, ("ncclTunerPlugin_v" + std::to_string(i)).c_str()) == nullptr) continue;
    setenv(kTuner, kDefaultNet, 1);
    return;
  }
  // NOLINTEND(concurrency-mt-unsafe)
}

PluginSettings CurrentPlugins() {
  const std::string own_path = OwnPath();
  const auto read = [&](const char* name) {
    const char* const set = ProcessVariable(name);
    if (set == nullptr) return Setting{};
    return Setting{set, own_path == set, "the environment"};
  };
  Setting profiler = read(kProfiler);
  const char* const beside = ProcessVariable(kUserProfiler);
  if (profiler.ours && beside != nullptr && beside[0] != '\0') {
    profiler.from = kUserProfiler;
    profiler.beside = beside;
  }
  return {read(kNet), profiler, read(kTuner)};
}

std::string Describe(const PluginSettings& settings, int version, KernelTimes times) {
  std::string text = "net plugin: " + Say(settings.net) + "; profiler: " + Say(settings.profiler);
  if (settings.profiler.ours && version < kFirstVersionWithProfiler) text += " (from 2.26 on only)";
  if (times == KernelTimes::kStamps) {
    text += "; kernel times: from stamps of ours";
  } else if (times == KernelTimes::kNone || !settings.profiler.ours || version < kFirstVersionWithProfiler) {
    text += "; calls are seen, not their kernels";
  } else {
    text += version < kFirstVersionWithKernelTimes ? "; kernel times: when we hear of them"
                                                   : "; kernel times: from NCCL";
  }
  return text + "; not seen: NVLink, SHARP, GIN and RMA traffic";
}

}  // namespace c4::vendor
