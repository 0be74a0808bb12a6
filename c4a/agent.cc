#include "c4a/agent.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <pthread.h>
#include <random>
#include <unistd.h>

#include "c4a/nics.h"
#include "service/address.h"
#include "service/directory.h"
#include "service/log.h"
#include "service/run_dir.h"
#include "service/text.h"
#include "service/version.h"

namespace c4::agent {
namespace {

using service::Concat;

constexpr int64_t kStaleScanNs = 5'000'000'000;
constexpr int64_t kFarewellNs = 10'000'000'000;  // time for the last batches of a job that has left
constexpr int64_t kLookAgainNs =
    10'000'000'000;  // in the directory of masters, for those that are not asked for
constexpr size_t kMostUnread = 64;
constexpr double kMsToNs = 1e6;
constexpr std::chrono::milliseconds kShortestInterval{10};

wire::RecordLevel LevelOf(const std::string& word) {
  if (word == "off") return wire::kLevelOff;
  return word == "fine" ? wire::kLevelFine : wire::kLevelCoarse;
}

// The user of each job's processes; -1 where they are of several, so that none of these is believed.
std::map<std::string, int64_t> OwnersOf(const std::vector<SegmentFile*>& processes) {
  std::map<std::string, int64_t> owners;
  for (const SegmentFile* process : processes) {
    const auto [at, added] = owners.try_emplace(service::ToUtf8(process->header().job), process->owner_uid());
    if (!added && at->second != process->owner_uid()) at->second = -1;
  }
  return owners;
}

// Of the job's own user: of whose job somebody else's are, nobody here knows either.
void TellRefused(const std::map<int64_t, RefusedFiles>& refused, int64_t owner_uid,
                 v1::TelemetryBatch* batch) {
  const auto found = refused.find(owner_uid);
  if (found == refused.end()) return;
  batch->set_segments_refused(found->second.files);
  batch->set_refusal(found->second.why);
}

// Those that its master may have held and tested: of the job, and of its user.
std::set<uint32_t> PidsOf(const v1::TelemetryBatch& batch) {
  std::set<uint32_t> pids;
  for (const v1::ProcessReport& report : batch.processes()) {
    if (!report.ended() && report.health().state() != v1::PROCESS_STATE_GONE)
      pids.insert(report.process().pid());
  }
  return pids;
}

uint64_t NewEpoch() {
  std::random_device random;
  return static_cast<uint64_t>(random()) << 32 | random() | 1;  // never 0
}

absl::StatusOr<wire::ProcessIdentity> OwnIdentity(const ProcReader& proc) {
  wire::ProcessIdentity identity{};
  identity.pid = static_cast<uint32_t>(getpid());
  const auto boot_id = proc.BootId();
  if (!boot_id.ok()) return boot_id.status();
  memcpy(identity.boot_id, boot_id->data(), sizeof identity.boot_id);
  const auto stat = proc.ReadStat(identity.pid);
  if (!stat.ok()) return stat.status();
  identity.start_time_ticks = stat->start_time_ticks;
  return identity;
}

}  // namespace

Agent::Agent(AgentOptions options, service::Credentials credentials)
    : options_(std::move(options)),
      credentials_(std::move(credentials)),
      clock_(service::SystemClock()),
      started_ns_(clock_.MonotonicNs()),
      http_([this] { return Health(); }, [this] { return MetricsText(); }) {}

Agent::~Agent() {
  Stop();
}

absl::Status Agent::Start() {
  C4_RETURN_IF_NOT_OK(service::EnsureSharedDirectory(options_.run_dir));
  if (const std::string warning = service::ForeignOwner(options_.run_dir); !warning.empty()) {
    service::LogWarning(warning);
  }
  run_dir_mode_ = service::DirectoryMode(options_.run_dir);
  if (!options_.master.empty()) {
    if (const auto address = service::ParseHostPort(options_.master); !address.ok()) {
      return service::Annotate(address.status(), "--master");
    }
  }
  const ProcReader proc;
  const absl::StatusOr<wire::ProcessIdentity> identity = OwnIdentity(proc);
  if (!identity.ok()) return identity.status();
  const uint64_t epoch = NewEpoch();
  C4_RETURN_IF_NOT_OK(StartPaths(epoch));
  control_ = std::make_unique<ControlServer>(ControlOptions{
      .run_dir = options_.run_dir,
      .identity = *identity,
      .agent_version = service::VersionNumber(),
      .level = LevelOf(options_.record_level),
      .on_hello =
          [this](const ControlPeer& peer, const std::string& segment) {
            service::LogDebug("process ", peer.pid, " of user ", peer.uid, " said hello for ", segment);
            {
              const absl::MutexLock lock(&mutex_);
              hurry_ = true;
            }
            wake_.Notify();
          },
      .on_path_ask = [this](ControlClientId client, const ControlPeer& peer,
                            const wire::ControlPathAsk& ask) { paths_->Ask(client, peer, ask); },
      .on_path_use = [this](ControlClientId client, const ControlPeer& peer,
                            const wire::ControlPathUse& use) { paths_->Use(client, peer, use); },
      .on_gone = [this](ControlClientId client) { paths_->Gone(client); },
      .on_hold_state =
          [this](uint32_t pid, const wire::ControlHoldState& state) {
            ForEachRelay([&](ValidationRelay& relay) { relay.HoldState(pid, state); });
          },
      .on_plan_answer =
          [this](uint32_t pid, const wire::ControlPlanAnswer& answer) {
            ForEachRelay([&](ValidationRelay& relay) { relay.PlanAnswered(pid, answer); });
          },
      .on_plan_step =
          [this](uint32_t pid, const wire::ControlPlanStep& step) {
            ForEachRelay([&](ValidationRelay& relay) { relay.PlanStepped(pid, step); });
          },
      .on_unreachable =
          [this](uint32_t pid) { ForEachRelay([pid](ValidationRelay& relay) { relay.Unreachable(pid); }); },
  });
  C4_RETURN_IF_NOT_OK(control_->Start());
  scanner_ = std::make_unique<Scanner>(
      ScannerOptions{.run_dir = options_.run_dir, .keep_dead_s = options_.keep_dead_s}, proc, clock_);
  reporter_ = std::make_unique<Reporter>(ReporterOptions{
      .host = service::HostName(), .agent_epoch = epoch, .agent_version = std::string(service::Version())});
  StartHealth();
  last_scan_ns_ = clock_.MonotonicNs();
  metrics_
      .Gauge("c4a_build_info", "1; the version is a label", {{"version", std::string(service::Version())}})
      .Set(1);
  UpdateMetrics();
  C4_RETURN_IF_NOT_OK(
      http_.Start(options_.common.http_address, service::Gate(credentials_), options_.common.http_names));
  thread_ = std::thread([this] { Run(); });
  service::LogInfo("watching ", options_.run_dir, ", health and metrics at http://", http_.address());
  return absl::OkStatus();
}

void Agent::StartHealth() {
  if (options_.health != "on") return;
  HealthOptions sources{.root = options_.health_root,
                        .kernel_log = options_.kernel_log,
                        .nvml = options_.nvml,
                        .selects = nullptr};
  if (!options_.nics.empty()) {
    sources.selects = [filter = options_.nics](const std::string& name) { return NicSelected(filter, name); };
  }
  MonitorOptions monitor{.interval = absl::Milliseconds(options_.health_interval_ms)};
  monitor.address_of = [this](const std::string& interface) {
    for (const v1::NicInfo& nic : ListNics(options_.nics, options_.nic_addresses == "ipv6")) {
      if (nic.name() == interface) return nic.address();
    }
    return std::string();
  };
  hardware_ = std::make_unique<HealthMonitor>(std::move(monitor), AllSources(sources));
  hardware_->Start();
}

absl::Status Agent::StartPaths(uint64_t epoch) {
  PathRelayOptions options;
  options.host = service::HostName();
  options.agent_epoch = epoch;
  if (options_.path_master.empty()) {
    options.find_master = [this] { return LookUp(service::kPathMasterName, service::Believed()); };
  } else {
    absl::StatusOr<std::vector<std::string>> addresses = ParsePathMasters(options_.path_master);
    if (!addresses.ok()) return addresses.status();
    options.places = addresses->size();
    // In turn: who asks again has found that the one before does not answer, or does not lead.
    options.find_master = [addresses = *std::move(addresses),
                           next = size_t{0}]() mutable -> absl::StatusOr<service::MasterAddress> {
      return service::MasterAddress(addresses[next++ % addresses.size()]);
    };
  }
  options.credentials = credentials_;
  options.nics = [this] { return ListNics(options_.nics, options_.nic_addresses == "ipv6"); };
  options.prober.per_second = static_cast<uint32_t>(options_.probes_per_second);
  options.prober.burst = std::max<uint32_t>(1, options.prober.per_second / 10);
  options.answer = [this](ControlClientId client, const wire::ControlPathAnswer& answer) {
    const absl::MutexLock lock(&control_mutex_);
    if (control_ != nullptr) control_->Answer(client, answer);
  };
  paths_ = std::make_unique<PathRelay>(std::move(options));
  return paths_->Start();
}

void Agent::Stop() {
  {
    const absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  wake_.Notify();
  if (thread_.joinable()) thread_.join();
  http_.Stop();
  if (hardware_ != nullptr) hardware_->Stop();
  jobs_.clear();  // their threads call back
  std::unique_ptr<ControlServer> control;
  {
    const absl::MutexLock lock(&control_mutex_);
    control = std::move(control_);
  }
  control.reset();  // before the relay, which its thread calls
  paths_.reset();
}

void Agent::Run() {
  pthread_setname_np(pthread_self(), "c4-scan");
  const auto interval = std::chrono::milliseconds(options_.scan_interval_ms);
  int64_t reported_ns = 0;
  for (;;) {
    const auto begun = service::Wakeup::Clock::now();
    ScanOnce();
    const int64_t now_ns = clock_.MonotonicNs();
    if (static_cast<double>(now_ns - reported_ns) >=
        static_cast<double>(options_.report_interval_ms) * kMsToNs) {
      reported_ns = now_ns;
      ReportOnce();
    }
    UpdateMetrics();
    for (;;) {
      const auto now = service::Wakeup::Clock::now();
      auto until = begun + interval;
      {
        const absl::MutexLock lock(&mutex_);
        if (stop_) return;
        // New processes are looked at soon, but nobody makes the agent spin by saying hello.
        if (hurry_) until = std::min(until, begun + kShortestInterval);
        if (now >= until) hurry_ = false;
      }
      if (now >= until) break;
      wake_.WaitUntil(until);
    }
  }
}

void Agent::ScanOnce() {
  static const std::vector<double> kBounds = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5};
  const int64_t before_ns = clock_.MonotonicNs();
  absl::Status status = scanner_->Scan();
  if (!status.ok()) {
    // Somebody removed the directory: a new one, as open as it was, serves the next rank.
    if (!scan_failed_) service::LogWarning(status.message(), "; trying again");
    if (service::EnsureSharedDirectory(options_.run_dir, run_dir_mode_).ok()) status = scanner_->Scan();
  }
  scan_failed_ = !status.ok();
  const int64_t after_ns = clock_.MonotonicNs();
  metrics_.Histogram("c4a_scan_duration_seconds", "Time that one look at all processes took", kBounds)
      .Observe(static_cast<double>(after_ns - before_ns) / 1e9);
  if (status.ok()) last_scan_ns_ = after_ns;
}

Agent::Job& Agent::JobOf(const std::string& name) {
  Job& job = jobs_[name];
  if (job.uplink == nullptr) {
    job.validations = std::make_shared<ValidationRelay>(ValidationRelayOptions{
        .job = name,
        .host = service::HostName(),
        .credentials = credentials_,
        .arm =
            [this](uint32_t pid, const wire::ControlHoldArm& order) {
              control_->SendTo(pid, wire::kControlHoldArm, order);
            },
        .end = [this](uint32_t pid,
                      const wire::ControlHoldEnd& end) { control_->SendTo(pid, wire::kControlHoldEnd, end); },
        .plan = [this](uint32_t pid,
                       const wire::ControlPlan& plan) { control_->SendTo(pid, wire::kControlPlan, plan); },
        .tester = ""});
    {
      const absl::MutexLock lock(&relays_mutex_);
      std::erase_if(relays_, [](const auto& relay) { return relay.expired(); });
      relays_.push_back(job.validations);
    }
    ValidationRelay* const validations = job.validations.get();
    job.uplink = std::make_unique<Uplink>(UplinkOptions{
        .job = name,
        .find_master = [this, name, owner = job.owner_uid] { return FindMaster(name, *owner); },
        .credentials = credentials_,
        .on_level = [this, name](v1::RecordLevel level) { WantLevel(name, level); },
        .on_connected = [validations](const auto& channel,
                                      const auto& master) { validations->Attend(channel, master); },
        .on_lost = [validations] { validations->Leave(); }});
  }
  return job;
}

void Agent::ForEachRelay(const std::function<void(ValidationRelay&)>& what) {
  std::vector<std::shared_ptr<ValidationRelay>> relays;
  {
    const absl::MutexLock lock(&relays_mutex_);
    for (const auto& weak : relays_) {
      if (auto relay = weak.lock()) relays.push_back(std::move(relay));
    }
  }
  for (const auto& relay : relays) what(*relay);
}

// The libraries of a node share one level: the finest that any job's master wants, else the configured one.
void Agent::WantLevel(const std::string& job, v1::RecordLevel level) {
  if (level == v1::RECORD_LEVEL_UNSPECIFIED) return ForgetLevel(job);
  const absl::MutexLock lock(&level_mutex_);
  const auto [at, added] = wanted_levels_.try_emplace(job, level);
  if (!added && at->second == level) return;
  at->second = level;
  ApplyLevel();
}

void Agent::ForgetLevel(const std::string& job) {
  const absl::MutexLock lock(&level_mutex_);
  if (wanted_levels_.erase(job) > 0) ApplyLevel();
}

void Agent::ApplyLevel() {
  wire::RecordLevel level = LevelOf(options_.record_level);
  if (!wanted_levels_.empty()) {
    v1::RecordLevel finest = v1::RECORD_LEVEL_OFF;
    for (const auto& [name, wanted] : wanted_levels_) finest = std::max(finest, wanted);
    level = finest == v1::RECORD_LEVEL_OFF      ? wire::kLevelOff
            : finest == v1::RECORD_LEVEL_COARSE ? wire::kLevelCoarse
                                                : wire::kLevelFine;
  }
  control_->SetLevel(level);
}

absl::StatusOr<service::MasterAddress> Agent::FindMaster(const std::string& job, int64_t owner_uid) const {
  if (options_.master.empty()) return LookUp(job, service::Believed(owner_uid));
  service::MasterAddress master(options_.master);
  master.job = job;
  return master;
}

std::string Agent::DirectoryOfMasters() const {
  return options_.directory.empty() ? options_.run_dir + "/masters" : options_.directory;
}

absl::StatusOr<service::MasterAddress> Agent::LookUp(const std::string& name,
                                                     const service::Believed& believed) const {
  const absl::StatusOr<service::MasterEntry> entry =
      service::MasterDirectory(DirectoryOfMasters()).LookUp(name, believed);
  if (!entry.ok()) return entry.status();
  return service::AddressOf(*entry);
}

// Of which job a process is stands in its segment. Of those whose segments this agent cannot read, the
// masters of their users are told: else such a node would not be known to anybody.
void Agent::FindMastersOfTheUnread(int64_t now_ns) {
  const std::map<int64_t, RefusedFiles>& refused = scanner_->figures().refused;
  if (refused.empty()) {
    unread_.clear();
    unread_at_ns_ = 0;
    return;
  }
  if (unread_at_ns_ != 0 && now_ns - unread_at_ns_ < kLookAgainNs) return;
  unread_at_ns_ = now_ns;
  unread_.clear();
  const auto entries = service::MasterDirectory(DirectoryOfMasters()).List();
  if (!entries.ok()) return;
  for (const service::MasterEntry& entry : *entries) {
    if (entry.job == service::kPathMasterName || !refused.contains(entry.published_by)) continue;
    if (unread_.size() < kMostUnread) unread_[entry.job] = entry.published_by;
  }
}

void Agent::ReportOnce() {
  const std::vector<SegmentFile*> processes = scanner_->Processes();
  const int64_t now_ns = scanner_->scanned_monotonic_ns();
  const int64_t unix_ns = scanner_->scanned_unix_ns();
  if (hardware_ != nullptr) reporter_->SetHardware(hardware_->Collect(), hardware_->log().left_out());
  std::map<std::string, v1::TelemetryBatch> batches = reporter_->Report(processes, now_ns, unix_ns);
  std::map<std::string, int64_t> owners = OwnersOf(processes);
  FindMastersOfTheUnread(now_ns);
  for (const auto& [name, owner] : unread_) {
    if (batches.contains(name)) continue;
    batches[name] = reporter_->Empty(now_ns, unix_ns);
    owners[name] = owner;
  }
  for (auto& [name, job] : jobs_) {
    job.processes = 0;
    if (batches.contains(name) || job.left_ns != 0) continue;
    job.left_ns = now_ns;
    job.uplink->Offer(reporter_->Empty(now_ns, unix_ns));  // says that none is left here
  }
  for (auto& [name, batch] : batches) {
    Job& job = JobOf(name);
    const auto owner = owners.find(name);
    *job.owner_uid = owner == owners.end() ? -1 : owner->second;
    job.left_ns = 0;
    job.processes = static_cast<size_t>(batch.processes_size());
    job.validations->SetProcesses(PidsOf(batch));
    TellRefused(scanner_->figures().refused, *job.owner_uid, &batch);
    job.uplink->Offer(std::move(batch));
  }
  LetGo(now_ns);
}

// Ends the uplinks of jobs that have left this node and said so.
void Agent::LetGo(int64_t now_ns) {
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    const Job& job = at->second;
    const bool over = job.left_ns != 0 && (job.uplink->idle() || now_ns - job.left_ns > kFarewellNs);
    if (!over) {
      ++at;
      continue;
    }
    RemoveJobMetrics(at->first);
    ForgetLevel(at->first);
    service::LogInfo("job ", at->first, " has left this node");
    at = jobs_.erase(at);
  }
}

absl::Status Agent::Health() const {
  const int64_t limit_ns = std::max(kStaleScanNs, options_.scan_interval_ms * 10'000'000);
  const int64_t age_ns = clock_.MonotonicNs() - last_scan_ns_;
  if (age_ns <= limit_ns) return absl::OkStatus();
  return absl::UnavailableError(Concat("the last look at ", options_.run_dir, " was ",
                                       static_cast<double>(age_ns) / 1e9, " s ago; see the agent's log"));
}

}  // namespace c4::agent
