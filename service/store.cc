#include "service/store.h"

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <sqlite3.h>

#include "service/log.h"
#include "service/text.h"

namespace c4::service {
namespace {

// Another process (the sqlite3 shell) may hold the file for a moment: at the start and at the end there is
// time, in between whoever writes has better things to do.
constexpr int kPatientBusyTimeoutMs = 2000;
constexpr int kBusyTimeoutMs = 20;

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
    case SQLITE_BUSY:
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
      return "another program holds it: end that";
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

absl::StatusOr<Database> OpenDatabase(const std::string& path, const std::vector<std::string>& migrations,
                                      int busy_timeout_ms) {
  sqlite3* raw = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX | SQLITE_OPEN_NOFOLLOW;
  const int code = sqlite3_open_v2(path.c_str(), &raw, flags, nullptr);
  Database database(raw);
  if (code != SQLITE_OK) return Failure(path, raw, code);
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, busy_timeout_ms);
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

// With all that is around them, roughly.
size_t BytesOf(std::span<const StoreStatement> statements) {
  size_t bytes = 0;
  for (const StoreStatement& statement : statements) {
    bytes += sizeof statement + statement.sql.size();
    for (const StoreValue& value : statement.parameters) {
      const auto* text = std::get_if<std::string>(&value);
      bytes += sizeof value + (text == nullptr ? 0 : text->size());
    }
  }
  return bytes;
}

}  // namespace

struct Store::State {
  using Transaction = std::vector<StoreStatement>;

  std::string path;
  std::vector<std::string> migrations;
  mutable std::mutex mutex;
  Database database;                         // nullptr: to be opened again
  std::map<std::string, Prepared> prepared;  // of `database`: destroyed before it
  absl::Status file_status;                  // not OK: writes wait
  std::deque<Transaction> waiting;
  size_t waiting_bytes = 0;
  uint64_t given_up = 0;  // of those that waited

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

  // One transaction. Unavailable: the file is at fault, and was given up.
  absl::Status WriteNow(std::span<const StoreStatement> statements) {
    const int code = WriteAll(statements);
    if (code == SQLITE_OK) return absl::OkStatus();
    absl::Status status = Failure(path, database.get(), code);
    EndTransaction();
    if (IsFileTrouble(code)) GiveUpFile(status, code);
    return status;
  }

  // From here on writes wait. A file that is merely held, or full, stays open.
  void GiveUpFile(const absl::Status& why, int code) {
    if (file_status.ok()) {
      LogWarning(why.message(), ". Until it works again, what is to be stored is kept in memory");
    }
    file_status = why;
    if ((code & 0xff) == SQLITE_BUSY || (code & 0xff) == SQLITE_FULL) return;
    prepared.clear();
    database.reset();
  }

  void Wait(Transaction transaction) {
    waiting_bytes += BytesOf(transaction);
    waiting.push_back(std::move(transaction));
    while (waiting_bytes > kMaxWaitingBytes && waiting.size() > 1) {
      waiting_bytes -= BytesOf(waiting.front());
      waiting.pop_front();
      ++given_up;
    }
  }

  bool CatchUp(int busy_timeout_ms) {
    if (file_status.ok()) return true;
    if (database == nullptr) {
      absl::StatusOr<Database> opened = OpenDatabase(path, migrations, busy_timeout_ms);
      if (!opened.ok()) {
        file_status = opened.status();
        return false;
      }
      database = *std::move(opened);
    }
    sqlite3_busy_timeout(database.get(), busy_timeout_ms);
    const size_t count = waiting.size();
    while (!waiting.empty()) {
      const absl::Status status = WriteNow(waiting.front());
      if (absl::IsUnavailable(status)) return false;
      if (!status.ok()) LogError("what waited to be stored cannot be: ", status.message());
      waiting_bytes -= BytesOf(waiting.front());
      waiting.pop_front();
    }
    sqlite3_busy_timeout(database.get(), kBusyTimeoutMs);
    file_status = absl::OkStatus();
    LogInfo("store ", path, " works again; ", count, " writes had waited for it",
            given_up == 0 ? "" : Concat(", ", given_up, " more did not fit into memory and are lost"));
    given_up = 0;
    return true;
  }
};

Store::Store(std::unique_ptr<State> state) : state_(std::move(state)) {}

Store::~Store() {
  const std::lock_guard lock(state_->mutex);
  if (!state_->waiting.empty()) state_->CatchUp(kPatientBusyTimeoutMs);
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& path,
                                                   std::vector<std::string> migrations) {
  absl::StatusOr<Database> database = OpenDatabase(path, migrations, kPatientBusyTimeoutMs);
  if (!database.ok()) return database.status();
  auto state = std::make_unique<State>();
  state->path = path;
  state->migrations = std::move(migrations);
  state->database = *std::move(database);
  sqlite3_busy_timeout(state->database.get(), kBusyTimeoutMs);
  return std::unique_ptr<Store>(new Store(std::move(state)));
}

std::unique_ptr<Store> Store::OpenOrMemory(const std::string& path, std::vector<std::string> migrations) {
  absl::StatusOr<std::unique_ptr<Store>> store = Open(path, migrations);
  if (store.ok()) return *std::move(store);
  auto state = std::make_unique<State>();
  state->path = path;
  state->migrations = std::move(migrations);
  state->GiveUpFile(store.status(), SQLITE_CANTOPEN);
  return std::unique_ptr<Store>(new Store(std::move(state)));
}

absl::Status Store::Write(std::span<const StoreStatement> statements) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.file_status.ok()) {
    absl::Status status = state.WriteNow(statements);
    if (!absl::IsUnavailable(status)) return status;
  }
  state.Wait({statements.begin(), statements.end()});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StoreRow>> Store::Query(const StoreStatement& statement) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.database == nullptr) return state.file_status;
  std::vector<StoreRow> rows;
  const int code = state.Run(statement, &rows);
  if (code == SQLITE_OK) return rows;
  absl::Status status = Failure(state.path, state.database.get(), code);
  if (IsFileTrouble(code)) state.GiveUpFile(status, code);
  return status;
}

bool Store::CatchUp() {
  const std::lock_guard lock(state_->mutex);
  return state_->CatchUp(kBusyTimeoutMs);
}

bool Store::in_memory() const {
  const std::lock_guard lock(state_->mutex);
  return !state_->file_status.ok();
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
