// The HTTP skin of the master: GET /v1/verdicts (what is open; ?cleared=true: all) and GET /v1/status, as
// JSON (docs/verdicts.md). Health and metrics are the HTTP server's own. Handlers run on the server's
// threads and wait for the state thread for at most kHttpWait.
#pragma once

#include "absl/time/time.h"
#include "c4d_master/c4d_handler.h"
#include "service/clock.h"
#include "service/http_server.h"
#include "service/state_thread.h"

namespace c4::c4d {

inline constexpr absl::Duration kHttpWait = absl::Seconds(3);

// REQUIRES: before server->Start. All arguments outlive the server.
void AddHttpRoutes(service::HttpServer* server, C4dHandler* handler, service::StateThread* state_thread,
                   const service::Clock& clock);

}  // namespace c4::c4d
