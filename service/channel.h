// A client's channel to a master. It is plain or uses mutual TLS, as `credentials` say; with TLS the server
// has to be a `role`, and of `job` where that is not empty. It compresses by gzip, pings after 5 s, counts
// as dead 3 s later, reconnects after 0.1 s to 2 s, and uses no HTTP proxy, since masters are inside the
// cluster. A channel shares no connection with another channel to the same address. It is lazy: it connects
// on the first call. Every call's context needs credentials.AddToken(&context, master). Any thread.
#pragma once

#include <memory>
#include <string>

#include "service/credentials.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace c4::service {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const Credentials& credentials,
                                           Role role = Role::kJobMaster, const std::string& job = {});

}  // namespace c4::service
