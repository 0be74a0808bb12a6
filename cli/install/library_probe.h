// What a process gets that loads a libnccl.so.2: found out in a child, so that a library that crashes, hangs
// or leaves settings behind does no harm here. Forks: call it while this process has one thread.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "cli/base/status.h"

namespace c4::cli {

struct ProbeRequest {
  std::string library;  // a path, or a name that the loader looks up
  // As the job's environment is; otherwise without settings of C4's and NCCL's.
  bool with_settings = false;
  std::chrono::milliseconds limit =
      std::chrono::seconds(60);  // a wheel has some 400 MB, and may lie on a slow disk
};

struct LibraryProbe {
  std::string path;         // of what was loaded, resolved
  bool ours = false;        // C4's
  int version = 0;          // as it says: 22809
  std::string vendor_path;  // ours only: the vendor's library behind it, resolved; empty: none
  // Ours only: what it left in NCCL_NET_PLUGIN and NCCL_PROFILER_PLUGIN.
  std::string net_plugin;
  std::string profiler_plugin;
  std::string default_net;       // ours only: a network plugin that NCCL finds by its default name, resolved
  std::vector<std::string> log;  // what it said of its choice, and why of each library that it passed over
};

// NotFound: the loader has no such library. FailedPrecondition: it cannot be loaded, is no NCCL, or crashes;
// the sentence says which.
StatusOr<LibraryProbe> ProbeLibrary(const ProbeRequest& request);

std::string VersionText(int version);  // "2.28.9"

}  // namespace c4::cli
