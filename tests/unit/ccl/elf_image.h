// Reads the dynamic side of a 64-bit ELF file, for tests of what a library exports and needs. Checks every
// offset against the file's size. Not for threads; errors are an empty result and a sentence in `error`.
#pragma once

#include <cstring>
#include <elf.h>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
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
  std::string error;

  static ElfImage Read(const std::string& path) {
    ElfImage image;
    std::ostringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    image.bytes_ = bytes.str();
    image.Parse();
    if (!image.error.empty()) image.error = path + ": " + image.error;
    return image;
  }

 private:
  template <typename T>
  std::optional<T> At(uint64_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }

  std::string Text(const Elf64_Shdr& strings, uint64_t offset) const {
    const uint64_t at = strings.sh_offset + offset;
    if (offset >= strings.sh_size || at >= bytes_.size()) return {};
    return {bytes_.data() + at, strnlen(bytes_.data() + at, bytes_.size() - at)};
  }

  void Parse() {
    const auto header = At<Elf64_Ehdr>(0);
    if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64) {
      error = "no 64-bit ELF file";
      return;
    }
    std::vector<Elf64_Shdr> sections;
    for (int i = 0; i < header->e_shnum; ++i) {
      const auto section = At<Elf64_Shdr>(header->e_shoff + static_cast<uint64_t>(i) * sizeof(Elf64_Shdr));
      if (!section) {
        error = "its section table lies outside of it";
        return;
      }
      sections.push_back(*section);
    }
    for (const Elf64_Shdr& section : sections) {
      if (section.sh_link >= sections.size()) continue;
      const Elf64_Shdr& strings = sections[section.sh_link];
      if (section.sh_type == SHT_DYNSYM) ReadSymbols(section, strings);
      if (section.sh_type == SHT_DYNAMIC) ReadDynamic(section, strings);
      if (section.sh_type == SHT_GNU_verneed) ReadVersions(section, strings);
    }
  }

  void ReadSymbols(const Elf64_Shdr& section, const Elf64_Shdr& strings) {
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = At<Elf64_Sym>(section.sh_offset + at);
      if (!symbol || symbol->st_shndx == SHN_UNDEF) continue;
      const int binding = ELF64_ST_BIND(symbol->st_info);
      const int visibility = ELF64_ST_VISIBILITY(symbol->st_other);
      if (binding == STB_LOCAL || visibility == STV_HIDDEN || visibility == STV_INTERNAL) continue;
      exported.push_back({Text(strings, symbol->st_name), binding == STB_WEAK, symbol->st_value});
    }
  }

  void ReadDynamic(const Elf64_Shdr& section, const Elf64_Shdr& strings) {
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= section.sh_size; at += sizeof(Elf64_Dyn)) {
      const auto entry = At<Elf64_Dyn>(section.sh_offset + at);
      if (!entry || entry->d_tag == DT_NULL) return;
      if (entry->d_tag == DT_NEEDED) needed.push_back(Text(strings, entry->d_un.d_val));
      if (entry->d_tag == DT_SONAME) soname = Text(strings, entry->d_un.d_val);
    }
  }

  void ReadVersions(const Elf64_Shdr& section, const Elf64_Shdr& strings) {
    uint64_t at = section.sh_offset;
    for (uint32_t i = 0; i < section.sh_info; ++i) {
      const auto need = At<Elf64_Verneed>(at);
      if (!need) return;
      uint64_t version_at = at + need->vn_aux;
      for (int j = 0; j < need->vn_cnt; ++j) {
        const auto version = At<Elf64_Vernaux>(version_at);
        if (!version) return;
        versions.push_back(Text(strings, version->vna_name));
        version_at += version->vna_next;
      }
      at += need->vn_next;
    }
  }

  std::string bytes_;
};

}  // namespace c4
