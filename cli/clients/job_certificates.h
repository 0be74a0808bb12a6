// The certificates of a job that `c4 run --tls` starts: an authority of its own in the folder `tls` beside
// the job's key, and one certificate for each program. It is gone with the job's run directory.
//
// Who may read the key's folder, the job's owner and root, finds the operator's certificate there by the
// entry of the master (OwnersCertificates): commands need no option. Files are 0600. Errors are sentences.
// Any thread; one maker a folder.
#pragma once

#include <string>
#include <vector>

#include "service/config.h"
#include "service/master_address.h"
#include "service/status.h"

namespace c4::cli {

struct JobCertificates {
  service::TlsOptions master;
  service::TlsOptions path_master;
  std::vector<service::TlsOptions> agents;  // as `hosts`
};

// `key_file`: the job's key, in whose folder the authority is made. `hosts`: one agent each.
absl::StatusOr<JobCertificates> MakeJobCertificates(const std::string& key_file, const std::string& job,
                                                    const std::vector<std::string>& hosts);

// What the owner of that master's job shows to it and expects of it; all empty where his job has no
// certificates, or they are not for this user to read.
service::TlsOptions OwnersCertificates(const service::MasterAddress& master);

// "--tls-ca FILE --tls-cert FILE --tls-key FILE" at the end of a daemon's arguments; nothing for empty ones.
void AppendTlsArguments(const service::TlsOptions& tls, std::vector<std::string>* arguments);

}  // namespace c4::cli
