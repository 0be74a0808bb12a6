// A daemon's SQLite file: write-ahead log, prepared statements kept by their text, a schema brought up to
// date at open, errors as Status. It fails open: OpenOrMemory never refuses, and a disk that fills up or a
// file that turns out corrupt later moves the store into memory (with its content where that is still whole),
// with one warning; in_memory() then tells metrics and health. One Store, any threads: calls are serialised.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "service/status.h"

struct sqlite3;

namespace c4::service {

using StoreValue = std::variant<std::monostate, int64_t, double, std::string>;  // NULL first
using StoreRow = std::vector<StoreValue>;

struct StoreStatement {
  std::string sql;  // one statement, '?' for parameters
  std::vector<StoreValue> parameters = {};
};

class Store {
 public:
  // migrations[i] (SQL, may be several statements) takes the schema from version i to i + 1. A released
  // migration is never changed. A file of a later version is refused with both versions named.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& path,
                                                     std::vector<std::string> migrations);
  // The same, but in memory, with one warning, when the file cannot be used. nullptr never.
  static std::unique_ptr<Store> OpenOrMemory(const std::string& path, std::vector<std::string> migrations);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // All statements in one transaction, or none. An error means that the SQL or a constraint is at fault:
  // trouble with the file is handled inside.
  absl::Status Write(std::span<const StoreStatement> statements);
  absl::Status Write(const StoreStatement& statement) { return Write(std::span(&statement, 1)); }
  absl::StatusOr<std::vector<StoreRow>> Query(const StoreStatement& statement);

  bool in_memory() const;  // true: nothing will be there after a restart
  // OK, or why the file was given up.
  absl::Status file_status() const;

 private:
  struct State;
  explicit Store(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A value of a row in the expected type; a zero value when it is of another type or NULL.
int64_t StoreInt(const StoreValue& value);
double StoreReal(const StoreValue& value);
std::string StoreText(const StoreValue& value);

}  // namespace c4::service
