// Calls by those who are not who they would have to be: each attempt against each call that it is aimed at.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "c4/v1/c4d.grpc.pb.h"
#include "service/address.h"
#include "service/audit.h"
#include "service/authorize.h"
#include "service/channel.h"
#include "tests/security/attack.h"

namespace c4::service_test {
namespace {

using service::Identity;
using service::Role;
using testing::HasSubstr;

// Telemetry that would stop the verdicts if it were believed: the ranks as of a later incarnation, all well.
v1::TelemetryBatch ForgedBatch(const std::string& job) {
  v1::TelemetryBatch batch;
  batch.set_host(service::HostName());
  batch.set_agent_epoch(99);
  batch.set_sequence(1);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    v1::ProcessReport* const process = batch.add_processes();
    process->set_job(job);
    process->set_incarnation(99);
  }
  return batch;
}

class ForgedCallsTest : public testing::Test {
 protected:
  // One call of that name with an empty request, as whoever `authorization` says.
  grpc::Status Call(const std::string& call, const std::string& authorization) const {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    // A stream that is let in says nothing for now: it ends here.
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
    if (!authorization.empty()) context.AddMetadata("authorization", authorization);
    grpc::CompletionQueue queue;
    const auto stream = stub.PrepareCall(&context, "/" + call, &queue);
    void* tag = nullptr;
    bool ok = false;
    const auto next = [&] { return queue.Next(&tag, &ok); };
    stream->StartCall(nullptr);
    next();
    const grpc::ByteBuffer empty(nullptr, 0);
    grpc::Status status;
    stream->WriteLast(empty, grpc::WriteOptions(), nullptr);
    next();
    grpc::ByteBuffer reply;
    stream->Read(&reply, nullptr);
    next();
    if (ok) context.TryCancel();  // it was let in: a stream would go on
    stream->Finish(&status, nullptr);
    next();
    return status;
  }

  grpc::Status Stream(const std::string& authorization) const {
    const auto stub = v1::C4d::NewStub(channel_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    if (!authorization.empty()) context.AddMetadata("authorization", authorization);
    const auto stream = stub->StreamTelemetry(&context);
    stream->Write(ForgedBatch(attacked_.name()));
    stream->WritesDone();
    v1::TelemetryReply reply;
    while (stream->Read(&reply)) continue;
    return stream->Finish();
  }

  AttackedJob attacked_;
  const std::shared_ptr<grpc::Channel> channel_ = service::MakeChannel(attacked_.address(), {});
};

struct Attempt {
  std::string what;
  std::string authorization;
  grpc::StatusCode refusal;
};

// Everybody who is nobody: no call at all is for them.
std::vector<Attempt> Nobodies(const service::TokenKey& key, const std::string& job) {
  const Identity op = {.role = Role::kOperator, .job = job, .name = "mallory"};
  const std::string good = BearerOf(key, op);
  std::string altered = good;
  altered[altered.find('.') + 5] ^= 1;
  service::TokenKey named = NewKey();
  named.id = key.id;
  const auto code = grpc::StatusCode::UNAUTHENTICATED;
  return {{Attack("stolen token: a shared secret of an earlier version"), "Bearer s3cret", code},
          {Attack("forged token: no scheme"), good.substr(7), code},
          {Attack("forged token: another scheme"), "Basic " + good.substr(7), code},
          {Attack("forged token: signed by another key"), BearerOf(NewKey(), op), code},
          {Attack("forged token: another key under the real one's name"), BearerOf(named, op), code},
          {Attack("stolen token: after its end"), BearerOf(key, op, -900, -60), code},
          {Attack("stolen token: before its time"), BearerOf(key, op, 120, 900), code},
          {Attack("forged token: one character altered"), altered, code},
          {Attack("forged token: signature cut short"), good.substr(0, good.size() - 8), code},
          {Attack("forged token: no signature"), good.substr(0, good.rfind('.')), code},
          {Attack("forged token: two in one header"), good + "," + good, code},
          {Attack("oversize: a token of 6,000 characters"), "Bearer c4t1." + std::string(6000, 'A') + ".AAAA",
           code},
          {Attack("stolen token: an operator's of another job"),
           BearerOf(key, {.role = Role::kOperator, .job = "another"}), grpc::StatusCode::PERMISSION_DENIED}};
}

bool IsOfTheMaster(std::string_view call) {
  for (const char* const of : {"c4.v1.C4d/", "c4.v1.Smon/", "c4.v1.Alerts/", "c4.v1.Recovery/"}) {
    if (call.starts_with(of)) return true;
  }
  return false;
}

TEST_F(ForgedCallsTest, NobodyGetsIn) {
  for (const Attempt& attempt : Nobodies(attacked_.Key(), attacked_.name())) {
    for (const service::CallRow& row : service::CallTable()) {
      if (!IsOfTheMaster(row.call)) continue;
      const grpc::Status status = Call(std::string(row.call), attempt.authorization);
      EXPECT_EQ(status.error_code(), attempt.refusal)
          << attempt.what << " at " << row.call << ": " << status.error_message();
    }
  }
  EXPECT_THAT(attacked_.Log("c4d_master"), HasSubstr("is refused"));
}

// Every role at every call of the running master: in where the table says so, out everywhere else.
TEST_F(ForgedCallsTest, NoRoleDoesWhatIsAnothers) {
  const service::TokenKey key = attacked_.Key();
  Attack("role confusion: each role at each gRPC call of the others");
  Attack("role confusion: the master's own user without a token at what is not for readers");
  int refused = 0;
  for (const service::CallRow& row : service::CallTable()) {
    if (!IsOfTheMaster(row.call)) continue;
    for (const Role role : service::kAllRoles) {
      const grpc::Status status =
          Call(std::string(row.call), BearerOf(key, {.role = role, .job = attacked_.name()}));
      const bool allowed = (row.roles & service::Only(role)) != 0;
      EXPECT_EQ(status.error_code() != grpc::StatusCode::PERMISSION_DENIED, allowed)
          << service::RoleWord(role) << " at " << row.call << ": " << status.error_message();
      if (!allowed) ++refused;
    }
    // Without a token the master's own user on its machine reads, and no more.
    const grpc::Status own = Call(std::string(row.call), "");
    const bool reads = (row.roles & service::Only(Role::kReader)) != 0;
    EXPECT_EQ(own.error_code() != grpc::StatusCode::PERMISSION_DENIED, reads) << row.call;
  }
  EXPECT_GE(refused, 30);
  // What was tried and done is in the audit, unbroken.
  EXPECT_THAT(attacked_.Audit(), HasSubstr("c4.v1.Alerts/AddSilence"));
  EXPECT_THAT(attacked_.Audit(), HasSubstr("\"allowed\":false"));
  EXPECT_TRUE(service::VerifyAudit(attacked_.AuditFile()).ok());
}

TEST_F(ForgedCallsTest, ForgedTelemetryBlindsNobody) {
  const service::TokenKey key = attacked_.Key();
  const std::string another_host =
      BearerOf(key, {.role = Role::kAgent, .host = "node7", .job = attacked_.name()});
  Attack("forged agent: telemetry without a token");
  Attack("forged agent: telemetry under the token of another host");
  Attack("forged agent: telemetry under tokens of the other roles");
  Attack("forged agent: telemetry under forged and stale tokens, with incarnation 99");
  std::vector<std::string> forgeries = {"", another_host};
  for (const Role role : service::kAllRoles) {
    if (role != Role::kAgent) forgeries.push_back(BearerOf(key, {.role = role, .job = attacked_.name()}));
  }
  for (const Attempt& attempt : Nobodies(key, attacked_.name())) forgeries.push_back(attempt.authorization);
  for (const std::string& forgery : forgeries) EXPECT_FALSE(Stream(forgery).ok()) << forgery;
  size_t at = 0;
  attacked_.StoppedRankIsNamedDuring([&] { EXPECT_FALSE(Stream(forgeries[at++ % forgeries.size()]).ok()); });
  EXPECT_THAT(attacked_.Log("c4d_master"), HasSubstr("telemetry of host"));
}

// The alert and the level belong to the operator, whatever is tried while a rank stands still.
TEST_F(ForgedCallsTest, NobodySilencesAStop) {
  const service::TokenKey key = attacked_.Key();
  const std::string reader = BearerOf(key, {.role = Role::kReader, .job = attacked_.name()});
  const std::string agent = BearerOf(key, {.role = Role::kAgent, .job = attacked_.name()});
  Attack("alert abuse: silence without the operator's role");
  Attack("alert abuse: a test alert without the operator's role");
  Attack("alert abuse: a profiling session without the operator's role");
  Attack("alert abuse: the level of recording without the operator's role");
  Attack("alert abuse: all telemetry asked for without the operator's role");
  attacked_.StoppedRankIsNamedDuring([&] {
    for (const std::string& who : {std::string(), reader, agent, std::string("Bearer s3cret")}) {
      for (const char* call : {"c4.v1.Alerts/AddSilence", "c4.v1.Alerts/Test", "c4.v1.Smon/RunSession",
                               "c4.v1.C4d/SetLevel", "c4.v1.C4d/Record"}) {
        EXPECT_THAT(Call(call, who).error_code(),
                    testing::AnyOf(grpc::StatusCode::PERMISSION_DENIED, grpc::StatusCode::UNAUTHENTICATED));
      }
    }
  });
}

}  // namespace
}  // namespace c4::service_test
