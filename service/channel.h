// A client's channel: plain or mutual TLS as `credentials` say (then the server has to be a `role`, of `job`
// where that is not empty), gzip, keepalive (ping after 5 s, dead 3 s
// later), reconnects between 0.1 s and 2 s, no HTTP proxy (masters are inside the cluster). A channel
// shares no connection with another one to the same address. Lazy: it connects on the first call.
// Every call's context: credentials.AddToken(&context, master). Any thread.
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
