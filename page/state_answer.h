// How a page within a master asks that master: by its state thread, as gRPC's calls do, with names from
// elsewhere made fit to be shown. Any thread but the state thread.
#pragma once

#include <type_traits>

#include "absl/time/time.h"
#include "service/printable.h"
#include "service/state_thread.h"
#include "service/status.h"

namespace c4::page {

inline constexpr absl::Duration kStateWait = absl::Seconds(2);

// What `make` gives on the state thread: a message, or a StatusOr of one. DeadlineExceeded where the thread
// has been busy for kStateWait, Unavailable where the master ends.
template <typename Make>
auto AskState(service::StateThread* state_thread, const Make& make) {
  using Made = std::invoke_result_t<Make>;
  if constexpr (std::is_constructible_v<Made, absl::Status>) {
    Made reply = absl::UnknownError("not asked");
    const absl::Status called = state_thread->Call([&] { reply = make(); }, kStateWait);
    if (!called.ok()) return Made(called);
    if (reply.ok()) service::MakePrintable(&*reply);
    return reply;
  } else {
    return AskState(state_thread, [&] { return absl::StatusOr<Made>(make()); });
  }
}

}  // namespace c4::page
