#include "c4d_master/page_source.h"

#include <utility>

#include "c4d_master/grpc_service.h"
#include "page/state_answer.h"
#include "service/address.h"
#include "service/printable.h"

namespace c4::c4d {
namespace {

using page::AskState;
using page::JobAt;

constexpr uint32_t kNotes = 200;
constexpr uint32_t kSessions = 100;

v1::PageJob PageJobOf(const std::string& job, uint64_t epoch) {
  v1::PageJob result;
  result.set_id(service::Printable(job));
  result.set_job(service::Printable(job));
  result.set_state(v1::PAGE_JOB_STATE_RUNNING);
  result.set_host(service::Printable(service::HostName()));
  result.set_master_epoch(epoch);
  result.set_began_unix_ns(static_cast<int64_t>(epoch));  // when the master began
  return result;
}

}  // namespace

JobPageSource::JobPageSource(std::string job, uint64_t epoch, Parts parts)
    : job_(PageJobOf(job, epoch)), parts_(parts) {}

std::vector<v1::PageJob> JobPageSource::Jobs(std::vector<std::string>*) {
  return {job_};
}

absl::StatusOr<v1::PageTimeline> JobPageSource::Timeline(const page::JobAt&, const page::TimelineWindow&) {
  return absl::FailedPreconditionError(
      "a job's master keeps no operations: `c4 page` shows the timeline of jobs of `c4 run` beside it, and "
      "of "
      "recordings (c4 record --fine)");
}

absl::Status JobPageSource::NotKnown() const {
  return absl::FailedPreconditionError(
      "this is the page of one job's master; the page of c4p_master, or `c4 page`, shows the network");
}

absl::StatusOr<v1::ListVerdictsReply> JobPageSource::Verdicts(const JobAt&, bool include_cleared) {
  return AskState(parts_.state_thread, [&] { return parts_.handler->ListVerdicts(include_cleared); });
}

absl::StatusOr<v1::GetStatusReply> JobPageSource::Status(const JobAt&) {
  return AskState(parts_.state_thread, [&] { return parts_.handler->GetStatus(ReadClock(*parts_.clock)); });
}

absl::StatusOr<v1::GetMatrixReply> JobPageSource::Matrix(const JobAt&, const v1::GetMatrixRequest& request) {
  return AskState(parts_.state_thread,
                  [&] { return parts_.handler->GetMatrix(ReadClock(*parts_.clock), request); });
}

absl::StatusOr<v1::GetIterationsReply> JobPageSource::Iterations(const JobAt&, uint64_t from) {
  return AskState(parts_.state_thread,
                  [&] { return parts_.handler->GetIterations(from, ReadClock(*parts_.clock)); });
}

absl::StatusOr<v1::ListAlertsReply> JobPageSource::Alerts(const JobAt&) {
  return AskState(parts_.state_thread, [&] { return parts_.alerts->List(true, ReadClock(*parts_.clock)); });
}

absl::StatusOr<v1::GetRecoveryReply> JobPageSource::Recovery(const JobAt&) {
  return AskState(parts_.state_thread, [&] { return parts_.recovery->Get(kNotes); });
}

absl::StatusOr<v1::ListSessionsReply> JobPageSource::Sessions(const JobAt&) {
  return AskState(parts_.state_thread, [&] { return parts_.smon->List(kSessions); });
}

absl::StatusOr<v1::GetSessionReply> JobPageSource::Session(const JobAt&, uint64_t number) {
  return AskState(parts_.state_thread, [&]() -> absl::StatusOr<v1::GetSessionReply> {
    absl::StatusOr<Smon::Found> found = parts_.smon->Find(number);
    if (!found.ok()) return found.status();
    v1::GetSessionReply reply;
    *reply.mutable_session() = std::move(found->session);
    reply.set_report_json(*found->report);
    reply.set_report_text(*found->text);
    return reply;
  });
}

}  // namespace c4::c4d
