#include "service/store.h"

#include <gmock/gmock.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/time/clock.h"
#include "service/config.h"
#include "service/log.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::service {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kFirst = {"CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL)"};
const std::vector<std::string> kSecond = {
    kFirst[0], "ALTER TABLE notes ADD COLUMN weight REAL; UPDATE notes SET weight = 0.5;"};

absl::Status Put(Store* store, int64_t id, const std::string& text) {
  return store->Write({.sql = "INSERT INTO notes (id, text) VALUES (?, ?)", .parameters = {id, text}});
}

int64_t Count(Store* store) {
  const auto rows = store->Query({.sql = "SELECT count(*) FROM notes"});
  return rows.ok() ? StoreInt((*rows)[0][0]) : -1;
}

class StoreTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(InitLog({.file = directory_.File("log")}, "test").ok()); }
  void TearDown() override { ASSERT_TRUE(InitLog({}, "test").ok()); }

  int Warnings() {
    FlushLog();
    const std::string log = test::ReadWhole(directory_.File("log"));
    int count = 0;
    for (size_t at = log.find(" warning "); at != std::string::npos; at = log.find(" warning ", at + 1))
      ++count;
    return count;
  }

  test::TemporaryDirectory directory_;
  const std::string path_ = directory_.File("store.db");
};

TEST_F(StoreTest, ValuesComeBackAsTheyWere) {
  const auto store = Store::Open(path_, kSecond);
  ASSERT_TRUE(store.ok()) << store.status();
  const std::string text("with \0 a zero", 13);
  ASSERT_TRUE((*store)
                  ->Write({.sql = "INSERT INTO notes VALUES (?, ?, ?)",
                           .parameters = {int64_t{INT64_MIN}, text, StoreValue(std::monostate{})}})
                  .ok());
  const auto rows =
      (*store)->Query({.sql = "SELECT id, text, weight FROM notes WHERE id < ?", .parameters = {int64_t{0}}});
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 1u);
  EXPECT_EQ(StoreInt((*rows)[0][0]), INT64_MIN);
  EXPECT_EQ(StoreText((*rows)[0][1]), text);
  EXPECT_TRUE(std::holds_alternative<std::monostate>((*rows)[0][2]));
}

TEST_F(StoreTest, MigratesAndKeeps) {
  ASSERT_TRUE(Put(Store::Open(path_, kFirst)->get(), 1, "old").ok());
  const auto store = Store::Open(path_, kSecond);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto rows = (*store)->Query({.sql = "SELECT text, weight FROM notes"});
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(StoreText((*rows)[0][0]), "old");
  EXPECT_EQ(StoreReal((*rows)[0][1]), 0.5);
  ASSERT_TRUE(Store::Open(path_, kSecond).ok());  // and not a second time
}

TEST_F(StoreTest, ALaterVersionIsRefusedWithBothNamed) {
  ASSERT_TRUE(Store::Open(path_, kSecond).ok());
  const absl::Status status = Store::Open(path_, kFirst).status();
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("version 2"), HasSubstr("up to 1")));
}

TEST_F(StoreTest, AFailedMigrationLeavesTheOldVersion) {
  ASSERT_TRUE(Put(Store::Open(path_, kFirst)->get(), 1, "old").ok());
  EXPECT_FALSE(Store::Open(path_, {kFirst[0], "CREATE TABLE extra (x); NONSENSE"}).ok());
  const auto store = Store::Open(path_, kFirst);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(Count(store->get()), 1);
  EXPECT_FALSE((*store)->Query({.sql = "SELECT * FROM extra"}).ok());
}

TEST_F(StoreTest, AllStatementsOrNone) {
  const auto store = Store::Open(path_, kFirst);
  const std::vector<StoreStatement> statements = {{.sql = "INSERT INTO notes VALUES (1, 'a')"},
                                                  {.sql = "INSERT INTO notes VALUES (1, 'b')"}};
  EXPECT_TRUE(absl::IsAlreadyExists((*store)->Write(statements)));
  EXPECT_EQ(Count(store->get()), 0);
  EXPECT_FALSE((*store)->Write({.sql = "INSERT INTO nowhere VALUES (1)"}).ok());
  EXPECT_FALSE((*store)->in_memory());  // the statements were at fault, not the file
  EXPECT_TRUE(Put(store->get(), 1, "c").ok());
}

TEST_F(StoreTest, ACorruptFileMeansMemoryAndOneWarningUntilItIsReplaced) {
  directory_.Write("store.db", std::string(8192, 'x'));
  EXPECT_THAT(std::string(Store::Open(path_, kFirst).status().message()),
              AllOf(HasSubstr(path_), HasSubstr("move")));
  const auto store = Store::OpenOrMemory(path_, kFirst);
  EXPECT_TRUE(store->in_memory());
  EXPECT_FALSE(store->file_status().ok());
  EXPECT_TRUE(Put(store.get(), 1, "a").ok());
  EXPECT_FALSE(store->CatchUp());
  EXPECT_EQ(Count(store.get()), -1);
  EXPECT_EQ(test::ReadWhole(path_), std::string(8192, 'x'));  // left for whoever examines it
  ASSERT_EQ(rename(path_.c_str(), directory_.File("examined.db").c_str()), 0);
  EXPECT_TRUE(Put(store.get(), 2, "b").ok());
  EXPECT_TRUE(store->CatchUp());
  EXPECT_FALSE(store->in_memory());
  EXPECT_EQ(Count(store.get()), 2);
  EXPECT_EQ(Warnings(), 1);
}

TEST_F(StoreTest, AFileThatTurnsCorruptMeansMemory) {
  {
    const auto store = Store::Open(path_, kFirst);
    for (int64_t id = 0; id < 2000; ++id) ASSERT_TRUE(Put(store->get(), id, std::string(100, 'x')).ok());
  }
  const auto store = Store::OpenOrMemory(path_, kFirst);
  ASSERT_FALSE(store->in_memory());
  {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(8192);
    file << std::string(100000, '\xee');
  }
  EXPECT_FALSE(store->Query({.sql = "SELECT * FROM notes"}).ok());
  EXPECT_TRUE(store->in_memory());
  EXPECT_TRUE(Put(store.get(), 99999, "after").ok());
  EXPECT_EQ(Warnings(), 1);
}

TEST_F(StoreTest, AFullDiskMeansMemoryUntilThereIsRoom) {
  auto opened = Store::Open(path_, kFirst);
  ASSERT_TRUE(opened.ok());
  Store* store = opened->get();
  ASSERT_TRUE(Put(store, 1, "before").ok());
  // SQLite's own limit stands for the disk's: the same SQLITE_FULL.
  ASSERT_TRUE(store->Query({.sql = "PRAGMA max_page_count = 4"}).ok());
  for (int64_t id = 2; id < 40; ++id) ASSERT_TRUE(Put(store, id, std::string(1000, 'x')).ok());
  EXPECT_TRUE(store->in_memory());
  EXPECT_THAT(std::string(store->file_status().message()), HasSubstr("make room"));
  EXPECT_LT(Count(store), 39);
  EXPECT_FALSE(store->CatchUp());
  ASSERT_TRUE(store->Query({.sql = "PRAGMA max_page_count = 1000"}).ok());
  EXPECT_TRUE(store->CatchUp());
  EXPECT_FALSE(store->in_memory());
  EXPECT_TRUE(store->file_status().ok());
  EXPECT_EQ(Count(store), 39);
  EXPECT_EQ(Warnings(), 1);
}

// Nobody waits for the one who holds the file, and nothing is lost by it.
TEST_F(StoreTest, AFileThatIsHeldIsGoneBackTo) {
  auto store = Store::Open(path_, kFirst);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE(Put(store->get(), 1, "before").ok());
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  const absl::Time start = absl::Now();
  for (int64_t id = 2; id <= 20; ++id) ASSERT_TRUE(Put(store->get(), id, "meanwhile").ok());
  EXPECT_FALSE((*store)->CatchUp());
  EXPECT_LT(absl::Now() - start, absl::Milliseconds(500));
  EXPECT_TRUE((*store)->in_memory());
  EXPECT_THAT(std::string((*store)->file_status().message()), HasSubstr("another program holds it"));
  EXPECT_EQ(Count(store->get()), 1) << "readers are not held up";
  ASSERT_EQ(sqlite3_exec(other, "COMMIT", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(other);
  EXPECT_TRUE((*store)->CatchUp());
  EXPECT_FALSE((*store)->in_memory());
  EXPECT_EQ(Count(store->get()), 20);
  ASSERT_TRUE(Put(store->get(), 21, "after").ok());
  EXPECT_EQ(Warnings(), 1);
  store->reset();
  EXPECT_EQ(Count(Store::Open(path_, kFirst)->get()), 21);
}

TEST_F(StoreTest, WhatWaitsIsWrittenAtTheEnd) {
  auto store = Store::Open(path_, kFirst);
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  ASSERT_TRUE(Put(store->get(), 1, "late").ok());
  ASSERT_TRUE(Put(store->get(), 1, "the same again").ok());  // refused once it is written, and told of
  sqlite3_close(other);
  store->reset();
  EXPECT_EQ(Count(Store::Open(path_, kFirst)->get()), 1);
}

TEST_F(StoreTest, WhatWaitsIsBounded) {
  const auto store = Store::OpenOrMemory(directory_.File("later/store.db"), kFirst);
  EXPECT_TRUE(store->in_memory());
  const int64_t writes = 3 * (Store::kMaxWaitingBytes >> 20);
  for (int64_t id = 1; id <= writes; ++id)
    ASSERT_TRUE(Put(store.get(), id, std::string(size_t{1} << 20, 'x')).ok());
  ASSERT_EQ(mkdir(directory_.File("later").c_str(), 0755), 0);
  EXPECT_TRUE(store->CatchUp());
  EXPECT_GT(Count(store.get()), writes / 4);
  EXPECT_LE(Count(store.get()), writes / 3);
  const auto newest = store->Query({.sql = "SELECT max(id) FROM notes"});
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(StoreInt((*newest)[0][0]), writes) << "the oldest are given up";
}

}  // namespace
}  // namespace c4::service
