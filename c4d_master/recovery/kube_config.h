// What "kubernetes" of the recovery file says (docs/recovery.md), read and completed. One that is empty holds
// for a master that is a pod: the address is in its environment, and its service account's files lie where
// the cluster puts them.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "c4d_master/recovery/recovery_file.h"
#include "service/status.h"

namespace c4::c4d::recovery {

// Pure. InvalidArgument with what to give instead.
absl::Status ReadKubernetes(const nlohmann::json& json, KubernetesConfig* config);

// Fills in what is empty, and looks whether the files are there.
absl::Status PrepareKubernetes(KubernetesConfig* config);

}  // namespace c4::c4d::recovery
