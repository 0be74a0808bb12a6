// Key files and credentials of tests: 0600, in the test's own directory.
#pragma once

#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>

#include "service/credentials.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::test {

inline std::string WriteSecret(const TemporaryDirectory& directory, const std::string& name,
                               const std::string& content) {
  directory.Write(name, content);
  EXPECT_EQ(chmod(directory.File(name).c_str(), 0600), 0);
  return directory.File(name);
}

// A new key under that name.
inline std::string WriteKey(const TemporaryDirectory& directory, const std::string& name = "key") {
  return WriteSecret(directory, name, *service::NewKeyLine() + "\n");
}

inline service::Credentials WithKey(const std::string& key_file, const service::Identity& self,
                                    const service::TlsOptions& tls = {}) {
  auto credentials = service::Credentials::Load({.tls = tls, .key_file = key_file}, self);
  EXPECT_TRUE(credentials.ok()) << credentials.status();
  return *std::move(credentials);
}

}  // namespace c4::test
