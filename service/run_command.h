// Runs one short command to its end, for hooks. There is no shell: `words` are the program, by its whole
// path, and its arguments. The program leads a process group of its own, reads the text from its standard
// input, and inherits nothing of our signal mask. Blocks; any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "service/status.h"

namespace c4::service {

// OK: it ended with 0. DeadlineExceeded: it ran past `timeout` and was killed with its process group;
// Cancelled: so because `stop`, which is asked ten times a second, said true. Otherwise why it could not be
// started or how it ended, with the end of what it wrote to standard error.
// `output`: takes what it writes to standard output, for which there is no place otherwise; one that writes
// more than kMaxCommandOutput is killed (ResourceExhausted).
absl::Status RunCommand(const std::vector<std::string>& words, const std::string& input,
                        absl::Duration timeout, const std::function<bool()>& stop,
                        std::string* output = nullptr);
inline constexpr size_t kMaxCommandOutput = size_t{1} << 20;

}  // namespace c4::service
