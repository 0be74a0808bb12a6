// Reads the dynamic side of a 64-bit ELF file without running any of it: what a library exports and needs,
// and the names in its read-only text. Checks every offset against the file's size. An error is an empty
// image and a sentence in `error`, with the path. Pure but for the reading; standard library only, so that
// tests of the library in the process can use it as well. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace c4 {

struct ElfSymbol {
  std::string name;
  bool weak = false;
  uint64_t address = 0;
};

struct ElfImage {
  std::vector<ElfSymbol> exported;    // defined, dynamic, visible
  std::vector<std::string> needed;    // DT_NEEDED
  std::vector<std::string> versions;  // symbol versions needed of them, such as GLIBC_2.34
  std::string soname;
  std::string error;  // "PATH: is a 32-bit library", …

  static ElfImage Read(const std::string& path);
  // As Read, and with the numbers N of every string "PREFIXN" in the file, in `numbers`, ascending.
  static ElfImage ReadWithNumbers(const std::string& path, const std::vector<std::string>& prefixes,
                                  std::vector<std::vector<int>>* numbers);

  bool Exports(std::string_view name) const;
  bool IsForThisMachine() const;  // same processor
  std::string Machine() const;    // "x86-64", "aarch64", "machine 21"

 private:
  uint16_t machine_ = 0;
  friend class ElfParser;
};

}  // namespace c4
