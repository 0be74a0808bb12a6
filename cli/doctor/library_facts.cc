#include "cli/doctor/library_facts.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "ccl/include/c4/installed.h"
#include "cli/base/plain_file.h"
#include "cli/base/plain_text.h"
#include "cli/install/elf_image.h"
#include "cli/install/installation.h"
#include "cli/install/own_library.h"
#include "cli/install/python_nccl.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kNetSymbol[] = "ncclNetPlugin_v";
constexpr char kProfilerSymbol[] = "ncclProfiler_v";

std::string Variable(const std::string& name) {
  const char* const value = getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? "" : value;
}

std::string TextOf(const std::string& path) {
  constexpr size_t kMostBytes = 65536;  // as the library reads
  const StatusOr<std::string> text = ReadSmallFile(path, kMostBytes, Links::kFollow);
  return text.ok() ? *text : "";
}

std::string Resolved(const std::string& path) {
  std::error_code error;
  const fs::path resolved = fs::canonical(path, error);
  return error ? path : resolved.string();
}

bool IsOurs(const std::string& path) {
  return ElfImage::Read(path).Exports(kOurMark);
}

std::optional<LibraryPlace> PythonPlace(const std::string& python) {
  const StatusOr<std::string> folder = PythonNcclFolder(python);
  if (!folder.ok()) return std::nullopt;
  const std::string path = Cat(*folder, "/", kLibraryName);
  return LibraryPlace{path, IsOurs(path)};
}

bool Preloaded() {
  const std::vector<std::string> libraries = Words(Variable("LD_PRELOAD"), ": ");
  return std::ranges::any_of(libraries, [](const std::string& library) { return IsOurs(library); });
}

bool IsNcclName(const std::string& name) {
  return name.starts_with("nccl") || name.starts_with("pnccl");
}

// Ours by what it exports: a plugin is found by its symbol.
std::vector<int> ExportedVersions(const ElfImage& image, const std::string& prefix) {
  std::vector<int> versions;
  for (const ElfSymbol& symbol : image.exported) {
    if (symbol.name.starts_with(prefix)) versions.push_back(atoi(symbol.name.c_str() + prefix.size()));
  }
  std::ranges::sort(versions);
  return versions;
}

void CompareWithVendor(LibraryFacts* facts) {
  const ElfImage ours = ElfImage::Read(facts->own_path);
  facts->net.ours = ExportedVersions(ours, kNetSymbol);
  facts->profiler.ours = ExportedVersions(ours, kProfilerSymbol);
  std::vector<std::vector<int>> numbers;
  const ElfImage theirs =
      ElfImage::ReadWithNumbers(facts->probe->vendor_path, {kNetSymbol, kProfilerSymbol}, &numbers);
  facts->net.theirs = numbers[0];
  facts->profiler.theirs = numbers[1];
  for (const ElfSymbol& symbol : theirs.exported) {
    if (!IsNcclName(symbol.name)) continue;
    ++facts->vendor_names;
    if (!ours.Exports(symbol.name)) facts->missing_names.push_back(symbol.name);
  }
}

// Nothing where `c4 install` has never been.
void JudgeInstalled(const LibraryPlace& place, std::vector<std::string>* faults) {
  const std::string folder = fs::path(place.path).parent_path().string();
  std::error_code error;
  if (!fs::exists(Cat(folder, "/", kRecordName), error)) return;
  const StatusOr<InstallFolder> found = LookAtFolder(folder);
  const Status fault = found.ok() ? Judge(*found).status() : found.status();
  const std::string& sentence = fault.message();
  if (!fault.ok() && std::ranges::find(*faults, sentence) == faults->end()) faults->push_back(sentence);
}

std::string ValueInFile(const std::string& text, const std::string& name) {
  for (const std::string& line : Split(text, "\n")) {
    if (!line.starts_with(name + "=")) continue;
    return line.substr(name.size() + 1, line.find_last_not_of(" \t\r\f\v") - name.size());
  }
  return "";
}

}  // namespace

NcclSetting UsersSetting(const std::string& name, const std::string& own_path,
                         const std::function<std::string(const std::string&)>& variable,
                         const std::function<std::string(const std::string&)>& file) {
  // A value that names us was left by a parent process.
  if (const std::string value = variable(name); !value.empty() && value != own_path) {
    return {value, "the environment"};
  }
  const std::string named = variable("NCCL_CONF_FILE");
  const std::string home = variable("HOME");
  for (const std::string& path :
       {named.empty() && !home.empty() ? home + "/.nccl.conf" : named, std::string("/etc/nccl.conf")}) {
    const std::string value = path.empty() ? "" : ValueInFile(file(path), name);
    if (value.empty()) continue;
    return value == own_path ? NcclSetting{} : NcclSetting{value, path};
  }
  return {};
}

LibraryFacts ReadLibraries(const LibraryQuestion& question) {
  LibraryFacts facts;
  facts.has_gpu = question.has_gpu;
  facts.engine = Variable("C4_ENGINE");
  facts.wanted = Variable("C4_VENDOR_LIBRARY");
  facts.plugins_off = Variable("C4_PLUGINS") == "0";
  facts.net_wanted = Variable("NCCL_NET");
  if (!question.library.empty()) {
    facts.asked = {question.library, IsOurs(question.library)};
  } else {
    const StatusOr<LibraryProbe> loaded = ProbeLibrary({.library = kLibraryName, .with_settings = true});
    if (loaded.ok()) facts.loader = {loaded->path, loaded->ours};
    if (!loaded.ok() && !IsNotFound(loaded.status()))
      facts.loader_fault = std::string(loaded.status().message());
    facts.python = PythonPlace(question.python);
    facts.preloaded = Preloaded();
  }
  for (const std::optional<LibraryPlace>& place : {facts.asked, facts.loader, facts.python}) {
    if (place.has_value()) JudgeInstalled(*place, &facts.install_faults);
    if (facts.own_path.empty() && place.has_value() && place->ours) facts.own_path = Resolved(place->path);
  }
  if (facts.own_path.empty() && !facts.asked.has_value()) {
    if (const StatusOr<std::string> own = OwnLibrary(); own.ok() && IsOurs(*own)) {
      facts.own_path = Resolved(*own);
    }
  }
  if (facts.own_path.empty()) return facts;

  const StatusOr<LibraryProbe> probe = ProbeLibrary({.library = facts.own_path, .with_settings = true});
  if (!probe.ok()) {
    facts.probe_fault = std::string(probe.status().message());
    return facts;
  }
  facts.probe = *probe;
  facts.net_setting = UsersSetting("NCCL_NET_PLUGIN", facts.own_path, &Variable, &TextOf);
  facts.profiler_setting = UsersSetting("NCCL_PROFILER_PLUGIN", facts.own_path, &Variable, &TextOf);
  if (!probe->vendor_path.empty()) {
    CompareWithVendor(&facts);
  } else if (!facts.wanted.empty()) {
    const StatusOr<LibraryProbe> wanted = ProbeLibrary({.library = Resolved(facts.wanted)});
    facts.wanted_fault = !wanted.ok()   ? std::string(wanted.status().message())
                         : wanted->ours ? "it is C4's own"
                                        : Cat("it is NCCL ", VersionText(wanted->version));
  }
  return facts;
}

}  // namespace c4::cli
