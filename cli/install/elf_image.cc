#include "cli/install/elf_image.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <optional>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace c4 {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kThisMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kThisMachine = EM_AARCH64;
#else
constexpr uint16_t kThisMachine = EM_NONE;
#endif

// A whole file, mapped: the vendor's libraries are hundreds of megabytes.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    // Not blocking: a fifo in the place of the file would hold the open.
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status {};
    if (fd < 0 || fstat(fd, &status) != 0) {
      error_ = "cannot be opened: " + std::generic_category().message(errno);
    } else if (!S_ISREG(status.st_mode)) {
      error_ = S_ISDIR(status.st_mode) ? "is a directory" : "is no regular file";
    } else if (status.st_size > 0) {
      size_ = static_cast<size_t>(status.st_size);
      data_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
      if (data_ == MAP_FAILED) error_ = "cannot be mapped: " + std::generic_category().message(errno);
    }
    if (fd >= 0) close(fd);
  }
  ~MappedFile() {
    if (data_ != MAP_FAILED) munmap(data_, size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& error() const { return error_; }
  std::string_view bytes() const {
    return data_ == MAP_FAILED ? std::string_view()
                               : std::string_view(static_cast<const char*>(data_), size_);
  }

 private:
  void* data_ = MAP_FAILED;
  size_t size_ = 0;
  std::string error_;
};

std::vector<int> NumbersAfter(std::string_view bytes, const std::string& prefix) {
  std::vector<int> numbers;
  for (size_t at = bytes.find(prefix); at != std::string_view::npos; at = bytes.find(prefix, at + 1)) {
    const char* const digits = bytes.data() + at + prefix.size();
    int number = 0;
    const auto parsed = std::from_chars(digits, bytes.data() + bytes.size(), number);
    if (parsed.ec != std::errc() || parsed.ptr == bytes.data() + bytes.size() || *parsed.ptr != '\0')
      continue;
    if (std::ranges::find(numbers, number) == numbers.end()) numbers.push_back(number);
  }
  std::ranges::sort(numbers);
  return numbers;
}

}  // namespace

class ElfParser {
 public:
  ElfParser(std::string_view bytes, ElfImage* image) : bytes_(bytes), image_(*image) {}

  void Parse() {
    if (bytes_.size() < EI_NIDENT || memcmp(bytes_.data(), ELFMAG, SELFMAG) != 0) {
      image_.error = "is no library: no ELF file";
      return;
    }
    if (bytes_[EI_CLASS] != ELFCLASS64) {
      image_.error = "is a 32-bit library";
      return;
    }
    const auto header = At<Elf64_Ehdr>(0);
    if (!header || header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_type != ET_DYN) {
      image_.error = "is no library: cut short, of another byte order, or no shared object";
      return;
    }
    image_.machine_ = header->e_machine;
    std::vector<Elf64_Shdr> sections;
    for (int i = 0; i < header->e_shnum; ++i) {
      const auto section = At<Elf64_Shdr>(header->e_shoff + static_cast<uint64_t>(i) * sizeof(Elf64_Shdr));
      if (!section) {
        image_.error = "is cut short: its section table lies outside of it";
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
    if (offset >= strings.sh_size || at < offset || at >= bytes_.size()) return {};
    return {bytes_.data() + at, strnlen(bytes_.data() + at, bytes_.size() - at)};
  }

  // Each table ends with the file, whatever its section says.
  void ReadSymbols(const Elf64_Shdr& section, const Elf64_Shdr& strings) {
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = At<Elf64_Sym>(section.sh_offset + at);
      if (!symbol) return;
      if (symbol->st_shndx == SHN_UNDEF) continue;
      const int binding = ELF64_ST_BIND(symbol->st_info);
      const int visibility = ELF64_ST_VISIBILITY(symbol->st_other);
      if (binding == STB_LOCAL || visibility == STV_HIDDEN || visibility == STV_INTERNAL) continue;
      image_.exported.push_back({Text(strings, symbol->st_name), binding == STB_WEAK, symbol->st_value});
    }
  }

  void ReadDynamic(const Elf64_Shdr& section, const Elf64_Shdr& strings) {
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= section.sh_size; at += sizeof(Elf64_Dyn)) {
      const auto entry = At<Elf64_Dyn>(section.sh_offset + at);
      if (!entry || entry->d_tag == DT_NULL) return;
      if (entry->d_tag == DT_NEEDED) image_.needed.push_back(Text(strings, entry->d_un.d_val));
      if (entry->d_tag == DT_SONAME) image_.soname = Text(strings, entry->d_un.d_val);
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
        image_.versions.push_back(Text(strings, version->vna_name));
        version_at += version->vna_next;
      }
      if (need->vn_next == 0) return;
      at += need->vn_next;
    }
  }

  std::string_view bytes_;
  ElfImage& image_;
};

ElfImage ElfImage::Read(const std::string& path) {
  return ReadWithNumbers(path, {}, nullptr);
}

ElfImage ElfImage::ReadWithNumbers(const std::string& path, const std::vector<std::string>& prefixes,
                                   std::vector<std::vector<int>>* numbers) {
  ElfImage image;
  const MappedFile file(path);
  image.error = file.error();
  if (image.error.empty()) ElfParser(file.bytes(), &image).Parse();
  if (!image.error.empty()) image.error = path + ": " + image.error;
  for (const std::string& prefix : prefixes) numbers->push_back(NumbersAfter(file.bytes(), prefix));
  return image;
}

bool ElfImage::Exports(std::string_view name) const {
  return std::ranges::any_of(exported, [name](const ElfSymbol& symbol) { return symbol.name == name; });
}

bool ElfImage::IsForThisMachine() const {
  return machine_ == kThisMachine;
}

std::string ElfImage::Machine() const {
  switch (machine_) {
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "aarch64";
    default:
      return "machine " + std::to_string(machine_);
  }
}

}  // namespace c4
