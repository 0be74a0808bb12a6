// Kubernetes as a driver: nodes are cordoned, tainted and told of by a condition and an event; the job's pods
// are evicted, and their controllers make them again elsewhere (docs/recovery.md). It talks to the API server
// itself, as the service account whose token it is given; deploy/kubernetes has the roles for it.
//
// What was asked for before is found in the cluster: the taint and the annotations of a node, and the
// annotations of the job's Lease. Of several masters only the one that holds that Lease acts. A node that
// somebody else cordoned is never touched.
#pragma once

#include <memory>
#include <string>

#include "c4d_master/recovery/driver.h"

namespace c4::c4d::recovery {

// `config`: completed (kube_config.h). `holder`: this master, as the Lease has it; empty: this process.
std::unique_ptr<Driver> MakeKubeDriver(const KubernetesConfig& config, const std::string& job,
                                       const std::string& holder = "");

}  // namespace c4::c4d::recovery
