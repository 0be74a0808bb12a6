#include "service/store.h"

#include <map>
#include <mutex>
#include <optional>
#include <sqlite3.h>

#include "service/log.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr int kBusyTimeoutMs = 2000;  // another process (the sqlite3 shell) may hold the file for a moment
constexpr char kMemoryPath[] = ":memory:";

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using Prepared = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

// The file is at fault, not the statement.
bool IsFileTrouble(int code) {
  switch (code & 0xff) {
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_BUSY:  // for longer than the time-out: somebody else keeps it
    case SQLITE_PROTOCOL:
    case SQLITE_NOLFS:
      return true;
    default:
      return false;
  }
}

// What to do about it, for the person who reads the log.
const char* Advice(int code) {
  switch (code & 0xff) {
    case SQLITE_FULL:
      return "make room on that disk";
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return "move the file away (it may be examined with the sqlite3 shell)";
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
      return "check that the directory exists and is writable";
    case SQLITE_BUSY:
      return "another program holds it: end that or choose another --store";
    default:
      return "check that disk";
  }
}

absl::Status Failure(const std::string& path, sqlite3* database, int code) {
  const char* text = database != nullptr ? sqlite3_errmsg(database) : sqlite3_errstr(code);
  if (IsFileTrouble(code)) {
    return absl::UnavailableError(Concat("store ", path, ": ", text, "; ", Advice(code)));
  }
  if ((code & 0xff) == SQLITE_CONSTRAINT) return absl::AlreadyExistsError(Concat("store: ", text));
  return absl::InternalError(Concat("store: ", text));
}

absl::Status RunScript(const std::string& path, sqlite3* database, const char* sql) {
  const int code = sqlite3_exec(database, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Failure(path, database, code);
}

absl::StatusOr<int64_t> ReadNumber(const std::string& path, sqlite3* database, const char* sql) {
  sqlite3_stmt* raw = nullptr;
  if (const int code = sqlite3_prepare_v2(database, sql, -1, &raw, nullptr); code != SQLITE_OK) {
    return Failure(path, database, code);
  }
  const Prepared statement(raw);
  const int code = sqlite3_step(raw);
  if (code == SQLITE_ROW) return sqlite3_column_int64(raw, 0);
  return code == SQLITE_DONE ? absl::StatusOr<int64_t>(0) : Failure(path, database, code);
}

// Copies are made by pages: damage is copied too.
bool IsWhole(sqlite3* database) {
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v2(database, "PRAGMA quick_check(1)", -1, &raw, nullptr) != SQLITE_OK) return false;
  const Prepared statement(raw);
  if (sqlite3_step(raw) != SQLITE_ROW) return false;
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(raw, 0));
  return text != nullptr && std::string_view(text) == "ok";
}

// One transaction for all of it: a crash in the middle leaves the old version.
absl::Status Migrate(const std::string& path, sqlite3* database, const std::vector<std::string>& migrations) {
  C4_RETURN_IF_NOT_OK(RunScript(path, database, "BEGIN IMMEDIATE"));
  absl::Status status = [&]() -> absl::Status {
    C4_RETURN_IF_NOT_OK(
        RunScript(path, database, "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)"));
    const absl::StatusOr<int64_t> version =
        ReadNumber(path, database, "SELECT version FROM schema_version LIMIT 1");
    if (!version.ok()) return version.status();
    const auto newest = static_cast<int64_t>(migrations.size());
    if (*version < 0 || *version > newest) {
      return absl::FailedPreconditionError(Concat("store ", path, " has schema version ", *version,
                                                  ", this program knows up to ", newest,
                                                  "; use the newer program or another --store"));
    }
    for (int64_t step = *version; step < newest; ++step) {
      C4_RETURN_IF_NOT_OK(RunScript(path, database, migrations[static_cast<size_t>(step)].c_str()));
    }
    C4_RETURN_IF_NOT_OK(RunScript(path, database, "DELETE FROM schema_version"));
    return RunScript(path, database, Concat("INSERT INTO schema_version VALUES (", newest, ")").c_str());
  }();
  if (!status.ok()) {
    (void)RunScript(path, database, "ROLLBACK");
    return status;
  }
  return RunScript(path, database, "COMMIT");
}

absl::StatusOr<Database> OpenDatabase(const std::string& path, const std::vector<std::string>& migrations) {
  sqlite3* raw = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX | SQLITE_OPEN_NOFOLLOW;
  const int code = sqlite3_open_v2(path.c_str(), &raw, flags, nullptr);
  Database database(raw);
  if (code != SQLITE_OK) return Failure(path, raw, code);
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, kBusyTimeoutMs);
  // NORMAL: a power cut may lose the last commits, never the file.
  C4_RETURN_IF_NOT_OK(RunScript(path, raw, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"));
  C4_RETURN_IF_NOT_OK(Migrate(path, raw, migrations));
  return database;
}

int Bind(sqlite3_stmt* statement, int index, const StoreValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return sqlite3_bind_int64(statement, index, *number);
  if (const auto* real = std::get_if<double>(&value)) return sqlite3_bind_double(statement, index, *real);
  if (const auto* text = std::get_if<std::string>(&value)) {
    return sqlite3_bind_text64(statement, index, text->data(), text->size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  }
  return sqlite3_bind_null(statement, index);
}

StoreValue Column(sqlite3_stmt* statement, int index) {
  switch (sqlite3_column_type(statement, index)) {
    case SQLITE_INTEGER:
      return sqlite3_column_int64(statement, index);
    case SQLITE_FLOAT:
      return sqlite3_column_double(statement, index);
    case SQLITE_NULL:
      return std::monostate{};
    default:
      break;
  }
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, index));
  const int bytes = sqlite3_column_bytes(statement, index);
  return text == nullptr ? std::string() : std::string(text, static_cast<size_t>(bytes));
}

}  // namespace

struct Store::State {
  std::string path;
  std::vector<std::string> migrations;
  mutable std::mutex mutex;
  Database database;
  std::map<std::string, Prepared> prepared;  // of `database`: destroyed before it
  bool in_memory = false;
  absl::Status file_status;

  ~State() { prepared.clear(); }

  // Runs one statement; `rows` may be null. Gives SQLite's code.
  int Run(const StoreStatement& statement, std::vector<StoreRow>* rows) {
    Prepared& slot = prepared[statement.sql];
    if (slot == nullptr) {
      sqlite3_stmt* raw = nullptr;
      const int code = sqlite3_prepare_v3(database.get(), statement.sql.c_str(), -1,
                                          SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
      if (code != SQLITE_OK) return code;
      slot.reset(raw);
    }
    sqlite3_stmt* raw = slot.get();
    int code = SQLITE_OK;
    for (size_t i = 0; i < statement.parameters.size() && code == SQLITE_OK; ++i) {
      code = Bind(raw, static_cast<int>(i) + 1, statement.parameters[i]);
    }
    if (code == SQLITE_OK) {
      while ((code = sqlite3_step(raw)) == SQLITE_ROW) {
        if (rows == nullptr) continue;
        StoreRow row;
        for (int i = 0; i < sqlite3_column_count(raw); ++i) row.push_back(Column(raw, i));
        rows->push_back(std::move(row));
      }
    }
    sqlite3_reset(raw);
    sqlite3_clear_bindings(raw);
    return code == SQLITE_DONE ? SQLITE_OK : code;
  }

  int WriteAll(std::span<const StoreStatement> statements) {
    int code = Run({.sql = "BEGIN IMMEDIATE"}, nullptr);
    for (size_t i = 0; i < statements.size() && code == SQLITE_OK; ++i) code = Run(statements[i], nullptr);
    if (code == SQLITE_OK) code = Run({.sql = "COMMIT"}, nullptr);
    return code;
  }

  // Some failures have already rolled back by themselves. Not before the message of the failure was read.
  void EndTransaction() {
    if (sqlite3_get_autocommit(database.get()) == 0) (void)Run({.sql = "ROLLBACK"}, nullptr);
  }

  // Goes on in memory, with the file's content where that is still whole. False when even that fails.
  bool MoveToMemory(const absl::Status& why) {
    if (in_memory) return false;
    LogWarning(why.message(),
               ". From here on the store is kept in memory only and is lost at the next restart");
    sqlite3* raw = nullptr;
    if (sqlite3_open_v2(kMemoryPath, &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX,
                        nullptr) != SQLITE_OK) {
      sqlite3_close_v2(raw);
      return false;
    }
    Database memory(raw);
    prepared.clear();
    if (database != nullptr) {
      sqlite3_backup* copy = sqlite3_backup_init(raw, "main", database.get(), "main");
      const int code = copy != nullptr ? sqlite3_backup_step(copy, -1) : SQLITE_ERROR;
      sqlite3_backup_finish(copy);
      const bool whole = code == SQLITE_DONE && IsWhole(raw);
      if (!whole) {
        memory.reset();
        sqlite3_open(kMemoryPath, &raw);
        memory.reset(raw);
      }
    }
    if (!Migrate(kMemoryPath, memory.get(), migrations).ok()) return false;
    database = std::move(memory);
    in_memory = true;
    file_status = why;
    return true;
  }
};

Store::Store(std::unique_ptr<State> state) : state_(std::move(state)) {}
Store::~Store() = default;

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& path,
                                                   std::vector<std::string> migrations) {
  absl::StatusOr<Database> database = OpenDatabase(path, migrations);
  if (!database.ok()) return database.status();
  auto state = std::make_unique<State>();
  state->path = path;
  state->migrations = std::move(migrations);
  state->database = *std::move(database);
  return std::unique_ptr<Store>(new Store(std::move(state)));
}

std::unique_ptr<Store> Store::OpenOrMemory(const std::string& path, std::vector<std::string> migrations) {
  absl::StatusOr<std::unique_ptr<Store>> store = Open(path, migrations);
  if (store.ok()) return *std::move(store);
  auto state = std::make_unique<State>();
  state->path = path;
  state->migrations = std::move(migrations);
  if (!state->MoveToMemory(store.status())) {
    LogError("not even a store in memory can be made; nothing is kept");
    state->in_memory = true;
    state->file_status = store.status();
  }
  return std::unique_ptr<Store>(new Store(std::move(state)));
}

absl::Status Store::Write(std::span<const StoreStatement> statements) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.database == nullptr) return state.file_status;
  int code = state.WriteAll(statements);
  if (code == SQLITE_OK) return absl::OkStatus();
  absl::Status status = Failure(state.path, state.database.get(), code);
  state.EndTransaction();
  if (!IsFileTrouble(code) || !state.MoveToMemory(status)) return status;
  code = state.WriteAll(statements);
  if (code == SQLITE_OK) return absl::OkStatus();
  status = Failure(state.path, state.database.get(), code);
  state.EndTransaction();
  return status;
}

absl::StatusOr<std::vector<StoreRow>> Store::Query(const StoreStatement& statement) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.database == nullptr) return state.file_status;
  std::vector<StoreRow> rows;
  int code = state.Run(statement, &rows);
  if (code == SQLITE_OK) return rows;
  const absl::Status status = Failure(state.path, state.database.get(), code);
  if (!IsFileTrouble(code) || !state.MoveToMemory(status)) return status;
  rows.clear();
  code = state.Run(statement, &rows);
  if (code == SQLITE_OK) return rows;
  return Failure(state.path, state.database.get(), code);
}

bool Store::in_memory() const {
  const std::lock_guard lock(state_->mutex);
  return state_->in_memory;
}

absl::Status Store::file_status() const {
  const std::lock_guard lock(state_->mutex);
  return state_->file_status;
}

int64_t StoreInt(const StoreValue& value) {
  const auto* number = std::get_if<int64_t>(&value);
  return number == nullptr ? 0 : *number;
}

double StoreReal(const StoreValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return static_cast<double>(*number);
  const auto* real = std::get_if<double>(&value);
  return real == nullptr ? 0 : *real;
}

std::string StoreText(const StoreValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text == nullptr ? std::string() : *text;
}

}  // namespace c4::service
