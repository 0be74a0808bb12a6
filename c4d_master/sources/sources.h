// Where c4d_master hears of a job besides C4's own agents: `--source ras=HOST:PORT,dumps=FOLDER`
// (docs/sources.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "c4/v1/telemetry.pb.h"
#include "c4d_master/job_state.h"
#include "c4d_master/sources/dump_folder.h"
#include "c4d_master/sources/ras_telemetry.h"
#include "service/address.h"
#include "service/state_thread.h"

namespace c4::c4d {

struct SourceOptions {
  std::vector<service::HostPort> ras;  // of one job: the first that answers is taken
  std::string dumps;                   // see DumpFolder; empty: none
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

// A thread that looks into the folder of Flight Recorder dumps once a second.
class DumpSource {
 public:
  // Called on the source's own thread.
  using OnDumps = std::function<void(HeardDumps, Now)>;

  DumpSource(const std::string& folder, OnDumps on_dumps);
  ~DumpSource();  // Stop
  DumpSource(const DumpSource&) = delete;
  DumpSource& operator=(const DumpSource&) = delete;

  // No call of `on_dumps` begins afterwards.
  void Stop();

 private:
  void Look();

  const OnDumps on_dumps_;
  DumpFolder folder_;
  std::unique_ptr<service::StateThread> thread_;
};

}  // namespace c4::c4d
