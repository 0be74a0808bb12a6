#include "service/printable.h"

#include <fstream>
#include <gtest/gtest.h>

#include "c4/v1/c4d.pb.h"
#include "service/directory.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::service {
namespace {

constexpr char kClearAndColour[] = "job\x1b[2J\x1b[31mred\a";

TEST(Printable, KeepsWhatPeopleWrite) {
  for (const char* const name : {"", "train-7 B", "J\xc3\xbcrgen", "\xe4\xbd\xa0\xe5\xa5\xbd",
                                 "\xf0\x9f\x98\x80", "\xc2\xa0\xc2\xb5", "\xe2\x80\xa6\xe2\x82\xac"}) {
    EXPECT_EQ(Printable(name), name);
  }
}

TEST(Printable, LetsNoTerminalObey) {
  EXPECT_EQ(Printable(kClearAndColour), "job?[2J?[31mred?");
  EXPECT_EQ(Printable("a\nb\tc\rd\x7f"), "a b c d?");
  EXPECT_EQ(Printable("x\xc2\x9b"
                      "2Jy\xc2\x85z"),
            "x?2Jy?z");  // C1: CSI and NEL
  EXPECT_EQ(Printable("\x9b"
                      "2J"),
            "?2J");  // the same as one byte
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "b\xe2\x81\xa6\xe2\x80\xa8"),
            "a?b??");  // direction and line
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a?b");
}

TEST(Printable, APageKeepsItsLines) {
  EXPECT_EQ(PrintablePage("a\n\tb\x1b]0;title\x07\n"), "a\n\tb?]0;title?\n");
}

TEST(Printable, EveryTextOfAMessage) {
  v1::ListVerdictsReply reply;
  reply.set_job(kClearAndColour);
  v1::Verdict* const verdict = reply.add_verdicts();
  verdict->mutable_culprit()->set_host("h\x1b[1m");
  verdict->mutable_culprit()->set_rank(7);
  MakePrintable(&reply);
  EXPECT_EQ(reply.job(), "job?[2J?[31mred?");
  EXPECT_EQ(reply.verdicts(0).culprit().host(), "h?[1m");
  EXPECT_EQ(reply.verdicts(0).culprit().rank(), 7);
}

TEST(Printable, AnEntryOfAMasterWithControlCharactersIsNone) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory.path() + "/x.json")
      << R"({"job":"x\u001b[2J","address":"127.0.0.1:1","epoch":1,"pid":1,"host":"x"})";
  std::vector<std::string> faults;
  const auto entries = MasterDirectory(directory.path()).List(&faults);
  ASSERT_TRUE(entries.ok());
  EXPECT_TRUE(entries->empty());
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace c4::service
