// Keeps a master's entry in the masters' directory while it serves. The main thread's.
#pragma once

#include "service/directory.h"

namespace c4::service {

// Returns when a signal asks for the end. Until then puts a lost entry back (somebody cleaned up) and leaves
// that of a later master of the same name alone, with one warning.
void ServePublished(const MasterDirectory& directory, const MasterEntry& entry);

}  // namespace c4::service
