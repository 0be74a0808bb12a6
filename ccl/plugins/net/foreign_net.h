// A network plugin that is not ours, of any version from 6 to 12, behind the calls of net_plugin.h. What an
// old version cannot say is left out as NCCL's own adapters leave it out.
//
// Threads and errors are the plugin's. The library stays loaded: nobody knows who else uses it.
#pragma once

#include <memory>
#include <string>

#include "ccl/plugins/net/net_plugin.h"

namespace c4::net {

// Opens `library` as NCCL would. nullptr: there is none, it has no version that we know, or it is this very
// library; *what says what was found, or why not.
std::unique_ptr<Provider> OpenForeign(const char* library, std::string* what);

}  // namespace c4::net
