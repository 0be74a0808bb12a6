#include "service/server_verifier.h"

#include <grpcpp/security/tls_certificate_verifier.h>
#include <utility>

#include "service/text.h"

namespace c4::service {
namespace {

using grpc::experimental::ExternalCertificateVerifier;
using grpc::experimental::HostNameCertificateVerifier;
using grpc::experimental::TlsCustomVerificationCheckRequest;

grpc::Status Refuse(const std::string& why) {
  return {grpc::StatusCode::UNAUTHENTICATED, Concat("the server's certificate is refused: ", why)};
}

class ServerVerifier final : public ExternalCertificateVerifier {
 public:
  ServerVerifier(Role role, std::string job) : role_(role), job_(std::move(job)) {}

  bool Verify(TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)> callback,
              grpc::Status* sync_status) override {
    bool named = false;
    for (const grpc::string_ref& uri : request->uri_names()) {
      const auto identity = IdentityFromUri(std::string_view(uri.data(), uri.size()));
      if (identity.ok() && !identity->has_value()) continue;  // somebody else's
      named = true;
      if (!identity.ok()) {
        *sync_status = Refuse(std::string(identity.status().message()));
        return true;
      }
      const Identity& server = **identity;
      if (server.role != role_ || (!job_.empty() && server.job != job_)) {
        *sync_status = Refuse(Concat("it is that of a ", Describe(server), ", and a ", RoleWord(role_),
                                     job_.empty() ? "" : " of job ", job_, " was asked for"));
        return true;
      }
    }
    if (!named) return host_name_.Verify(request, std::move(callback), sync_status);
    *sync_status = grpc::Status::OK;
    return true;
  }

  void Cancel(TlsCustomVerificationCheckRequest*) override {}

 private:
  const Role role_;
  const std::string job_;
  HostNameCertificateVerifier host_name_;
};

}  // namespace

std::shared_ptr<grpc::experimental::CertificateVerifier> MakeServerVerifier(Role role,
                                                                            const std::string& job) {
  // gRPC owns what Create makes, which the analyzer does not see.
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks)
  return ExternalCertificateVerifier::Create<ServerVerifier>(role, job);
}

}  // namespace c4::service
