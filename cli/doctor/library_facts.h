// Which libnccl.so.2 the programs of this environment get, whether that is C4's, and what it works with: the
// vendor's library behind it, the plugin versions that both know, the settings that NCCL reads. ReadLibraries
// starts child processes: call it while this process has one thread. JudgeLibraries is pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "cli/install/library_probe.h"

namespace c4::cli {

struct LibraryPlace {
  std::string path;
  bool ours = false;
};

// Versions of one kind of plugin, ascending.
struct PluginVersions {
  std::vector<int> ours;
  std::vector<int> theirs;  // that the vendor's library looks for
};

// A variable as NCCL would read it.
struct NcclSetting {
  std::string value;
  std::string from;  // "the environment", or a file
};

struct LibraryFacts {
  std::optional<LibraryPlace> asked;   // --library
  std::optional<LibraryPlace> loader;  // what the loader finds by name
  std::string loader_fault;            // it finds one that cannot be loaded
  std::optional<LibraryPlace> python;  // nvidia/nccl/lib of Python's packages
  bool preloaded = false;              // LD_PRELOAD names ours: that goes before everything
  bool has_gpu = false;
  // Of the folders of these where `c4 install` has been: what somebody has changed since
  // (cli/install/installation.h).
  std::vector<std::string> install_faults;

  // Of ours: the one that programs get, else the one of this c4.
  std::string own_path;               // empty: none
  std::optional<LibraryProbe> probe;  // in this environment
  std::string probe_fault;
  std::string engine;                      // C4_ENGINE
  std::string wanted;                      // C4_VENDOR_LIBRARY
  std::string wanted_fault;                // why that will not do
  int vendor_names = 0;                    // names beginning with nccl of the vendor's
  std::vector<std::string> missing_names;  // of those, that ours lacks
  PluginVersions net, profiler;
  bool plugins_off = false;  // C4_PLUGINS=0
  NcclSetting net_setting, profiler_setting;
  std::string net_wanted;  // NCCL_NET
};

struct LibraryQuestion {
  std::string library;  // --library; empty: what programs get
  std::string python;   // --python; empty: of PATH
  bool has_gpu = false;
};
LibraryFacts ReadLibraries(const LibraryQuestion& question);

Findings JudgeLibraries(const LibraryFacts& facts);

// The user's own setting of `name`, in the order in which NCCL reads; ours is none. `variable` gives a
// variable or
// "", `file` the text of a file or "". Pure.
NcclSetting UsersSetting(const std::string& name, const std::string& own_path,
                         const std::function<std::string(const std::string&)>& variable,
                         const std::function<std::string(const std::string&)>& file);

}  // namespace c4::cli
