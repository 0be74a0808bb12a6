// Asks the members of an etcd over its JSON gateway: the one that answered last first, then the others. It
// logs in where it is given a user, and again when its token has run out. What an etcd refuses becomes a
// sentence that says what to do (ExplainEtcdError).
//
// Blocks for as long as the caller allows. Any threads.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "absl/time/time.h"
#include "c4p_master/state/etcd_words.h"

namespace c4::c4p {

class EtcdClient {
 public:
  // `stop` is asked ten times a second while a call waits.
  EtcdClient(EtcdPlace place, std::function<bool()> stop);

  // The body of an answer. Unavailable: no member answers, or etcd cannot at present. ResourceExhausted: etcd
  // is full. PermissionDenied: it refuses the user, or asks for one. OutOfRange: the revision has been
  // compacted. FailedPrecondition: no member is an etcd that we can speak to. Cancelled: `stop` said true.
  absl::StatusOr<std::string> Ask(const std::string& path, const std::string& body, absl::Duration timeout);

 private:
  // One member, one request, with the token that is at hand.
  absl::StatusOr<std::string> AskMember(const std::string& endpoint, const std::string& path,
                                        const std::string& body, absl::Duration timeout);
  absl::StatusOr<std::string> AskLoggedIn(const std::string& endpoint, const std::string& path,
                                          const std::string& body, absl::Duration timeout);
  absl::Status LogIn(const std::string& endpoint, absl::Duration timeout);

  const EtcdPlace place_;
  const std::function<bool()> stop_;
  std::mutex mutex_;
  size_t endpoint_ = 0;
  std::string token_;
  bool without_users_ = false;  // etcd knows none, though we have one
};

}  // namespace c4::c4p
