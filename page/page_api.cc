#include "page/page_api.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <pthread.h>
#include <span>

#include "absl/strings/str_split.h"
#include "page/matrix.h"
#include "page/page_json.h"
#include "page/whatif_page.h"
#include "service/text.h"

namespace c4::page {
namespace {

constexpr int64_t kMsNs = 1'000'000;
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kStaleNs = 2 * kSecondNs;
constexpr int kMostMatrixRanks = 8192;  // that one question may name
constexpr size_t kMostCached = 256;
constexpr size_t kMostCachedBytes = 64U << 20;  // a timeline has megabytes

std::string FromQuery(const service::HttpRequest& request, const std::string& name) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? std::string() : found->second;
}

absl::StatusOr<uint64_t> Number(const service::HttpRequest& request, const std::string& name) {
  const std::string text = FromQuery(request, name);
  uint64_t number = 0;
  if (text.empty()) return number;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  return absl::InvalidArgumentError(service::Concat(name, " is no whole number"));
}

template <typename Reply>
absl::StatusOr<std::string> Json(const absl::StatusOr<Reply>& reply) {
  return reply.ok() ? PageJson(*reply) : reply.status();
}

constexpr char kNoSuchJob[] = "there is no such job here (any more)";

}  // namespace

// One name of the API.
struct PageApi::Question {
  std::string_view name;
  int64_t fresh_ns;
  bool of_job;
  absl::StatusOr<std::string> (*ask)(FleetSource* source, const JobAt& job, int64_t unix_ns,
                                     const service::HttpRequest& request);
};

namespace {

using Request = service::HttpRequest;
using Asked = absl::StatusOr<std::string>;

Asked AskVerdicts(FleetSource* source, const JobAt& job, int64_t unix_ns, const Request& request) {
  const absl::StatusOr<v1::ListVerdictsReply> reply =
      source->Verdicts(job, FromQuery(request, "cleared") == "true");
  if (!reply.ok()) return reply.status();
  return PageJson(DescribeVerdicts(job.id, *reply, unix_ns, kMostVerdicts));
}

Asked AskStatus(FleetSource* source, const JobAt& job, int64_t, const Request&) {
  return Json(source->Status(job));
}

Asked AskIterations(FleetSource* source, const JobAt& job, int64_t, const Request& request) {
  const absl::StatusOr<uint64_t> from = Number(request, "from");
  if (!from.ok()) return from.status();
  return Json(source->Iterations(job, *from));
}

// "0-7,12": pairs of the first and the last.
absl::StatusOr<std::vector<std::pair<int32_t, int32_t>>> Ranks(std::string_view text) {
  std::vector<std::pair<int32_t, int32_t>> ranks;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const char* const end = part.data() + part.size();
    std::pair<int32_t, int32_t> range;
    std::from_chars_result read = std::from_chars(part.data(), end, range.first);
    range.second = range.first;
    if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, range.second);
    }
    if (read.ec != std::errc() || read.ptr != end || range.first < 0 || range.second < range.first) {
      return absl::InvalidArgumentError("ranks are numbers and ranges of them: 0-7,12");
    }
    ranks.push_back(range);
  }
  return ranks;
}

Asked AskMatrix(FleetSource* source, const JobAt& job, int64_t, const Request& request) {
  const absl::StatusOr<std::vector<std::pair<int32_t, int32_t>>> ranges = Ranks(FromQuery(request, "ranks"));
  if (!ranges.ok()) return ranges.status();
  v1::GetMatrixRequest asked;
  for (const auto& [first, last] : *ranges) {
    if (last - first >= kMostMatrixRanks - asked.ranks_size()) {
      return absl::InvalidArgumentError(
          service::Concat("a matrix is of ", kMostMatrixRanks, " ranks at most, or of all"));
    }
    for (int32_t rank = first; rank <= last; ++rank) asked.add_ranks(rank);
  }
  const absl::StatusOr<v1::GetMatrixReply> reply = source->Matrix(job, asked);
  if (!reply.ok()) return reply.status();
  return Json(PutTogether(*reply, FromQuery(request, "by")));
}

Asked AskCell(FleetSource* source, const JobAt& job, int64_t, const Request& request) {
  const absl::StatusOr<v1::GetMatrixReply> reply = source->Matrix(job, {});
  if (!reply.ok()) return reply.status();
  return Json(CellOf(*reply, FromQuery(request, "by"), FromQuery(request, "source"),
                     FromQuery(request, "destination")));
}

Asked AskAlerts(FleetSource* source, const JobAt& job, int64_t, const Request&) {
  return Json(source->Alerts(job));
}

Asked AskRecovery(FleetSource* source, const JobAt& job, int64_t, const Request&) {
  return Json(source->Recovery(job));
}

Asked AskSessions(FleetSource* source, const JobAt& job, int64_t, const Request&) {
  return Json(source->Sessions(job));
}

Asked AskSession(FleetSource* source, const JobAt& job, int64_t, const Request& request) {
  const absl::StatusOr<uint64_t> number = Number(request, "number");
  if (!number.ok()) return number.status();
  return Json(source->Session(job, *number));
}

Asked AskTimeline(FleetSource* source, const JobAt& job, int64_t, const Request& request) {
  const absl::StatusOr<uint64_t> from = Number(request, "from");
  if (!from.ok()) return from.status();
  const absl::StatusOr<uint64_t> to = Number(request, "to");
  if (!to.ok()) return to.status();
  absl::StatusOr<std::vector<std::pair<int32_t, int32_t>>> ranks = Ranks(FromQuery(request, "ranks"));
  if (!ranks.ok()) return ranks.status();
  if (*to != 0 && *from > *to) return absl::InvalidArgumentError("from is later than to");
  return Json(source->Timeline(job, {.from_unix_ns = static_cast<int64_t>(*from),
                                     .to_unix_ns = static_cast<int64_t>(*to),
                                     .ranks = *std::move(ranks)}));
}

// With `number` the report of a session, which its master keeps; without, the profile in a recording.
Asked AskWhatIf(FleetSource* source, const JobAt& job, int64_t, const Request& request) {
  const absl::StatusOr<uint64_t> number = Number(request, "number");
  if (!number.ok()) return number.status();
  const std::string text = FromQuery(request, "fix");
  const std::vector<std::string> fix = text.empty() ? std::vector<std::string>() : absl::StrSplit(text, ',');
  if (*number == 0) return Json(source->WhatIf(job, fix));
  if (!fix.empty()) {
    return absl::InvalidArgumentError("a session's report answers no further questions: leave out number");
  }
  const absl::StatusOr<v1::GetSessionReply> session = source->Session(job, *number);
  if (!session.ok()) return session.status();
  if (session->report_json().empty()) {
    return absl::NotFoundError("the report of this session is not kept any more, or there was none");
  }
  return Json(DescribeReport(session->session(), session->report_json()));
}

Asked AskPaths(FleetSource* source, const JobAt&, int64_t, const Request& request) {
  return Json(source->Paths(request.only_job.empty() ? FromQuery(request, "of") : request.only_job));
}

Asked AskHistory(FleetSource* source, const JobAt&, int64_t, const Request& request) {
  return Json(source->PathHistory(request.only_job.empty() ? FromQuery(request, "of") : request.only_job));
}

Asked AskTopology(FleetSource* source, const JobAt&, int64_t, const Request&) {
  return Json(source->Topology());
}

Asked AskExplain(FleetSource* source, const JobAt&, int64_t, const Request& request) {
  const absl::StatusOr<v1::ExplainReply> reply = source->Explain(FromQuery(request, "connection"));
  if (reply.ok() && !request.only_job.empty() && reply->connection().job() != request.only_job) {
    return absl::NotFoundError("there is no such connection");
  }
  return Json(reply);
}

}  // namespace

PageApi::PageApi(FleetSource* source, const service::Clock* clock, const std::vector<PageFile>* files)
    : PageApi(source, clock, files, Options{}) {}

PageApi::PageApi(FleetSource* source, const service::Clock* clock, const std::vector<PageFile>* files,
                 Options options)
    : source_(source),
      clock_(clock),
      files_(files),
      options_(options),
      rate_(options.rate),
      cache_([clock] { return clock->MonotonicNs(); }, kMostCached, kMostCachedBytes),
      fleet_(source) {}

PageApi::~PageApi() {
  Stop();
}

Moment PageApi::Now() const {
  return {.monotonic_ns = clock_->MonotonicNs(), .unix_ns = clock_->UnixNs()};
}

void PageApi::AddRoutes(service::HttpServer* server) {
  const auto file = [this](const service::HttpRequest& request) { return File(request); };
  server->Get("/", file);
  server->Get("/assets/([A-Za-z0-9._-]+)", file);
  server->Get("/api/v1/([a-z]+)", [this](const service::HttpRequest& request) { return Answer(request); });
}

service::HttpReply PageApi::Shown(const absl::StatusOr<std::string>& id) {
  if (!id.ok()) return PageRefusal(id.status());
  looked_ns_ = clock_->MonotonicNs();
  const std::lock_guard lock(refresh_mutex_);
  fleet_.Refresh(Now());
  refreshed_ns_ = clock_->MonotonicNs();
  service::HttpReply reply{.body = *id, .content_type = "text/plain; charset=utf-8"};
  reply.headers = PageHeaders();
  reply.headers.emplace_back("Cache-Control", "no-store");
  return reply;
}

void PageApi::TakeRecordings(service::HttpServer* server, TakeRecording take) {
  fleet_.TakeRecordings(kMostRecordingBytes);
  server->PostFile("/api/v1/recordings", kMostRecordingBytes,
                   [this, take = std::move(take)](const service::HttpRequest& request, std::string content) {
                     return Shown(take(FromQuery(request, "name"), content));
                   });
}

void PageApi::OpenPasts(service::HttpServer* server, OpenPast open) {
  server->Post("/api/v1/past", [this, open = std::move(open)](const service::HttpRequest& request) {
    Freshen(/*at_least_once=*/true);
    const absl::StatusOr<JobAt> job = JobOf(request);
    if (!job.ok()) return PageRefusal(job.status());
    return Shown(open(job->id));
  });
}

void PageApi::Start() {
  thread_ = std::thread([this] { KeepUp(); });
}

void PageApi::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void PageApi::KeepUp() {
  pthread_setname_np(pthread_self(), "c4-page");
  while (!stop_) {
    const int64_t looked_ns = looked_ns_;
    const bool watched = looked_ns != 0 && clock_->MonotonicNs() - looked_ns < options_.unwatched_after_ns;
    if (watched) {
      const std::lock_guard lock(refresh_mutex_);
      if (clock_->MonotonicNs() - refreshed_ns_ >= options_.refresh_ns) {
        fleet_.Refresh(Now());
        refreshed_ns_ = clock_->MonotonicNs();
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void PageApi::Freshen(bool at_least_once) {
  looked_ns_ = clock_->MonotonicNs();
  const std::lock_guard lock(refresh_mutex_);
  const bool never = refreshed_ns_ == 0;
  if (!never && (at_least_once || clock_->MonotonicNs() - refreshed_ns_ < kStaleNs)) return;
  fleet_.Refresh(Now());
  refreshed_ns_ = clock_->MonotonicNs();
}

absl::StatusOr<JobAt> PageApi::JobOf(const service::HttpRequest& request) const {
  JobAt job{.id = FromQuery(request, "job"), .unix_ns = 0};
  const std::shared_ptr<const v1::PageFleet> fleet = fleet_.Look().fleet;
  const auto& jobs = fleet->jobs();
  const auto found =
      std::find_if(jobs.begin(), jobs.end(), [&](const v1::PageJob& entry) { return entry.id() == job.id; });
  if (found == jobs.end() || (!request.only_job.empty() && found->job() != request.only_job)) {
    return absl::NotFoundError(kNoSuchJob);
  }
  const absl::StatusOr<uint64_t> at = Number(request, "at");
  if (!at.ok()) return at.status();
  job.unix_ns = static_cast<int64_t>(*at);
  return job;
}

absl::StatusOr<std::string> PageApi::FleetJson(const std::string& only_job) {
  const Fleet::View view = fleet_.Look();
  if (!only_job.empty()) return PageJson(Fleet::OfOneJob(*view.fleet, only_job));
  return PageJson(*view.fleet);
}

service::HttpReply PageApi::File(const service::HttpRequest& request) {
  if (!rate_.Admit(request.client, clock_->MonotonicNs())) {
    return PageRefusal(absl::ResourceExhaustedError("too many requests; try again in a second"));
  }
  return ServeFile(*files_, request);
}

// Streams look each tenth of a second whether there is news; the JSON of it is made once for all of them.
service::HttpReply PageApi::Events(const service::HttpRequest& request) {
  service::HttpReply reply;
  reply.content_type = "text/event-stream";
  reply.headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}};
  reply.body = "retry: 2000\n\n";
  const int64_t begun_ns = clock_->MonotonicNs();
  reply.stream = [this, begun_ns, only_job = request.only_job, told = uint64_t{0},
                  said_ns = int64_t{0}](std::string* more) mutable {
    const int64_t now_ns = clock_->MonotonicNs();
    looked_ns_ = now_ns;
    if (now_ns - begun_ns > options_.stream_life_ns) return false;
    const Fleet::View view = fleet_.Look();
    if (view.number != told) {
      std::string json;
      if (only_job.empty()) {
        const std::lock_guard lock(json_mutex_);
        if (json_of_ != view.number) {
          const absl::StatusOr<std::string> made = PageJson(*view.fleet);
          json_ = std::make_shared<const std::string>(made.ok() ? *made : "{}");
          json_of_ = view.number;
        }
        json = *json_;
      } else {
        const absl::StatusOr<std::string> made = PageJson(Fleet::OfOneJob(*view.fleet, only_job));
        json = made.ok() ? *made : "{}";
      }
      *more += service::Concat("event: fleet\nid: ", view.number, "\ndata: ", json, "\n\n");
      told = view.number;
      said_ns = now_ns;
    } else if (now_ns - said_ns > options_.beat_ns) {
      *more += service::Concat("event: beat\ndata: {\"unixNs\":\"", clock_->UnixNs(), "\"}\n\n");
      said_ns = now_ns;
    }
    return true;
  };
  return reply;
}

absl::StatusOr<std::string> PageApi::Ask(const Question& question, const service::HttpRequest& request) {
  JobAt job;
  if (question.of_job) {
    absl::StatusOr<JobAt> found = JobOf(request);
    if (!found.ok()) return found.status();
    job = *std::move(found);
  }
  std::string key = service::Concat(question.name, "\n", request.only_job);
  for (const auto& [name, value] : request.query) key += service::Concat("\n", name, "=", value);
  const absl::StatusOr<std::shared_ptr<const std::string>> reply = cache_.Get(
      key, question.fresh_ns, [&] { return question.ask(source_, job, clock_->UnixNs(), request); });
  if (!reply.ok()) return reply.status();
  return **reply;
}

service::HttpReply PageApi::Answer(const service::HttpRequest& request) {
  static constexpr Question kQuestions[] = {
      {"verdicts", 500 * kMsNs, true, AskVerdicts},    {"status", kSecondNs, true, AskStatus},
      {"iterations", kSecondNs, true, AskIterations},  {"matrix", 2 * kSecondNs, true, AskMatrix},
      {"cell", 2 * kSecondNs, true, AskCell},          {"alerts", 5 * kSecondNs, true, AskAlerts},
      {"recovery", 2 * kSecondNs, true, AskRecovery},  {"sessions", 5 * kSecondNs, true, AskSessions},
      {"session", 5 * kSecondNs, true, AskSession},    {"paths", 2 * kSecondNs, false, AskPaths},
      {"topology", 2 * kSecondNs, false, AskTopology}, {"explain", 2 * kSecondNs, false, AskExplain},
      {"timeline", 5 * kSecondNs, true, AskTimeline},  {"whatif", 5 * kSecondNs, true, AskWhatIf},
      {"history", 2 * kSecondNs, false, AskHistory},
  };
  if (!rate_.Admit(request.client, clock_->MonotonicNs())) {
    service::HttpReply reply =
        PageRefusal(absl::ResourceExhaustedError("too many requests; try again in a second"));
    reply.headers.emplace_back("Retry-After", "1");
    return reply;
  }
  const std::string name = request.parts.empty() ? std::string() : request.parts.front();
  Freshen(name != "fleet");
  if (name == "events") return Events(request);
  const auto* const question = std::find_if(std::begin(kQuestions), std::end(kQuestions),
                                            [&](const Question& entry) { return entry.name == name; });
  if (question == std::end(kQuestions) && name != "fleet") {
    return PageRefusal(absl::NotFoundError("the API has no such name (docs/page.md)"));
  }
  absl::StatusOr<std::string> json = name == "fleet" ? FleetJson(request.only_job) : Ask(*question, request);
  service::HttpReply reply =
      json.ok() ? service::HttpReply{.body = *std::move(json)} : PageRefusal(json.status());
  for (auto& header : PageHeaders()) reply.headers.push_back(std::move(header));
  reply.headers.emplace_back("Cache-Control", "no-store");
  Compress(request, &reply);
  return reply;
}

}  // namespace c4::page
