// JudgeLibraries: what follows from the libraries, plugins and settings that a job gets.
#include <algorithm>

#include "ccl/include/c4/installed.h"
#include "cli/base/plain_text.h"
#include "cli/base/program.h"
#include "cli/doctor/library_facts.h"

namespace c4::cli {
namespace {

constexpr size_t kMostNamesShown = 4;

std::string FolderOf(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

Finding AskedFinding(const LibraryPlace& place) {
  if (place.ours) return {Grade::kOk, "library", Cat(place.path, " is C4's"), ""};
  return {Grade::kProblem, "library", Cat(place.path, " is not C4's: nothing is seen of jobs that load it"),
          Cat(CommandFor("install"), " ", FolderOf(place.path), ", or name C4's library")};
}

// One line for programs in general and one for Python's wheels, which bring a path of their own to the
// loader.
void AddPlaces(const LibraryFacts& facts, Findings* findings) {
  if (facts.asked.has_value()) return findings->push_back(AskedFinding(*facts.asked));
  if (!facts.loader_fault.empty()) {
    findings->push_back({Grade::kProblem, "library", facts.loader_fault,
                         "take that file out of LD_LIBRARY_PATH, or repair it"});
  }
  const auto& [loader, python] = std::tie(facts.loader, facts.python);
  if (!loader.has_value() && !python.has_value()) {
    if (!facts.loader_fault.empty()) return;
    return findings->push_back(
        {Grade::kProblem, "library", "neither the loader nor Python's packages have a libnccl.so.2 here",
         CommandFor("install") + " DIR, with the folder of the job's NCCL; or run this where the job runs"});
  }
  if (loader.has_value() && loader->ours) {
    findings->push_back({Grade::kOk, "library", Cat("programs get C4's: ", loader->path), ""});
  } else if (loader.has_value()) {
    const bool python_is_ours = python.has_value() && python->ours;
    findings->push_back({python_is_ours ? Grade::kNote : Grade::kProblem, "library",
                         Cat("programs", python_is_ours ? " other than Python's" : "",
                             " get NVIDIA's, unseen: ", loader->path),
                         Cat(CommandFor("install"), " ", FolderOf(loader->path))});
  }
  if (!python.has_value()) return;
  if (python->ours || facts.preloaded) {
    findings->push_back({Grade::kOk, "python",
                         python->ours ? Cat("Python's packages have C4's: ", python->path)
                                      : "LD_PRELOAD puts C4's in front of that of Python's packages",
                         ""});
  } else {
    findings->push_back({Grade::kProblem, "python",
                         Cat("Python's packages have NVIDIA's, unseen: ", python->path),
                         Cat(CommandFor("install"), " ", FolderOf(python->path))});
  }
}

// The sentence says first what is wrong, then what to do.
void AddInstallFaults(const LibraryFacts& facts, Findings* findings) {
  for (const std::string& fault : facts.install_faults) {
    const size_t end = fault.find(". ");
    const bool whole = end == std::string::npos;
    findings->push_back({Grade::kProblem, "install", fault.substr(0, end),
                         whole ? "docs/install.md, \"When it refuses\"" : fault.substr(end + 2)});
  }
}

// What the library says of itself, without what the other findings say.
std::string EngineLine(const LibraryProbe& probe) {
  const std::string mark = "C4, engine vendor: ";
  for (const std::string& line : probe.log) {
    const size_t at = line.find(mark);
    if (at == std::string::npos) continue;
    return line.substr(at + mark.size(), line.find("; net plugin") - at - mark.size());
  }
  return Cat("NCCL ", VersionText(probe.version), ", ", probe.vendor_path);
}

std::string PassedOver(const LibraryProbe& probe) {
  std::string text;
  for (const std::string& line : probe.log) {
    if (Contains(line, "passed over: ")) CatTo(&text, "; ", line);
  }
  return text;
}

Finding Engine(const LibraryFacts& facts) {
  const char* const subject = "engine";
  if (facts.own_path.empty()) {
    return {Grade::kProblem, subject, "no C4 library is here to be looked at",
            "name it with --library PATH, or run the c4 that lies beside it"};
  }
  if (!facts.probe.has_value()) {
    return {Grade::kProblem, subject, facts.probe_fault,
            "reinstall C4; a newer glibc than the image's may be what it lacks (docs/install.md)"};
  }
  const LibraryProbe& probe = *facts.probe;
  if (!probe.vendor_path.empty()) return {Grade::kOk, subject, "vendor: " + EngineLine(probe), ""};
  if (facts.engine == "host") {
    return {Grade::kNote, subject, "C4_ENGINE=host: collectives on host memory, none on GPUs", ""};
  }
  if (!facts.wanted.empty()) {
    return {Grade::kProblem, subject,
            Cat("C4_VENDOR_LIBRARY=", facts.wanted, " will not do: ", facts.wanted_fault),
            Cat("name NVIDIA's NCCL, ", VersionText(kOldestVendorVersion), " or later, or unset it")};
  }
  const std::string text =
      Cat("host: no NCCL of NVIDIA's is found, so no GPU can be used", PassedOver(probe));
  if (facts.has_gpu || facts.engine == "vendor") {
    return {Grade::kProblem, subject, text,
            CommandFor("install") + " DIR with the folder of the job's NCCL, or C4_VENDOR_LIBRARY=PATH"};
  }
  return {Grade::kNote, subject, text, ""};
}

Finding Names(const LibraryFacts& facts) {
  const std::string version = VersionText(facts.probe->version);
  if (facts.missing_names.empty()) {
    return {Grade::kOk, "names", Cat("all ", facts.vendor_names, " of NCCL ", version, " are in C4's"), ""};
  }
  const size_t shown = std::min(kMostNamesShown, facts.missing_names.size());
  const std::vector<std::string> names(facts.missing_names.begin(),
                                       facts.missing_names.begin() + static_cast<ptrdiff_t>(shown));
  return {Grade::kNote, "names",
          Cat(facts.missing_names.size(), " of NCCL ", version, " are not in C4's: ", Join(names, ", "),
              shown < facts.missing_names.size() ? ", …" : "", "; programs that need them do not load"),
          "update C4"};
}

std::string RangeText(const std::vector<int>& versions) {
  if (versions.empty()) return "none";
  return Cat("v", versions.front(), versions.size() == 1 ? "" : Cat(" to v", versions.back()));
}

// One kind of plugin: which version serves, or why none does.
Finding Plugin(const std::string& subject, const std::string& without, const PluginVersions& versions) {
  std::vector<int> common;
  std::ranges::set_intersection(versions.ours, versions.theirs, std::back_inserter(common));
  if (!common.empty()) {
    return {Grade::kOk, subject,
            Cat("v", common.back(), " (NCCL knows ", RangeText(versions.theirs), ", C4 ",
                RangeText(versions.ours), ")"),
            ""};
  }
  if (versions.ours.empty()) {
    return {Grade::kNote, subject, Cat("this C4 has no such plugin: ", without), ""};
  }
  if (versions.theirs.empty()) {
    return {Grade::kNote, subject, Cat("this NCCL takes no such plugin: ", without), ""};
  }
  return {Grade::kProblem, subject,
          Cat("NCCL knows ", RangeText(versions.theirs), ", C4 ", RangeText(versions.ours),
              ", and none in common: ", without),
          "update C4"};
}

// A setting of the user's that NCCL reads in the place of ours, if there is one.
bool Displaces(const NcclSetting& users, const std::string& after_load, const LibraryFacts& facts) {
  return !users.value.empty() && after_load != facts.own_path;
}

void AddSettings(const LibraryFacts& facts, Findings* findings) {
  const size_t before = findings->size();
  if (facts.plugins_off) {
    findings->push_back(
        {Grade::kNote, "settings",
         "C4_PLUGINS=0: NCCL is not told of C4's plugins; calls are seen, not what becomes of them",
         "unset C4_PLUGINS"});
  }
  const LibraryProbe& probe = *facts.probe;
  if (Displaces(facts.profiler_setting, probe.profiler_plugin, facts)) {
    findings->push_back(
        {Grade::kProblem, "settings",
         Cat("NCCL_PROFILER_PLUGIN=", facts.profiler_setting.value, " (", facts.profiler_setting.from,
             ") displaces C4's: calls are seen, not their kernels and network steps"),
         "unset it while C4 is to watch"});
  }
  if (Displaces(facts.net_setting, probe.net_plugin, facts)) {
    findings->push_back({Grade::kNote, "settings",
                         Cat("NCCL_NET_PLUGIN=", facts.net_setting.value, " (", facts.net_setting.from,
                             ") displaces C4's: its traffic takes no path that C4 chose"),
                         "unset it if that plugin is not needed"});
  }
  if (!probe.default_net.empty() && facts.net_setting.value.empty()) {
    findings->push_back({Grade::kNote, "settings",
                         Cat(probe.default_net,
                             " carries the traffic, because NCCL looks for that "
                             "name: C4 watches it and chooses no paths"),
                         "take it out of the loader's path where C4 is to carry the traffic"});
  }
  if (!facts.net_wanted.empty() && !EqualsIgnoringCase(facts.net_wanted, "C4")) {
    findings->push_back({Grade::kNote, "settings",
                         Cat("NCCL_NET=", facts.net_wanted, " asks for another transport than C4's"),
                         "unset it, or set NCCL_NET=C4"});
  }
  if (findings->size() == before) {
    findings->push_back({Grade::kOk, "settings", "none of NCCL's keeps C4's plugins out", ""});
  }
}

}  // namespace

Findings JudgeLibraries(const LibraryFacts& facts) {
  Findings findings;
  AddPlaces(facts, &findings);
  AddInstallFaults(facts, &findings);
  findings.push_back(Engine(facts));
  if (!facts.probe.has_value() || facts.probe->vendor_path.empty()) return findings;
  findings.push_back(Names(facts));
  findings.push_back(
      Plugin("net", "NCCL's own transport carries the traffic, on paths that C4 does not choose", facts.net));
  findings.push_back(
      Plugin("profiler", "calls are seen, not their kernels and network steps", facts.profiler));
  AddSettings(facts, &findings);
  return findings;
}

}  // namespace c4::cli
