#include "cli/clients/job_certificates.h"

#include <cerrno>
#include <filesystem>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "service/certificate.h"
#include "service/credentials.h"
#include "service/identity.h"
#include "service/pki.h"
#include "service/token.h"

namespace c4::cli {
namespace {

using service::Identity;
using service::Role;
using service::TlsOptions;

constexpr char kFolder[] = "tls";
constexpr char kOperator[] = "operator";
// Longer than any job; nothing renews these, as nothing outlives the job that could use them.
constexpr int64_t kDays = 3650;
constexpr size_t kMaxPemBytes = size_t{64} << 10;

std::string FolderBeside(const std::string& key_file) {
  return (std::filesystem::path(key_file).parent_path() / kFolder).string();
}

}  // namespace

absl::StatusOr<JobCertificates> MakeJobCertificates(const std::string& key_file, const std::string& job,
                                                    const std::vector<std::string>& hosts) {
  const std::string folder = FolderBeside(key_file);
  if (mkdir(folder.c_str(), 0700) != 0) return service::ErrnoStatus(errno, "cannot make " + folder);
  C4_RETURN_IF_NOT_OK(service::InitAuthority(folder, absl::StrCat("C4 job ", job), kDays));
  const auto issue = [&](const std::string& file, const Identity& identity) -> absl::StatusOr<TlsOptions> {
    const absl::StatusOr<service::IssuedFiles> files =
        service::IssueCertificate(folder, identity, {}, kDays, absl::StrCat(folder, "/", file));
    if (!files.ok()) return files.status();
    return TlsOptions{.ca = files->ca, .cert = files->certificate, .key = files->key};
  };
  JobCertificates made;
  const absl::StatusOr<TlsOptions> owner = issue(kOperator, service::OwnOperator());
  if (!owner.ok()) return owner.status();
  absl::StatusOr<TlsOptions> master = issue("c4d_master", {.role = Role::kJobMaster, .job = job});
  if (!master.ok()) return master.status();
  made.master = *std::move(master);
  absl::StatusOr<TlsOptions> path_master = issue("c4p_master", {.role = Role::kPathMaster});
  if (!path_master.ok()) return path_master.status();
  made.path_master = *std::move(path_master);
  for (size_t i = 0; i < hosts.size(); ++i) {
    absl::StatusOr<TlsOptions> agent =
        issue(absl::StrCat("c4a-", i), {.role = Role::kAgent, .host = hosts[i]});
    if (!agent.ok()) return agent.status();
    made.agents.push_back(*std::move(agent));
  }
  return made;
}

service::TlsOptions OwnersCertificates(const service::MasterAddress& master) {
  if (master.key_file.empty() || !master.published_by.has_value()) return {};
  const std::string folder = FolderBeside(master.key_file);
  TlsOptions tls = {.ca = folder + "/ca.pem",
                    .cert = absl::StrCat(folder, "/", kOperator, ".pem"),
                    .key = absl::StrCat(folder, "/", kOperator, ".key")};
  // As with the key: only what belongs to him who published the master.
  if (!service::ReadSecretFileOf(tls.key, kMaxPemBytes, *master.published_by).ok()) return {};
  if (!service::CheckCertificateFiles(tls).ok()) return {};
  return tls;
}

void AppendTlsArguments(const service::TlsOptions& tls, std::vector<std::string>* arguments) {
  if (tls.cert.empty()) return;
  arguments->insert(arguments->end(), {"--tls-ca", tls.ca, "--tls-cert", tls.cert, "--tls-key", tls.key});
}

}  // namespace c4::cli
