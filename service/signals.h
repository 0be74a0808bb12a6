// Signals of a daemon: SIGINT and SIGTERM end it in order, SIGPIPE is ignored, SIGHUP may ask for its files
// to be read again. BlockSignals comes first in main, before any thread starts, so that all threads inherit
// the mask and only the waiter sees a signal.
#pragma once

#include <optional>

#include "absl/time/time.h"

namespace c4::service {

void BlockSignals();

// Waits for SIGINT or SIGTERM and gives its number; nothing when the time is up first.
int WaitForSignal();
std::optional<int> WaitForSignal(absl::Duration timeout);

// From now on SIGHUP ends nobody, but is kept until TookReloadSignal. Before any thread starts.
void BlockReloadSignal();
// Whether one has come since the last time. Any thread; does not wait.
bool TookReloadSignal();

// Makes WaitForSignal return SIGTERM: for an end that comes from within. Any thread.
void RequestEnd();

}  // namespace c4::service
