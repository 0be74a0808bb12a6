// Messages of each version from files: what an agent or a master of that version wrote is read today, each
// field with the value that it had. The files' contents stand as text beside them.
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include "c4/v1/alerts.pb.h"
#include "c4/v1/c4d.pb.h"
#include "c4/v1/recovery.pb.h"
#include "c4/v1/smon.pb.h"
#include "c4/v1/telemetry.pb.h"
#include "tests/unit/wire/golden.h"

namespace c4 {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Fields in the file that today's messages do not have: removed, or given another number.
void ExpectNothingUnknown(const Message& message) {
  const Reflection* reflection = message.GetReflection();
  EXPECT_TRUE(reflection->GetUnknownFields(message).empty()) << "in a " << message.GetTypeName();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      ExpectNothingUnknown(reflection->GetMessage(message, field));
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      ExpectNothingUnknown(reflection->GetRepeatedMessage(message, field, i));
    }
  }
}

template <typename T>
void ExpectGolden(const std::string& stem) {
  T expected;
  const std::string text = wire::Golden(stem + ".txtpb", "");
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &expected))
      << "a field or a number of " << stem << ".txtpb is no longer known";
  T found;
  ASSERT_TRUE(found.ParseFromString(wire::Golden(stem + ".bin", expected.SerializeAsString())));
  ExpectNothingUnknown(found);
  std::string difference;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&difference);
  EXPECT_TRUE(differencer.Compare(expected, found)) << difference;
}

TEST(ProtoGolden, TelemetryOf1) {
  ExpectGolden<v1::TelemetryBatch>("telemetry-1");
}

TEST(ProtoGolden, TelemetryOf2) {
  ExpectGolden<v1::TelemetryBatch>("telemetry-2");
}

// 6 holds what has changed since another batch.
TEST(ProtoGolden, TelemetryOf6) {
  ExpectGolden<v1::TelemetryBatch>("telemetry-6");
}

TEST(ProtoGolden, TelemetryOf3) {
  ExpectGolden<v1::TelemetryBatch>("telemetry-3");
}

TEST(ProtoGolden, TelemetryOf4) {
  ExpectGolden<v1::TelemetryBatch>("telemetry-4");
}

TEST(ProtoGolden, TelemetryOf5) {
  ExpectGolden<v1::TelemetryBatch>("telemetry-5");
}

TEST(ProtoGolden, VerdictOf1) {
  ExpectGolden<v1::Verdict>("verdict-1");
}

TEST(ProtoGolden, VerdictOf2) {
  ExpectGolden<v1::Verdict>("verdict-2");
}

TEST(ProtoGolden, VerdictOf3) {
  ExpectGolden<v1::Verdict>("verdict-3");
}

TEST(ProtoGolden, VerdictOf4) {
  ExpectGolden<v1::Verdict>("verdict-4");
}

// 7 holds iterations; a verdict of 5 is about a fail-slow.
TEST(ProtoGolden, TelemetryOf7) {
  ExpectGolden<v1::TelemetryBatch>("telemetry-7");
}

// 8 holds queue pairs that the tap watches.
TEST(ProtoGolden, TelemetryOf8) {
  ExpectGolden<v1::TelemetryBatch>("telemetry-8");
}

TEST(ProtoGolden, VerdictOf5) {
  ExpectGolden<v1::Verdict>("verdict-5");
}

TEST(ProtoGolden, SessionAndAlertOf1) {
  ExpectGolden<v1::ProfilingSession>("session-1");
  ExpectGolden<v1::Alert>("alert-1");
}

// With the numbers of 50 and above.
TEST(ProtoGolden, AlertOf2) {
  ExpectGolden<v1::Alert>("alert-2");
}

// A later agent's batch has fields that this master does not know: the rest of it is read all the same.
TEST(ProtoGolden, FieldsOfALaterVersionAreSkipped) {
  std::string bytes = wire::Golden("telemetry-1.bin", "");
  v1::TelemetryBatch before;
  ASSERT_TRUE(before.ParseFromString(bytes));
  before.GetReflection()->MutableUnknownFields(&before)->AddVarint(1999, 5);
  v1::TelemetryBatch after;
  ASSERT_TRUE(after.ParseFromString(before.SerializeAsString()));
  EXPECT_EQ(after.processes_size(), 2);
  EXPECT_EQ(after.processes(0).communicators(0).finished().count(), 14u);
}

// docs/formats/proto.md names every message and every call.
TEST(ProtoPage, NamesAllMessagesAndCalls) {
  const std::string page = wire::ReadSource("docs/formats/proto.md");
  for (const auto* file : {v1::TelemetryBatch::descriptor()->file(), v1::Verdict::descriptor()->file(),
                           v1::ProfilingSession::descriptor()->file(), v1::Alert::descriptor()->file(),
                           v1::RecoveryState::descriptor()->file()}) {
    for (int i = 0; i < file->message_type_count(); ++i) {
      EXPECT_NE(page.find("`" + file->message_type(i)->name() + "`"), std::string::npos)
          << file->message_type(i)->name();
    }
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) {
        const std::string call = file->service(i)->name() + "." + file->service(i)->method(j)->name();
        EXPECT_NE(page.find("`" + call + "`"), std::string::npos) << call;
      }
    }
  }
}

}  // namespace
}  // namespace c4
