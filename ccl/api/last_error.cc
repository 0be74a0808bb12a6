#include "ccl/api/last_error.h"

#include <cstdio>
#include <mutex>
#include <string>

#include "ccl/api/handles.h"
#include "ccl/base/log.h"

namespace c4::api {
namespace {

constexpr size_t kSentenceBytes = 1024;
thread_local char thread_sentence[kSentenceBytes];
thread_local char communicator_sentence[kSentenceBytes];  // what LastError handed out

}  // namespace

void KeepSentence(const char* call, ncclComm_t comm, const Result& result) {
  snprintf(thread_sentence, sizeof thread_sentence, "%s: %s", call, result.message().c_str());
  // Without memory the thread's sentence is all that is kept.
  (void)Caught([comm] {
    const Pin pin(comm);
    if (!pin) return Ok();
    const std::lock_guard<std::mutex> lock(pin->error_mutex);
    pin->last_error = thread_sentence;
    return Ok();
  });
}

void KeepFailure(const char* call, ncclComm_t comm, const Result& result) {
  KeepSentence(call, comm, result);
  (void)Caught([&result] {
    const LogLevel level = IsEcho(result) ? LevelOfFailure() : LogLevel::kWarn;
    C4_LOG_AT(level, "%s", thread_sentence);
    return Ok();
  });
}

const char* LastError(ncclComm_t comm) {
  const Pin pin(comm);
  if (!pin) return thread_sentence;
  const std::lock_guard<std::mutex> lock(pin->error_mutex);
  if (pin->last_error.empty()) return thread_sentence;
  snprintf(communicator_sentence, sizeof communicator_sentence, "%s", pin->last_error.c_str());
  return communicator_sentence;
}

}  // namespace c4::api
