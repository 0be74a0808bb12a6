// Where c4d_master hears of a job besides C4's own agents: `--source
// ras=HOST:PORT,dumps=FOLDER,inspector=FOLDER` (docs/sources.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "c4/v1/telemetry.pb.h"
#include "c4d_master/c4d_handler.h"
#include "c4d_master/job_state.h"
#include "c4d_master/sources/dump_folder.h"
#include "c4d_master/sources/inspector_folder.h"
#include "c4d_master/sources/inspector_telemetry.h"
#include "c4d_master/sources/ras_telemetry.h"
#include "service/address.h"
#include "service/state_thread.h"

namespace c4::c4d {

struct SourceOptions {
  std::vector<service::HostPort> ras;  // of one job: the first that answers is taken
  std::string dumps;                   // see DumpFolder; empty: none
  std::string inspector;               // see InspectorFolder; empty: none

  bool empty() const { return ras.empty() && dumps.empty() && inspector.empty(); }
};

// "ras=10.0.0.1:28028,ras=10.0.0.2:28028,dumps=/shared/llm". InvalidArgument with what to give.
absl::StatusOr<SourceOptions> ParseSources(const std::string& text);

// What a verdict says of where it comes from, and of what cannot be seen from there; empty without sources.
std::string SourceNote(const SourceOptions& options);

// A thread that asks RAS once a second and hands on what it says.
class RasSource {
 public:
  // Called on the source's own thread.
  using OnBatches = std::function<void(std::vector<v1::TelemetryBatch>, Now)>;

  // How long RAS waits for processes that do not answer, and how long we wait for RAS.
  static constexpr int kLegSeconds = 3;
  static constexpr absl::Duration kTimeout = absl::Seconds(8);

  RasSource(const SourceOptions& options, const std::string& job, uint64_t epoch, OnBatches on_batches);
  ~RasSource();  // Stop
  RasSource(const RasSource&) = delete;
  RasSource& operator=(const RasSource&) = delete;

  // No call of `on_batches` begins afterwards.
  void Stop();

 private:
  void Look();

  const std::vector<service::HostPort> addresses_;
  const OnBatches on_batches_;
  RasTelemetry telemetry_;
  size_t next_ = 0;     // address that is asked first
  std::string silent_;  // why nobody answered the last time; empty: somebody did
  std::atomic<bool> stopping_ = false;
  std::unique_ptr<service::StateThread> thread_;
};

// All of a job's sources, each on a thread of its own that looks once a second, so that one that blocks holds
// up no other. What they say is taken in on the handler's thread.
class Sources {
 public:
  // `handler` and `state_thread` outlive this.
  Sources(const SourceOptions& options, const std::string& job, uint64_t epoch, C4dHandler* handler,
          service::StateThread* state_thread);
  ~Sources();  // Stop
  Sources(const Sources&) = delete;
  Sources& operator=(const Sources&) = delete;

  // Nothing is handed on afterwards.
  void Stop();

 private:
  void LookForDumps();
  void LookAtInspector();

  C4dHandler* const handler_;
  service::StateThread* const state_thread_;
  const bool has_ras_;
  // Of the state thread, which may have something to do for it yet when this has ended.
  const std::shared_ptr<InspectorTelemetry> inspector_telemetry_;
  std::optional<DumpFolder> dump_folder_;  // each of its own thread
  std::optional<InspectorFolder> inspector_folder_;
  std::unique_ptr<RasSource> ras_;
  std::unique_ptr<service::StateThread> dumps_;
  std::unique_ptr<service::StateThread> inspector_;
};

}  // namespace c4::c4d
