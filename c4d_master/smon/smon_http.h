// SMon's HTTP pages (docs/whatif.md#smon-over-http), under /v1/smon/ on the master's port: sessions, their
// drawings, the history, alerts. Handlers run on the server's threads, wait for the state thread for at most
// kHttpWait, and draw on their own.
#pragma once

#include "c4d_master/smon/smon.h"
#include "service/clock.h"
#include "service/http_server.h"
#include "service/state_thread.h"

namespace c4::c4d {

// REQUIRES: before server->Start. All arguments outlive the server.
void AddSmonRoutes(service::HttpServer* server, Smon* smon, service::StateThread* state_thread,
                   const service::Clock& clock);

}  // namespace c4::c4d
