// An archive of dumps, packed or not: its files one after the other, or a sentence; never more bytes than an
// archive of that size can hold.
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "traces/byte_source.h"
#include "traces/tar_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto source = c4::traces::Unpacked(c4::traces::MemoryBytes(text));
  if (!source.ok()) return 0;
  c4::traces::TarReader tar(source->get());
  for (int files = 0; files < 1000; ++files) {
    const auto name = tar.Next();
    if (!name.ok()) {
      C4_FUZZ_CHECK(!name.status().message().empty());
      return 0;
    }
    if (!name->has_value()) return 0;
    if (files % 3 == 2) continue;  // left unread
    const auto contents = tar.Contents();
    (void)c4::traces::ReadAll(contents.get(), size_t{1} << 20);
  }
  return 0;
}
