// What was done to a server, and what was tried: one line of JSON for each action, appended to a file that
// belongs to the server's user alone (0600), flushed before the action is done:
//   {"n":7,"time":"2026-11-23T08:00:00.123Z","who":"operator ann by token","call":"c4.v1.C4d/SetLevel",
//    "detail":"level=FINE","from":"127.0.0.1:5000","allowed":true,"why":"","chain":"9f…"}
// `chain` is the SHA-256 of the line before it and of this one without it: a line that was taken out or
// changed afterwards breaks the chain, and VerifyAudit says where. Callers cannot reach the file; who may
// write as the server's user can replace the whole of it, so give the daemon a user of its own.
// Any thread. An action whose line cannot be written is refused: Append fails with the reason.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "service/status.h"

namespace c4::service {

struct AuditEntry {
  std::string who;
  std::string call;
  std::string detail;
  std::string from;
  bool allowed = false;
  std::string why;  // of a refusal
};

class AuditLog {
 public:
  // Goes on with the file where it is there. Fails when it cannot be written, is no regular file, belongs to
  // somebody else or may be written by others.
  static absl::StatusOr<std::shared_ptr<AuditLog>> Open(const std::string& path);
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  const std::string& path() const;
  absl::Status Append(const AuditEntry& entry, int64_t unix_ns);

 private:
  struct State;
  explicit AuditLog(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The number of lines; DataLoss with the first line that does not follow from the one before.
absl::StatusOr<uint64_t> VerifyAudit(const std::string& path);

}  // namespace c4::service
