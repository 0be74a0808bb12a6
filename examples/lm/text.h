// What the model learns: a built-in text, or a file; and which pieces of it make up a micro-batch. A sample
// depends on the iteration and on the number of its micro-batch in the whole batch, never on who computes it.
//
// Pure but for ReadText; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace c4::examples::lm {

std::string_view BuiltInText();

// False with a sentence on standard error where it cannot be read, or is shorter than `least` bytes.
bool ReadText(const std::string& path, size_t least, std::string* text);

struct Samples {
  std::vector<uint8_t> bytes;  // [samples][sequence]
  std::vector<uint8_t> next;   // of each, the one that follows
};

// REQUIRES: text.size() > sequence.
Samples SamplesOf(std::string_view text, size_t sequence, size_t samples, uint64_t iteration,
                  uint64_t micro_batch);

}  // namespace c4::examples::lm
