// A daemon's SQLite file: write-ahead log, prepared statements kept by their text, a schema brought up to
// date at open, errors as Status.
//
// It fails open. While somebody else holds the file, the disk is full, or the file cannot be read, writes
// wait in memory, in their order, up to kMaxWaitingBytes (then the oldest are given up), and nobody waits for
// them: no call but Open and the destructor takes longer than the file does and kBusyTimeoutMs in store.cc.
// CatchUp, called now and then, writes them once the file works again, be it repaired, replaced, or merely
// released. Each way is told by one line in the log; in_memory() tells metrics and health. One Store, any
// threads: calls are serialised.
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
  static constexpr size_t kMaxWaitingBytes = size_t{16} << 20;

  // migrations[i] (SQL, may be several statements) takes the schema from version i to i + 1. A released
  // migration is never changed. A file of a later version is refused with both versions named.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& path,
                                                     std::vector<std::string> migrations);
  // The same, but with one warning, and in memory for now, when the file cannot be used. nullptr never.
  static std::unique_ptr<Store> OpenOrMemory(const std::string& path, std::vector<std::string> migrations);
  ~Store();  // tries once more to write what waits
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // All statements in one transaction, or none. An error means that the SQL or a constraint is at fault:
  // trouble with the file is handled inside.
  // What waits is written later; if its SQL is at fault, the log says so.
  absl::Status Write(std::span<const StoreStatement> statements);
  absl::Status Write(const StoreStatement& statement) { return Write(std::span(&statement, 1)); }
  // Of the file: what waits is not seen. Unavailable while the file cannot be used.
  absl::StatusOr<std::vector<StoreRow>> Query(const StoreStatement& statement);

  // Tries the file again where there is need to. True when nothing waits any more.
  bool CatchUp();
  bool in_memory() const;  // true: what was written last would not be there after a restart
  // OK, or why the file cannot be used at present.
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
