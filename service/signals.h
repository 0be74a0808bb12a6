// Signals of a daemon: SIGINT and SIGTERM end it in order, SIGPIPE is ignored. BlockSignals comes first in
// main, before any thread starts, so that all threads inherit the mask and only the waiter sees a signal.
#pragma once

#include <optional>

#include "absl/time/time.h"

namespace c4::service {

void BlockSignals();

// Waits for SIGINT or SIGTERM and gives its number; nothing when the time is up first.
int WaitForSignal();
std::optional<int> WaitForSignal(absl::Duration timeout);

// Makes WaitForSignal return SIGTERM: for an end that comes from within. Any thread.
void RequestEnd();

}  // namespace c4::service
