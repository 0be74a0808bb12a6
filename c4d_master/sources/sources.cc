#include "c4d_master/sources/sources.h"

#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "c4d_master/sources/ras_client.h"
#include "c4d_master/sources/ras_status.h"
#include "service/clock.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr size_t kMostSources = 64;
constexpr absl::Duration kInterval = absl::Seconds(1);

Now ReadNow() {
  const service::Clock& clock = service::SystemClock();
  return {clock.MonotonicNs(), clock.UnixNs()};
}

}  // namespace

absl::StatusOr<SourceOptions> ParseSources(const std::string& text) {
  SourceOptions options;
  if (text.empty()) return options;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
    if (parts.first == "dumps" || parts.first == "inspector") {
      std::string& folder = parts.first == "dumps" ? options.dumps : options.inspector;
      if (parts.second.empty()) {
        return absl::InvalidArgumentError(
            Concat(parts.first, "= names no folder; give the one that the job's ranks write to, as ",
                   parts.first, "=/shared/llm, or what the files' paths begin with, as ",
                   parts.first == "dumps" ? "dumps=/tmp/nccl_trace_rank_*" : "inspector=/tmp/logs/node1-*"));
      }
      if (!folder.empty()) {
        return absl::InvalidArgumentError(Concat("there are two folders of ", parts.first,
                                                 "; give the one that all of the job's ranks write to"));
      }
      folder = parts.second;
      continue;
    }
    if (parts.first != "ras") {
      return absl::InvalidArgumentError(
          Concat("\"", service::ToUtf8(word),
                 "\" is no source; give ras=HOST:PORT, dumps=FOLDER or inspector=FOLDER, several by commas"));
    }
    const absl::StatusOr<service::HostPort> address = service::ParseHostPort(parts.second);
    if (!address.ok() || address->port == 0) {
      return absl::InvalidArgumentError(Concat(
          "\"", service::ToUtf8(word), "\" names no port; give ras=HOST:PORT, as ras=localhost:28028"));
    }
    options.ras.push_back(*address);
  }
  if (options.ras.size() > kMostSources) {
    return absl::InvalidArgumentError(Concat("there are ", options.ras.size(), " sources; ", kMostSources,
                                             " are allowed, and one of a job is enough"));
  }
  return options;
}

std::string SourceNote(const SourceOptions& options) {
  std::vector<std::string> notes;
  if (!options.ras.empty()) {
    notes.emplace_back(
        "NCCL's RAS tells of this job: how many collectives each rank has launched, and which processes are "
        "dead");
  }
  if (!options.dumps.empty()) {
    notes.emplace_back(
        "Flight Recorder dumps tell of this job: what each rank had called and finished at the moment when "
        "it was dumped");
  }
  if (!options.inspector.empty()) {
    notes.emplace_back(
        "NCCL's Inspector tells of this job: how long the collectives that have finished took on each rank, "
        "and nothing of those that have not, or of sends and receives: who waits for one seems to be late");
  }
  if (notes.empty()) return "";
  return Concat(absl::StrJoin(notes, ". "), ". ", notes.size() == 1 ? "That does" : "These do",
                " not show what kernels, processes or the network do; C4's agents and library do");
}

RasSource::RasSource(const SourceOptions& options, const std::string& job, uint64_t epoch,
                     OnBatches on_batches)
    : addresses_(options.ras), on_batches_(std::move(on_batches)), telemetry_(job, epoch) {
  thread_ = std::make_unique<service::StateThread>("c4d-ras", kInterval, [this] { Look(); });
}

RasSource::~RasSource() {
  Stop();
}

void RasSource::Stop() {
  stopping_ = true;
  thread_->Stop();
}

void RasSource::Look() {
  if (stopping_) return;
  std::string why;
  for (size_t i = 0; i < addresses_.size(); ++i) {
    const service::HostPort& address = addresses_[(next_ + i) % addresses_.size()];
    const absl::StatusOr<std::string> reply =
        AskRas(address, RasRequest(kLegSeconds), kTimeout, [this] { return stopping_.load(); });
    if (stopping_) return;
    const absl::StatusOr<RasStatus> status =
        reply.ok() ? ParseRasReply(*reply) : absl::StatusOr<RasStatus>(reply.status());
    if (!status.ok()) {
      why += Concat(why.empty() ? "" : "; ", status.status().message());
      continue;
    }
    next_ = (next_ + i) % addresses_.size();
    if (!silent_.empty()) service::LogInfo("RAS answers again");
    silent_.clear();
    const Now now = ReadNow();
    on_batches_(telemetry_.Take(*status, now), now);
    return;
  }
  if (silent_ != why) {
    service::LogWarning("no source tells of the job, which is not judged by it until one does: ", why);
  }
  silent_ = why;
}

Sources::Sources(const SourceOptions& options, const std::string& job, uint64_t epoch, C4dHandler* handler,
                 service::StateThread* state_thread)
    : handler_(handler),
      state_thread_(state_thread),
      has_ras_(!options.ras.empty()),
      inspector_telemetry_(std::make_shared<InspectorTelemetry>(job, epoch)) {
  if (!options.inspector.empty()) {
    inspector_folder_.emplace(options.inspector);
    inspector_ =
        std::make_unique<service::StateThread>("c4d-inspector", kInterval, [this] { LookAtInspector(); });
  }
  if (!options.dumps.empty()) {
    dump_folder_.emplace(options.dumps);
    dumps_ = std::make_unique<service::StateThread>("c4d-dumps", kInterval, [this] { LookForDumps(); });
  }
  if (has_ras_) {
    ras_ = std::make_unique<RasSource>(
        options, job, epoch, [this](std::vector<v1::TelemetryBatch> batches, Now now) {
          state_thread_->Post([handler = handler_, telemetry = inspector_telemetry_,
                               batches = std::move(batches), now]() mutable {
            for (v1::TelemetryBatch& batch : batches) {
              telemetry->AddTo(now, &batch);
              (void)handler->Ingest(batch, now);
            }
          });
        });
  }
}

Sources::~Sources() {
  Stop();
}

void Sources::Stop() {
  if (ras_ != nullptr) ras_->Stop();
  if (dumps_ != nullptr) dumps_->Stop();
  if (inspector_ != nullptr) inspector_->Stop();
}

void Sources::LookForDumps() {
  const Now now = ReadNow();
  std::optional<HeardDumps> heard = dump_folder_->Look(now);
  if (!heard.has_value()) return;
  state_thread_->Post(
      [handler = handler_, found = Analyse(*std::move(heard)), now] { handler->SetDumps(found, now); });
}

void Sources::LookAtInspector() {
  const Now now = ReadNow();
  std::vector<InspectorRecord> records = inspector_folder_->Look(now);
  state_thread_->Post([handler = handler_, telemetry = inspector_telemetry_, has_ras = has_ras_,
                       records = std::move(records), now] {
    telemetry->Observe(records, now);
    if (has_ras) return;
    for (const v1::TelemetryBatch& batch : telemetry->Take(now)) (void)handler->Ingest(batch, now);
  });
}

}  // namespace c4::c4d
