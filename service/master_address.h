// Where a master listens, and who says so. A plain value; made from an address alone it is one that a
// person named (--master), which is trusted as that person is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace c4::service {

struct MasterAddress {
  MasterAddress() = default;
  MasterAddress(std::string named) : address(std::move(named)) {}  // NOLINT(google-explicit-constructor)
  MasterAddress(const char* named) : address(named) {}             // NOLINT(google-explicit-constructor)

  std::string address;  // host:port
  std::string job;      // whose master it is; empty: not known
  // Of the entry in the directory of masters; nullopt: a person named the address.
  std::optional<int64_t> published_by;
  // Where the entry's owner keeps the key that the master checks tokens with, on this machine.
  std::string key_file;
  std::string key_id;
};

}  // namespace c4::service
