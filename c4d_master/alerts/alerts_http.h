// The HTTP skin of alerts (docs/alerts.md): lists them, acknowledges, silences, tests. Threads of the server
// run it and wait for the state thread; the center and the state thread belong to the caller and outlive the
// server.
#pragma once

#include "c4d_master/alerts/alert_center.h"
#include "service/clock.h"
#include "service/http_server.h"
#include "service/state_thread.h"

namespace c4::c4d {

void AddAlertRoutes(service::HttpServer* server, AlertCenter* center, service::StateThread* state_thread,
                    const service::Clock& clock);

}  // namespace c4::c4d
