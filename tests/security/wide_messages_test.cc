// Messages that are small on the wire and large in memory, and more streams than one may have: at both
// masters.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sstream>

#include "c4/v1/c4d.pb.h"
#include "c4/v1/c4p.grpc.pb.h"
#include "service/address.h"
#include "service/channel.h"
#include "service/limits.h"
#include "tests/security/attack.h"

namespace c4::service_test {
namespace {

using service::Role;
using testing::HasSubstr;

constexpr size_t kWireBytes = 12 << 20;  // below what a message may have

// `piece` again and again.
std::string Many(const std::string& piece) {
  std::string bytes;
  bytes.reserve(kWireBytes);
  while (bytes.size() + piece.size() <= kWireBytes) bytes += piece;
  return bytes;
}

// One message of these bytes, as whoever `authorization` says, and how the call ends.
grpc::Status Send(const std::shared_ptr<grpc::Channel>& channel, const std::string& call,
                  const std::string& authorization, const std::string& bytes) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  if (!authorization.empty()) context.AddMetadata("authorization", authorization);
  grpc::CompletionQueue queue;
  const auto stream = stub.PrepareCall(&context, "/" + call, &queue);
  void* tag = nullptr;
  bool ok = false;
  const auto next = [&] { return queue.Next(&tag, &ok); };
  stream->StartCall(nullptr);
  next();
  const grpc::Slice slice(bytes);
  stream->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  next();
  grpc::ByteBuffer reply;
  stream->Read(&reply, nullptr);
  next();
  if (ok) context.TryCancel();
  grpc::Status status;
  stream->Finish(&status, nullptr);
  next();
  return status;
}

// Fields that no message of ours has, each an empty group: two bytes that become a set of fields.
const std::string kEmptyGroups = Many("\x7b\x7c");

TEST(WideMessages, CostTheMasterTheirBytesOnly) {
  C4_ATTACK("oversize: a batch of millions of empty processes, by an agent");
  C4_ATTACK("oversize: millions of empty groups at a call, without a token");
  AttackedJob attacked;
  const auto channel = service::MakeChannel(attacked.address(), {});
  const std::string agent =
      BearerOf(attacked.Key(), {.role = Role::kAgent, .host = service::HostName(), .job = attacked.name()});
  v1::TelemetryBatch one;
  one.add_processes();
  const std::string processes = Many(one.SerializeAsString());
  attacked.StoppedRankIsNamedDuring([&] {
    EXPECT_EQ(Send(channel, "c4.v1.C4d/StreamTelemetry", agent, processes).error_code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_FALSE(Send(channel, "c4.v1.C4d/SetLevel", "", kEmptyGroups).ok());
    EXPECT_EQ(Send(channel, "c4.v1.C4d/ListVerdicts", agent, kEmptyGroups).error_code(),
              grpc::StatusCode::PERMISSION_DENIED);
  });
  EXPECT_LT(PeakKib(attacked.job().DaemonPid("c4d_master")), kDaemonKib);
  EXPECT_THAT(attacked.Log("c4d_master"), HasSubstr("MiB of memory"));
}

class PathMaster : public testing::Test {
 protected:
  void SetUp() override {
    const std::string key_file = scratch_.path() + "/cluster.key";
    ASSERT_EQ(RunC4({"pki", "key", key_file}).exit_code, 0);
    std::stringstream text;
    text << std::ifstream(key_file).rdbuf();
    const auto keys = service::ParseKeys(text.str(), key_file);
    ASSERT_TRUE(keys.ok());
    master_ = std::make_unique<Process>(
        std::vector<std::string>{Binary("c4p_master"), "--listen", "127.0.0.1:0", "--http-address",
                                 "127.0.0.1:0", "--directory", scratch_.path() + "/masters", "--key-file",
                                 key_file},
        std::vector<std::string>{}, scratch_.path() + "/c4p");
    const std::string entry = scratch_.path() + "/masters/c4p.json";
    ASSERT_TRUE(Eventually(Seconds(10), [&] { return std::filesystem::exists(entry); })) << master_->Errors();
    channel_ = service::MakeChannel(Json::parse(std::ifstream(entry))["address"], {});
    agent_ = BearerOf(keys->front(), {.role = Role::kAgent, .host = "node7"});
  }

  ScratchDir scratch_;
  std::unique_ptr<Process> master_;
  std::shared_ptr<grpc::Channel> channel_;
  std::string agent_;
};

TEST_F(PathMaster, WideMessagesCostTheirBytesOnly) {
  C4_ATTACK("oversize: millions of empty parts in a message of an agent to the path master");
  v1::AgentToC4p message;
  message.mutable_lease()->add_connections();
  const std::string empty_connection = message.lease().SerializeAsString();
  message.mutable_lease()->ParseFromString(Many(empty_connection));
  const std::string wide = message.SerializeAsString();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Send(channel_, "c4.v1.C4p/Session", agent_, wide).error_code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_FALSE(Send(channel_, "c4.v1.C4p/ListPaths", "", kEmptyGroups).ok());
  }
  EXPECT_LT(PeakKib(master_->pid()), kDaemonKib);
}

TEST_F(PathMaster, AHostHasSoManySessionsAndNoMore) {
  C4_ATTACK("flood: sessions of one host's agents at the path master");
  const auto stub = v1::C4p::NewStub(channel_);
  struct Session {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::AgentToC4p, v1::C4pToAgent>> stream;
  };
  std::vector<std::unique_ptr<Session>> open;
  const auto begin = [&] {
    open.push_back(std::make_unique<Session>());
    open.back()->context.AddMetadata("authorization", agent_);
    open.back()->stream = stub->Session(&open.back()->context);
    v1::AgentToC4p message;
    message.set_sequence(2);  // which is refused, so that there is an answer
    open.back()->stream->Write(message);
    v1::C4pToAgent answer;
    return open.back()->stream->Read(&answer);
  };
  for (size_t i = 0; i < service::limits::kSessionsPerHost; ++i) EXPECT_TRUE(begin()) << i;
  EXPECT_FALSE(begin());
  EXPECT_EQ(open.back()->stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  // Whoever ends one may have another.
  open.front()->context.TryCancel();
  EXPECT_TRUE(Eventually(Seconds(5), begin));
  for (const auto& session : open) session->context.TryCancel();
}

}  // namespace
}  // namespace c4::service_test
