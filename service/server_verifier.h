// What a client asks of a server's certificate beyond its authority's signature. Any thread.
#pragma once

#include <memory>
#include <string>

#include "service/identity.h"

namespace grpc::experimental {
class CertificateVerifier;
}  // namespace grpc::experimental

namespace c4::service {

// A certificate with a URI of C4's has to name `role`, and `job` where that is not empty; one without has to
// carry the name or address that was dialled.
std::shared_ptr<grpc::experimental::CertificateVerifier> MakeServerVerifier(Role role,
                                                                            const std::string& job);

}  // namespace c4::service
