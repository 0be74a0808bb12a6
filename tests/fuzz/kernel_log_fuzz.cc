// Lines of the kernel's log, in any of its forms: names of processes and of devices stand in them as whoever
// made them likes. An event, or nothing; what becomes of it is short, printable, and has a device.
#include <cstdint>
#include <string>
#include <string_view>

#include "c4a/health/kernel_log.h"
#include "service/printable.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (!rest.empty()) {
    const std::string_view text = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(text.size() == rest.size() ? text.size() : text.size() + 1);
    const auto line = c4::agent::SplitKernelLine(text);
    if (!line.has_value()) continue;
    C4_FUZZ_CHECK(line->stamp_us >= -1);
    C4_FUZZ_CHECK(line->message.size() <= text.size());
    const auto event = c4::agent::ParseKernelMessage(line->message);
    if (!event.has_value()) continue;
    C4_FUZZ_CHECK(!event->kind.empty() && !event->device.empty() && !event->text.empty());
    C4_FUZZ_CHECK(event->device.size() < 512 && event->text.size() < 1024);
    C4_FUZZ_CHECK(c4::service::Printable(event->device) == event->device);
    C4_FUZZ_CHECK(c4::service::Printable(event->text) == event->text);
  }
  return 0;
}
