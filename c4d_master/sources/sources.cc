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

}  // namespace

absl::StatusOr<SourceOptions> ParseSources(const std::string& text) {
  SourceOptions options;
  if (text.empty()) return options;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
    if (parts.first == "dumps") {
      if (parts.second.empty() || !options.dumps.empty()) {
        return absl::InvalidArgumentError(
            parts.second.empty()
                ? "dumps= names no folder; give the one that the job's ranks write to, as "
                  "dumps=/shared/llm, or what the files' paths begin with, as dumps=/tmp/nccl_trace_rank_*"
                : "there are two folders of dumps; give the one that all of the job's ranks write to");
      }
      options.dumps = parts.second;
      continue;
    }
    if (parts.first != "ras") {
      return absl::InvalidArgumentError(
          Concat("\"", service::ToUtf8(word),
                 "\" is no source; give ras=HOST:PORT or dumps=FOLDER, several by commas"));
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
    const service::Clock& clock = service::SystemClock();
    const Now now{clock.MonotonicNs(), clock.UnixNs()};
    on_batches_(telemetry_.Take(*status, now), now);
    return;
  }
  if (silent_ != why) {
    service::LogWarning("no source tells of the job, which is not judged by it until one does: ", why);
  }
  silent_ = why;
}

DumpSource::DumpSource(const std::string& folder, OnDumps on_dumps)
    : on_dumps_(std::move(on_dumps)), folder_(folder) {
  thread_ = std::make_unique<service::StateThread>("c4d-dumps", kInterval, [this] { Look(); });
}

DumpSource::~DumpSource() {
  Stop();
}

void DumpSource::Stop() {
  thread_->Stop();
}

void DumpSource::Look() {
  const service::Clock& clock = service::SystemClock();
  const Now now{clock.MonotonicNs(), clock.UnixNs()};
  if (std::optional<HeardDumps> heard = folder_.Look(now)) on_dumps_(*std::move(heard), now);
}

}  // namespace c4::c4d
