// What outlives a path master: the next one goes on from it, with every connection on its ports, every link
// with its name and fault, and no epoch twice; what is damaged is refused with words that help.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>

#include "c4p_master/state/records.h"
#include "c4p_master/state/sqlite_state.h"
#include "c4p_master/state/state_keeper.h"
#include "tests/unit/c4p_master/cluster.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::c4p {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// A store in memory. `late`: it tells that something is written down only when it is told to.
class MemoryState final : public StateStore {
 public:
  absl::StatusOr<StateRecords> Load() override { return records; }
  void Write(std::vector<StateChange> changes, Done done) override {
    if (late) {
      waiting.emplace_back(std::move(changes), std::move(done));
      return;
    }
    Apply(std::move(changes), done);
  }
  void Apply(std::vector<StateChange> changes, const Done& done) {
    if (!broken.ok()) return done(broken);
    for (StateChange& change : changes) {
      ++writes;
      if (change.value) {
        records[change.key] = *std::move(change.value);
      } else {
        records.erase(change.key);
      }
    }
    done(absl::OkStatus());
  }
  void Flush() {
    for (auto& [changes, done] : std::exchange(waiting, {})) Apply(std::move(changes), done);
  }

  StateRecords records;
  absl::Status broken;
  bool late = false;
  std::vector<std::pair<std::vector<StateChange>, Done>> waiting;
  size_t writes = 0;
};

struct Used {
  std::map<std::string, std::vector<uint32_t>> ports;  // as advised
};
Used PortsOf(const C4pHandler& handler) {
  Used used;
  for (const auto& [name, connection] : handler.book().connections()) {
    for (const PathBook::QueuePair& pair : connection.pairs) used.ports[name].push_back(pair.advised_port);
  }
  return used;
}

// A cluster whose connections are all on ports that were chosen.
void Settle(Cluster* cluster) {
  const int hosts = cluster->fabric.hosts();
  cluster->Run(2000);
  for (int host = 0; host < hosts; ++host) {
    cluster->Ask(host, (host + hosts / 2) % hosts, "c" + std::to_string(host));
  }
  cluster->Run(3000);
  for (const auto& [name, request] : cluster->requests) cluster->Use(name);
  cluster->Run(2000);
}

// Another master takes its place: agents make new sessions and say everything again.
void SayAgain(Cluster* cluster) {
  for (auto& [host, agent] : cluster->agents) cluster->Join(host);
  for (const auto& [name, request] : cluster->requests) {
    v1::AgentToC4p message;
    message.mutable_use()->set_connection(name);
    message.mutable_use()->set_epoch(cluster->answers[name].epoch());
    *message.mutable_use()->mutable_request() = request.second;
    for (const v1::QueuePairPath& path : cluster->answers[name].paths()) {
      v1::QueuePairInUse* const pair = message.mutable_use()->add_queue_pairs();
      pair->set_index(path.index());
      pair->set_use(v1::QUEUE_PAIR_USE_LIVE);
      v1::FiveTuple* const tuple = pair->mutable_tuple();
      const v1::PathEnds& ends = request.second.ends(static_cast<int>(path.plane()));
      tuple->set_source(ends.source());
      tuple->set_destination(ends.destination());
      tuple->set_source_port(path.source_port());
      tuple->set_destination_port(request.second.destination_port());
    }
    cluster->Say(request.first, message);
  }
}

const FakeSpec kSpec = {.leaves = 4, .spines = 4, .hosts_per_leaf = 2};

TEST(PathStateTest, TheNextMasterGoesOnWithoutAMove) {
  MemoryState store;
  Used before;
  std::map<std::string, v1::PathAnswer> answers;
  std::map<std::string, std::pair<int, v1::PathRequest>> requests;
  std::vector<std::string> loads;
  const auto loads_of = [](const C4pHandler& handler, int64_t now_ns) {
    std::vector<std::string> lines;
    const v1::ListPathsReply listed = handler.ListPaths({}, now_ns);
    for (const v1::LinkLoad& link : listed.links()) {
      lines.push_back(link.name() + " " + std::to_string(link.load_mbps()) + (link.up() ? "" : " down"));
    }
    return lines;
  };
  {
    Cluster cluster(kSpec, {.master_epoch = 1}, std::nullopt, &store);
    Settle(&cluster);
    before = PortsOf(cluster.handler);
    answers = cluster.answers;
    requests = cluster.requests;
    loads = loads_of(cluster.handler, cluster.now_ns);
    for (const auto& [name, ports] : before.ports) EXPECT_THAT(ports, testing::Each(testing::Ne(0u))) << name;
  }
  Cluster next(kSpec, {.master_epoch = 2}, std::nullopt, &store, /*join=*/false);
  ASSERT_TRUE(next.handler.Restore(store.records, next.now_ns).ok());
  // Before any agent has said a word.
  EXPECT_EQ(PortsOf(next.handler).ports, before.ports);
  EXPECT_EQ(loads_of(next.handler, next.now_ns), loads) << "what is promised counts at once";
  next.answers = answers;
  next.requests = requests;
  for (int host = 0; host < next.fabric.hosts(); ++host) next.agents[host] = {};
  SayAgain(&next);
  next.Run(15000);
  EXPECT_EQ(next.answers_seen, 0) << "nobody is told to move";
  EXPECT_EQ(PortsOf(next.handler).ports, before.ports);
  EXPECT_EQ(loads_of(next.handler, next.now_ns), loads);
}

TEST(PathStateTest, DeadLinksStayDeadAndKeepTheirNames) {
  MemoryState store;
  {
    Cluster cluster(kSpec, {}, std::nullopt, &store);
    Settle(&cluster);
    cluster.fabric.Cut(0, 1);
    cluster.handler.Tick(cluster.now_ns);
    for (const auto& [name, request] : cluster.requests) cluster.Use(name, {{0, 1}, {1, 1}, {2, 1}, {3, 1}});
    cluster.Run(6000);
    ASSERT_FALSE(cluster.IsUp("leaf0>spine1"));
  }
  Cluster next(kSpec, {}, std::nullopt, &store, /*join=*/false);
  next.fabric.Cut(0, 1);
  ASSERT_TRUE(next.handler.Restore(store.records, next.now_ns).ok());
  EXPECT_FALSE(next.IsUp("leaf0>spine1"));
  EXPECT_TRUE(next.IsUp("leaf0>spine0"));
  for (int host = 0; host < next.fabric.hosts(); ++host) next.Join(host);
  next.Run(6000);
  EXPECT_FALSE(next.IsUp("leaf0>spine1"));
  next.fabric.Heal(0, 1);
  next.Run(12000);
  EXPECT_TRUE(next.IsUp("leaf0>spine1")) << "it is looked at again, though the one who found it is gone";
}

// An answer that was written down and never came is said when its connection is said again.
TEST(PathStateTest, AdviceThatWasLostIsGivenAgain) {
  MemoryState store;
  Cluster cluster(kSpec, {}, std::nullopt, &store);
  Settle(&cluster);
  v1::PathAnswer& heard = cluster.answers["c0"];
  const uint64_t newest = heard.epoch();
  ASSERT_GT(newest, 1u);
  heard.set_epoch(newest - 1);  // of its agent: the last one is lost
  cluster.handler.Disconnect(cluster.agents[0].session, cluster.now_ns);
  cluster.answers_seen = 0;
  cluster.Join(0);
  v1::AgentToC4p message;
  message.mutable_use()->set_connection("c0");
  message.mutable_use()->set_epoch(newest - 1);
  *message.mutable_use()->mutable_request() = cluster.requests["c0"].second;
  message.mutable_use()->add_queue_pairs()->set_use(v1::QUEUE_PAIR_USE_LIVE);
  v1::FiveTuple* const tuple = message.mutable_use()->mutable_queue_pairs(0)->mutable_tuple();
  tuple->set_source(cluster.requests["c0"].second.ends(0).source());
  tuple->set_destination(cluster.requests["c0"].second.ends(0).destination());
  tuple->set_source_port(50000);
  cluster.Say(0, message);
  EXPECT_EQ(cluster.answers_seen, 1);
  EXPECT_EQ(cluster.answers["c0"].epoch(), newest);
}

// A store that is behind (a disk that was full, a power cut): what connections say is right.
TEST(PathStateTest, AnOlderStateGivesWayToWhatIsInUse) {
  MemoryState store;
  StateRecords old;
  std::map<std::string, v1::PathAnswer> answers;
  std::map<std::string, std::pair<int, v1::PathRequest>> requests;
  Used before;
  {
    Cluster cluster(kSpec, {}, std::nullopt, &store);
    cluster.Run(500);
    for (int host = 0; host < cluster.fabric.hosts(); ++host) {
      cluster.Ask(host, (host + 4) % 8, "c" + std::to_string(host));
    }
    old = store.records;
    Settle(&cluster);
    answers = cluster.answers;
    requests = cluster.requests;
    before = PortsOf(cluster.handler);
  }
  Cluster next(kSpec, {}, std::nullopt, &store, /*join=*/false);
  ASSERT_TRUE(next.handler.Restore(old, next.now_ns).ok());
  next.answers = answers;
  next.requests = requests;
  for (int host = 0; host < next.fabric.hosts(); ++host) next.agents[host] = {};
  SayAgain(&next);
  next.Run(15000);
  EXPECT_EQ(PortsOf(next.handler).ports, before.ports);
}

TEST(PathStateTest, NothingIsSaidBeforeItIsWrittenDown) {
  MemoryState store;
  store.late = true;
  Cluster cluster(kSpec, {}, std::nullopt, &store);
  store.Flush();
  cluster.Ask(0, 4, "a");
  EXPECT_FALSE(cluster.answers.contains("a"));
  store.Flush();
  EXPECT_TRUE(cluster.answers.contains("a"));
  EXPECT_TRUE(store.records.contains("connection/a"));
  // And never, where it cannot be.
  store.broken = absl::UnavailableError("another master has the cluster");
  cluster.Ask(0, 4, "b");
  store.Flush();
  cluster.Ask(0, 4, "c");
  store.Flush();
  EXPECT_FALSE(cluster.answers.contains("b"));
  EXPECT_FALSE(cluster.answers.contains("c"));
  EXPECT_THAT(std::string(cluster.handler.keeping().message()), HasSubstr("another master"));
}

TEST(PathStateTest, WhatIsOverLeavesNoRecord) {
  MemoryState store;
  Cluster cluster(kSpec, {.expiry_ns = 1000 * kMs, .refresh_ns = 500 * kMs}, std::nullopt, &store);
  Settle(&cluster);
  const size_t writes = store.writes;
  cluster.Use("c0");
  EXPECT_EQ(store.writes, writes) << "what has not changed is not written again";
  for (int host = 0; host < cluster.fabric.hosts(); ++host) cluster.Close("c" + std::to_string(host));
  EXPECT_FALSE(store.records.contains("connection/c0"));
  const auto begins = [&](std::string_view keys) {
    return std::count_if(store.records.begin(), store.records.end(),
                         [&](const auto& record) { return record.first.starts_with(keys); });
  };
  EXPECT_EQ(begins(kConnectionKeys), 0);
  EXPECT_GT(begins(kPathsKeys), 0);
  EXPECT_EQ(begins(kLeafKeys), 4);
  EXPECT_EQ(begins(kHostKeys), 8);
}

// Hosts that have left for good are not handed on for ever.
TEST(PathStateTest, AHostThatNeverComesBackIsForgotten) {
  MemoryState store;
  { Cluster cluster(kSpec, {}, std::nullopt, &store); }
  ASSERT_TRUE(store.records.contains("host/host3"));
  Cluster next(kSpec, {.expiry_ns = 500 * kMs}, std::nullopt, &store, /*join=*/false);
  ASSERT_TRUE(next.handler.Restore(store.records, next.now_ns).ok());
  next.Join(0);
  next.Run(7000);
  EXPECT_FALSE(store.records.contains("host/host3"));
  EXPECT_TRUE(store.records.contains("host/host0"));
}

TEST(PathStateTest, EpochsRiseThoughTheClockGoesBack) {
  EXPECT_EQ(*NextEpoch({}, 1000), 1000u);
  stored::Master master;
  master.set_epoch(5000);
  const StateRecords records = {{"master", Seal("master", master)}};
  EXPECT_EQ(*NextEpoch(records, 1000), 5001u);
  EXPECT_EQ(*NextEpoch(records, 9000), 9000u);
}

TEST(PathStateTest, ARecordThatIsDamagedIsNotBelieved) {
  MemoryState store;
  {
    Cluster cluster(kSpec, {}, std::nullopt, &store);
    Settle(&cluster);
  }
  for (const auto& [key, record] : store.records) {
    for (const size_t at : {size_t{0}, record.size() / 2, record.size() - 1}) {
      StateRecords damaged = store.records;
      damaged[key][at] = static_cast<char>(damaged[key][at] ^ 4);
      Cluster next(kSpec, {}, std::nullopt, nullptr, /*join=*/false);
      absl::Status status = NextEpoch(damaged, 1).status();
      if (status.ok()) status = next.handler.Restore(damaged, next.now_ns);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << key << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("record " + key));
    }
    StateRecords swapped = store.records;  // a record under another's key
    swapped[key] = Seal("elsewhere", stored::Host());
    Cluster next(kSpec, {}, std::nullopt, nullptr, /*join=*/false);
    absl::Status status = NextEpoch(swapped, 1).status();
    if (status.ok()) status = next.handler.Restore(swapped, next.now_ns);
    EXPECT_FALSE(status.ok()) << key;
  }
}

class SqliteStateTest : public testing::Test {
 protected:
  std::string Path() const { return directory_.File("c4p.db"); }
  static void Put(StateStore* store, std::vector<StateChange> changes) {
    absl::Status told = absl::UnknownError("not told");
    store->Write(std::move(changes), [&](const absl::Status& status) { told = status; });
    EXPECT_TRUE(told.ok()) << told;
  }
  test::TemporaryDirectory directory_;
};

TEST_F(SqliteStateTest, WhatWasWrittenIsThereAgain) {
  const std::string binary("\0\1\xff value", 9);
  {
    auto store = SqliteState::Open(Path());
    ASSERT_TRUE(store.ok()) << store.status();
    Put(store->get(), {{"a", binary}, {"b", "2"}});
    Put(store->get(), {{"b", std::nullopt}, {"c", "3"}, {"a", binary + "x"}});
  }
  auto store = SqliteState::Open(Path());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(*(*store)->Load(), (StateRecords{{"a", binary + "x"}, {"c", "3"}}));
}

TEST_F(SqliteStateTest, AFileIsOneMasters) {
  auto first = SqliteState::Open(Path());
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = SqliteState::Open(Path());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("one file is one master"));
}

TEST_F(SqliteStateTest, ADamagedFileIsRefusedWithAWayOn) {
  {
    auto store = SqliteState::Open(Path());
    ASSERT_TRUE(store.ok()) << store.status();
    for (int i = 0; i < 200; ++i) Put(store->get(), {{"key" + std::to_string(i), std::string(300, 'x')}});
  }
  const auto size = static_cast<int64_t>(std::filesystem::file_size(Path()));
  ASSERT_GT(size, 40000);
  int refused = 0;
  for (const int64_t at : {int64_t{0}, int64_t{4096}, size / 2}) {
    const std::string copy = directory_.File("copy" + std::to_string(at) + ".db");
    std::filesystem::copy_file(Path(), copy);
    std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file << std::string(2048, '\x5a');
    file.close();
    absl::Status status;
    if (auto store = SqliteState::Open(copy); !store.ok()) {
      status = store.status();
    } else {
      status = (*store)->Load().status();
    }
    ASSERT_FALSE(status.ok()) << "at " << at;
    EXPECT_THAT(std::string(status.message()), HasSubstr(copy));
    EXPECT_THAT(std::string(status.message()), HasSubstr("start again")) << "at " << at;
    ++refused;
  }
  EXPECT_EQ(refused, 3);
}

}  // namespace
}  // namespace c4::c4p
