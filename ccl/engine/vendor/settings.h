// What the vendor's library is told of our plugins: NCCL_NET_PLUGIN and NCCL_PROFILER_PLUGIN name this
// library, where the user, NCCL's configuration files and the user's plugins do not say otherwise. Set when
// we are loaded, before there are threads and before the vendor's library has read anything; a program that
// sets them itself later still wins.
//
// A profiler plugin of the user's runs beside ours: ours takes its place in NCCL_PROFILER_PLUGIN and finds
// its name in C4_USER_PROFILER (plugins/profiler/chain.h). "none" keeps ours out as well. A tuner of the
// user's is NCCL's own matter: we have none.
//
// A value of ours that a parent process left behind is ours, not the user's.
#pragma once

#include <functional>
#include <string>

#include "ccl/monitor/kernel_times.h"

namespace c4::vendor {

struct Setting {
  std::string value;   // what the vendor's library will read; empty: nothing is set
  bool ours = false;   // it names this library
  std::string from;    // who said so otherwise: "the environment", or a file
  std::string beside;  // the user's, which ours hands everything on to; `from` says who named it
};

struct PluginSettings {
  Setting net;
  Setting profiler;
  Setting tuner;
};

// Pure: `environment` gives a variable or nullptr, `file` the text of a file, empty where there is none.
PluginSettings ChoosePlugins(const std::string& own_path,
                             const std::function<const char*(const char*)>& environment,
                             const std::function<std::string(const std::string&)>& file);

// Once the release that will read them is known, and before it has: one that has no profiler of our versions
// gets the user's own back, and a tuner that lies in a network plugin of the default name, in whose place
// NCCL is told of ours, is named for it.
void SettlePlugins(int version);

// As they were chosen when we were loaded; what the program has changed since is in it.
PluginSettings CurrentPlugins();

// For the line that says what is seen, of release `version` (22809), where kernel times come from `times`.
std::string Describe(const PluginSettings& settings, int version, KernelTimes times);

}  // namespace c4::vendor
