// The one table of calls and the roles that may make them: every method of every gRPC service and every HTTP
// route of the daemons has a row; a call without one is refused. `c4 doctor --roles` prints it and
// SECURITY.md holds it; a test compares it with proto/ and with the routes. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "service/identity.h"

namespace c4::service {

// Roles as bits, so that a row is one line.
using Roles = uint8_t;
constexpr Roles Only(Role role) {
  return static_cast<Roles>(1U << static_cast<unsigned>(role));
}

struct CallRow {
  std::string_view call;  // "c4.v1.C4d/SetLevel", or "POST /v1/smon/sessions"
  Roles roles = 0;        // 0: open to everybody
  bool action = false;    // changes something: written to the audit, whether allowed or not
  std::string_view what;  // for people
};

std::span<const CallRow> CallTable();
const CallRow* FindCall(std::string_view call);  // nullptr: there is no such row

// OK, or PermissionDenied with a sentence that names the call, who asked, and who may.
absl::Status Authorize(const CallRow& row, const Identity& identity);

// "agent, operator"; "everybody" for 0.
std::string RolesText(Roles roles);
// The table as Markdown, as SECURITY.md holds it, or aligned for a terminal.
std::string CallTableMarkdown();
std::string CallTableText();

}  // namespace c4::service
