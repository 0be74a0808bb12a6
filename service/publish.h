// Keeps a master's entry in the directory of masters while the master serves. Belongs to the main thread.
//
// Of two masters of one name the one with the later epoch serves, and the other steps down: agents go to
// either, and each would judge from a part of them. A supervisor that starts again what ended in order would
// make the two take turns.
#pragma once

#include "service/directory.h"

namespace c4::service {

enum class Standing {
  kServes,
  kReplaced,  // by a later master of the same name
};

// One look. Puts a lost entry back (somebody cleaned up), in the place of an earlier master's too, and of one
// on this host that has died since.
Standing KeepPublished(const MasterDirectory& directory, const MasterEntry& entry);

// Returns when a signal asks for the end, or a later master has taken the place; the log says which.
void ServePublished(const MasterDirectory& directory, const MasterEntry& entry);

}  // namespace c4::service
