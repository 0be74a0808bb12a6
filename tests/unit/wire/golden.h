// Golden files: one file per released version of a format, in tests/data/formats/, written once and then read
// for ever. C4_WRITE_GOLDEN=1 makes the tests write those of the version in force that do not exist yet; one
// that exists is never touched. Test helpers; one thread.
#pragma once

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>

#include "tests/unit/wire/layouts.h"

namespace c4::wire {

// `name` below the root of the sources.
inline std::filesystem::path SourcePath(const std::string& name) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody writes the environment
  const char* source = getenv("C4_SOURCE_DIR");
  return std::filesystem::path(source != nullptr ? source : ".") / name;
}

inline std::string ReadSource(const std::string& name) {
  std::ifstream file(SourcePath(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The file's bytes; `written_once` becomes the file where there is none and it was asked for.
inline std::string Golden(const std::string& name, const std::string& written_once) {
  const std::filesystem::path path = SourcePath("tests/data/formats/" + name);
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody writes the environment
  const char* write = getenv("C4_WRITE_GOLDEN");
  if (write != nullptr && std::string(write) == "1" && !std::filesystem::exists(path)) {
    std::ofstream(path, std::ios::binary) << written_once;
  }
  EXPECT_TRUE(std::filesystem::exists(path))
      << path << " is missing; C4_WRITE_GOLDEN=1 writes what does not exist yet";
  return ReadSource("tests/data/formats/" + name);
}

// What the file has at `offset`. Of an earlier minor version `known` bytes are there, and the rest reads as
// 0.
template <typename T>
T At(const std::string& bytes, size_t offset, size_t known = sizeof(T)) {
  T value{};
  if (offset > bytes.size() || bytes.size() - offset < known) {
    ADD_FAILURE() << "the golden file ends at " << bytes.size() << ", before " << offset << " + " << known;
    return value;
  }
  memcpy(&value, bytes.data() + offset, known);
  return value;
}

// Each field of `layout` in the file equals that of `expected`.
template <typename T>
void ExpectFields(const std::string& bytes, size_t offset, const T& expected, const Layout& layout,
                  size_t known = sizeof(T)) {
  ASSERT_EQ(sizeof(T), layout.bytes);
  const T found = At<T>(bytes, offset, known);
  for (const Field& field : layout.fields) {
    EXPECT_EQ(memcmp(reinterpret_cast<const char*>(&found) + field.offset,
                     reinterpret_cast<const char*>(&expected) + field.offset, field.bytes),
              0)
        << layout.name << "::" << field.name << " at byte " << offset + field.offset << " reads differently";
  }
}

template <typename T>
void Append(std::string* bytes, const T& value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace c4::wire
