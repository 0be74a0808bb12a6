// Communicators made of others: who belongs to which, what each rank is told, and failures of one rank.
#include <chrono>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ccl/api/split.h"
#include "ccl/include/nccl.h"
#include "tests/unit/ccl/api_fake_engine.h"

namespace c4 {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// As the ranks tell it to each other.
struct Wish {
  int colour;
  int key;
};
struct Invitation {
  uint32_t code;
  uint32_t reserved;
  uint64_t number;
  ncclUniqueId id;
  char text[112];
};

constexpr int kRanks = 4;

TEST(SplitParts, AreOrderedByKeyThenByRank) {
  const std::vector<api::SplitWish> wishes = {{1, 5}, {0, 0}, {1, -3}, {1, 5}, {-1, 0}, {0, -1}};
  EXPECT_THAT(api::PartOf(wishes, 0), ElementsAre(5, 1));
  EXPECT_THAT(api::PartOf(wishes, 1), ElementsAre(2, 0, 3));
  EXPECT_THAT(api::PartOf(wishes, 7), ElementsAre());
}

TEST(SplitParts, TogetherAreAllRanksOnce) {
  std::mt19937 random(7);
  printf("seed 7\n");
  for (int round = 0; round < 200; ++round) {
    std::vector<api::SplitWish> wishes(1 + random() % 20);
    for (auto& wish : wishes) wish = {static_cast<int>(random() % 4), static_cast<int>(random() % 3) - 1};
    std::vector<int> times(wishes.size());
    for (int colour = 0; colour < 4; ++colour) {
      const std::vector<int> part = api::PartOf(wishes, colour);
      for (size_t i = 0; i < part.size(); ++i) {
        ++times[static_cast<size_t>(part[i])];
        if (i == 0) continue;
        const auto before = wishes[static_cast<size_t>(part[i - 1])];
        const auto after = wishes[static_cast<size_t>(part[i])];
        EXPECT_TRUE(before.key < after.key || (before.key == after.key && part[i - 1] < part[i]));
      }
    }
    for (const int count : times) EXPECT_EQ(count, 1);
  }
}

class ApiSplit : public ::testing::Test {
 protected:
  void SetUp() override {
    fake::Reset();
    parent_ = fake::Join(kRanks, 1);
    fake::Reset();
  }
  void TearDown() override {
    fake::SetAnswers({});
    EXPECT_EQ(ncclCommDestroy(parent_), ncclSuccess);
  }

  // The other ranks: their wishes, and what rank `inviter` says of the new communicator.
  static void OthersTell(std::vector<Wish> wishes, int inviter, Invitation invitation = {}) {
    fake::Answers answers;
    answers.on_exchange = [wishes = std::move(wishes), inviter, invitation](const std::vector<int>& ranks,
                                                                            size_t bytes, char* all) {
      for (size_t i = 0; i < ranks.size(); ++i) {
        const auto rank = static_cast<size_t>(ranks[i]);
        if (ranks[i] == 1) continue;
        if (bytes == sizeof(Wish)) memcpy(all + i * bytes, &wishes[rank], bytes);
        if (bytes == sizeof(Invitation) && ranks[i] == inviter) memcpy(all + i * bytes, &invitation, bytes);
      }
      return Ok();
    };
    fake::SetAnswers(answers);
  }
  static Invitation Inviting(char mark, uint64_t number) {
    Invitation invitation{};
    invitation.number = number;
    invitation.id.internal[0] = mark;
    return invitation;
  }
  void ExpectSplitRefused(ncclResult_t code, ncclResult_t wanted, const char* sentence) {
    EXPECT_EQ(code, wanted) << sentence;
    EXPECT_THAT(ncclGetLastError(nullptr), StartsWith("ncclCommSplit: "));
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(sentence));
  }

  ncclComm_t parent_ = nullptr;
};

TEST_F(ApiSplit, TheFirstRankOfAPartInvites) {
  OthersTell({{7, 2}, {}, {7, 9}, {3, 0}}, -1);
  ncclComm_t child = nullptr;
  EXPECT_EQ(ncclCommSplit(parent_, 7, 1, &child, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(fake::Happened(), "exchange 1, exchange 1, join 0");
  const InitRequest request = fake::Joins()[0];
  EXPECT_EQ(request.rank_count, 3);
  EXPECT_EQ(request.rank, 0);
  EXPECT_EQ(request.id.internal[0], 'P');
  EXPECT_NE(request.parent_id, 0u);
  EXPECT_EQ(request.split_number, 0u);
  EXPECT_EQ(request.colour, 7);
  EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
}

TEST_F(ApiSplit, TheOthersAreInvited) {
  OthersTell({{7, -2}, {}, {7, 0}, {3, 0}}, 0, Inviting('i', 12));
  ncclComm_t child = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = "pipeline";
  config.splitShare = 1;
  EXPECT_EQ(ncclCommSplit(parent_, 7, 0, &child, &config), ncclSuccess) << ncclGetLastError(nullptr);
  const InitRequest request = fake::Joins()[0];
  EXPECT_EQ(request.rank_count, 3);
  EXPECT_EQ(request.rank, 1);
  EXPECT_EQ(request.id.internal[0], 'i');
  EXPECT_EQ(request.split_number, 12u);
  EXPECT_EQ(request.name, "pipeline");
  int count = 0;
  EXPECT_EQ(ncclCommCount(child, &count), ncclSuccess);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
}

TEST_F(ApiSplit, SplitsAreCounted) {
  OthersTell({{1, 1}, {}, {1, 1}, {1, 1}}, -1);
  ncclComm_t child = nullptr;
  for (uint64_t number = 0; number < 3; ++number) {
    EXPECT_EQ(ncclCommSplit(parent_, NCCL_SPLIT_NOCOLOR, 0, &child, nullptr), ncclSuccess);
    EXPECT_EQ(ncclCommSplit(parent_, 1, 0, &child, nullptr), ncclSuccess);
    EXPECT_EQ(fake::Joins().back().split_number, 2 * number + 1);
    EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  }
}

TEST_F(ApiSplit, WithoutAColourThereIsNoChild) {
  OthersTell({{0, 0}, {}, {0, 0}, {0, 0}}, 0, Inviting('i', 0));
  auto child = reinterpret_cast<ncclComm_t>(&parent_);
  EXPECT_EQ(ncclCommSplit(parent_, NCCL_SPLIT_NOCOLOR, 0, &child, nullptr), ncclSuccess);
  EXPECT_EQ(child, nullptr);
  EXPECT_EQ(fake::Happened(), "exchange 1, exchange 1") << "it takes part all the same";
}

TEST_F(ApiSplit, OneRankThatCannotInviteFailsAll) {
  Invitation bad{};
  bad.code = ncclSystemError;
  strcpy(bad.text, "no port is left");
  OthersTell({{7, 9}, {}, {7, 9}, {3, 0}}, 3, bad);
  ncclComm_t child = nullptr;
  ExpectSplitRefused(ncclCommSplit(parent_, 7, 0, &child, nullptr), ncclSystemError,
                     "rank 3 of the parent could not make the new communicator's id: no port is left");
  EXPECT_EQ(child, nullptr);
  EXPECT_EQ(fake::Happened(), "exchange 1, exchange 1, forget -1") << "nobody joins with our id";
  ExpectSplitRefused(ncclCommSplit(parent_, NCCL_SPLIT_NOCOLOR, 0, &child, nullptr), ncclSystemError,
                     "no port is left");

  // It tells the others before it fails itself.
  std::string told;
  fake::SetAnswers({.private_id = {ncclSystemError, "no thread is left"},
                    .on_exchange = [&told](const std::vector<int>&, size_t bytes, char* all) {
                      Invitation mine;
                      if (bytes != sizeof mine) return Ok();
                      memcpy(&mine, all + bytes, bytes);
                      told = mine.text;
                      return Ok();
                    }});
  ExpectSplitRefused(ncclCommSplit(parent_, 7, 0, &child, nullptr), ncclSystemError,
                     "rank 1 of the parent could not make the new communicator's id: no thread is left");
  EXPECT_EQ(told, "no thread is left");
}

TEST_F(ApiSplit, AFailedExchangeOrJoin) {
  fake::SetAnswers({.on_exchange = [](const std::vector<int>&, size_t, char*) {
    return Fail(ncclRemoteError, "rank 2 left");
  }});
  ncclComm_t child = nullptr;
  ExpectSplitRefused(ncclCommSplit(parent_, 0, 0, &child, nullptr), ncclRemoteError, "rank 2 left");
  EXPECT_EQ(child, nullptr);
  fake::SetAnswers({.join = {ncclRemoteError, "rank 0 did not join"}});
  ExpectSplitRefused(ncclCommSplit(parent_, 0, 0, &child, nullptr), ncclRemoteError, "rank 0 did not join");
  EXPECT_EQ(child, nullptr);
  // The parent is as it was.
  float data[4] = {};
  fake::SetAnswers({});
  EXPECT_EQ(ncclAllReduce(data, data, 4, ncclFloat, ncclSum, parent_, nullptr), ncclSuccess);
}

TEST_F(ApiSplit, ArgumentsAreChecked) {
  ncclComm_t child = nullptr;
  ExpectSplitRefused(ncclCommSplit(parent_, 0, 0, nullptr, nullptr), ncclInvalidArgument, "newcomm is NULL");
  ExpectSplitRefused(ncclCommSplit(nullptr, 0, 0, &child, nullptr), ncclInvalidArgument,
                     "the communicator is NULL");
  ExpectSplitRefused(ncclCommSplit(parent_, -2, 0, &child, nullptr), ncclInvalidArgument, "color = -2");
  ncclConfig_t config = {};
  ExpectSplitRefused(ncclCommSplit(parent_, 0, 0, &child, &config), ncclInvalidArgument,
                     "NCCL_CONFIG_INITIALIZER");
  fake::SetAnswers({.async = {ncclRemoteError, "rank 3 went away"}});
  ExpectSplitRefused(ncclCommSplit(parent_, 0, 0, &child, nullptr), ncclRemoteError, "rank 3 went away");
  fake::SetAnswers({});
  const ncclComm_t finalized = fake::Join();
  EXPECT_EQ(ncclCommFinalize(finalized), ncclSuccess);
  ExpectSplitRefused(ncclCommSplit(finalized, 0, 0, &child, nullptr), ncclInvalidArgument, "was finalized");
  EXPECT_EQ(ncclCommDestroy(finalized), ncclSuccess);
  EXPECT_THAT(fake::Happened(), testing::Not(HasSubstr("exchange")));
}

TEST_F(ApiSplit, AChildIsAsBlockingAsItsParentUnlessItSays) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t parent = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&parent, 1, ncclUniqueId{}, 0, &config), ncclInProgress);
  const auto await = [](ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
      std::this_thread::yield();
    }
    return state;
  };
  EXPECT_EQ(await(parent), ncclSuccess);
  ncclComm_t child = nullptr;
  EXPECT_EQ(ncclCommSplit(parent, 0, 0, &child, nullptr), ncclInProgress);
  ASSERT_NE(child, nullptr);
  EXPECT_EQ(await(child), ncclSuccess);
  EXPECT_EQ(await(parent), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(child), ncclInProgress);
  EXPECT_EQ(await(child), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  config.blocking = 1;
  EXPECT_EQ(ncclCommSplit(parent, 0, 0, &child, &config), ncclInProgress)
      << "the parent decides how it is called";
  EXPECT_EQ(await(child), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(child), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  EXPECT_EQ(await(parent), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(parent), ncclSuccess);
}

TEST_F(ApiSplit, SplitsInAGroupOfOneParentKeepTheirOrder) {
  // Long enough for splits at the same time to show.
  fake::SetAnswers({.on_exchange = [](const std::vector<int>& ranks, size_t bytes, char* all) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const Wish after_us{0, 1};
    for (size_t i = 0; bytes == sizeof(Wish) && i < ranks.size(); ++i) {
      if (ranks[i] != 1) memcpy(all + i * bytes, &after_us, bytes);
    }
    return Ok();
  }});
  ncclComm_t children[3] = {};
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  for (ncclComm_t& child : children) EXPECT_EQ(ncclCommSplit(parent_, 0, 0, &child, nullptr), ncclSuccess);
  EXPECT_EQ(fake::Happened(), "");
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  const std::string one = "exchange 1, exchange 1, join 0";
  EXPECT_EQ(fake::Happened(), one + ", " + one + ", " + one);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(fake::Joins()[i].split_number, i);
  for (const ncclComm_t child : children) EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
}

TEST_F(ApiSplit, ShrinkLeavesRanksOut) {
  OthersTell({{}, {}, {}, {}}, 0, Inviting('s', 5));
  int excluded[] = {2};
  ncclComm_t child = nullptr;
  EXPECT_EQ(ncclCommShrink(parent_, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclSuccess)
      << ncclGetLastError(nullptr);
  EXPECT_EQ(fake::Happened(), "exchange 1, join 1");
  InitRequest request = fake::Joins()[0];
  EXPECT_EQ(request.rank_count, 3);
  EXPECT_EQ(request.rank, 1);
  EXPECT_EQ(request.id.internal[0], 's');
  EXPECT_EQ(request.split_number, 5u);
  EXPECT_LT(request.colour, NCCL_SPLIT_NOCOLOR);
  EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);

  // Without rank 0 this rank invites.
  fake::Reset();
  int two[] = {3, 0};
  EXPECT_EQ(ncclCommShrink(parent_, two, 2, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclSuccess);
  EXPECT_EQ(fake::Joins()[0].rank, 0);
  EXPECT_EQ(fake::Joins()[0].rank_count, 2);
  EXPECT_EQ(fake::Joins()[0].id.internal[0], 'P');
  EXPECT_NE(fake::Joins()[0].colour, request.colour) << "parts of one parent have ids of their own";
  EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
}

TEST_F(ApiSplit, ShrinkWithAbortWorksOnAFailedParent) {
  int excluded[] = {0};
  ncclComm_t child = nullptr;
  fake::SetAnswers({.async = {ncclRemoteError, "rank 0 went away"}});
  EXPECT_EQ(ncclCommShrink(parent_, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclRemoteError);
  EXPECT_EQ(ncclCommShrink(parent_, excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT), ncclSuccess)
      << ncclGetLastError(nullptr);
  EXPECT_EQ(fake::Happened(), "revoke 1, exchange 1, join 0");
  EXPECT_EQ(ncclCommAbort(child), ncclSuccess);
  float data[4] = {};
  EXPECT_EQ(ncclAllReduce(data, data, 4, ncclFloat, ncclSum, parent_, nullptr), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(parent_), HasSubstr("was revoked"));
}

TEST_F(ApiSplit, ShrinkChecksItsArguments) {
  ncclComm_t child = nullptr;
  const auto refuse = [&](std::vector<int> list, int count, int flags, const char* sentence) {
    EXPECT_EQ(ncclCommShrink(parent_, list.data(), count, &child, nullptr, flags), ncclInvalidArgument)
        << sentence;
    EXPECT_THAT(ncclGetLastError(nullptr), StartsWith("ncclCommShrink: "));
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(sentence));
    EXPECT_EQ(child, nullptr);
  };
  refuse({4}, 1, 0, "excludeRanksList[0] = 4 is not a rank");
  refuse({0, -1}, 2, 0, "excludeRanksList[1] = -1 is not a rank");
  refuse({2, 2}, 2, 0, "names rank 2 twice");
  refuse({1}, 1, 0, "names the calling rank 1");
  refuse({}, 1, 0, "excludeRanksList is NULL");
  refuse({}, -1, 0, "excludeRanksCount = -1");
  refuse({0}, 1, 2, "shrinkFlags = 2");
  EXPECT_EQ(ncclCommShrink(parent_, nullptr, 0, nullptr, nullptr, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommShrink(nullptr, nullptr, 0, &child, nullptr, 0), ncclInvalidArgument);
  EXPECT_EQ(fake::Happened(), "");
}

}  // namespace
}  // namespace c4
