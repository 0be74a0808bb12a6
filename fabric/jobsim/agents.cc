#include "fabric/jobsim/agents.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "c4a/health/event.h"
#include "fabric/jobsim/dice.h"
#include "fabric/jobsim/program.h"

namespace c4::jobsim {
namespace {

constexpr uint32_t kFirstPid = 1000;
constexpr uint64_t kTickNs = 10'000'000;           // in which the kernel tells when a process began
constexpr int64_t kScanNs = 100 * kMillisecondNs;  // how often an agent looks who is still there
constexpr int64_t kKeptNs = 600 * kSecondNs;       // what the dead leave
constexpr int64_t kEndedNs = 10 * kSecondNs;       // in which all have ended that were told to
constexpr int64_t kToldNs = 300 * kSecondNs;       // for which agents repeat what the kernel said
constexpr int64_t kClockErrorNs = 200'000;
// The threads of the vendor's engine and of frameworks look around once in a while, whatever the program
// does.
constexpr uint64_t kTickShare = 500;
constexpr uint64_t kLaunchShare = 20;          // of a step's time: 5 % of a processor
constexpr uint64_t kClockTickNs = 10'000'000;  // as fine as the kernel tells of processor time
constexpr uint64_t kWrittenBytes = 100 << 20;  // a second

}  // namespace

Agents::Agents(JobPlan plan, int64_t start_ns, int64_t start_unix_ns)
    : plan_(std::move(plan)), start_ns_(start_ns), start_unix_ns_(start_unix_ns), hosts_(plan_.hosts) {
  const uint64_t seed = plan_.lives.front().seed;
  for (uint32_t i = 0; i < hosts_.size(); ++i) {
    Host& host = hosts_[i];
    host.name = "node" + std::to_string(i);
    char boot_id[40];
    std::snprintf(boot_id, sizeof boot_id, "%016llx%016llx",
                  static_cast<unsigned long long>(Mix({seed, 41, i})),
                  static_cast<unsigned long long>(Mix({seed, 42, i})));
    host.boot_id = boot_id;
    host.epoch = Mix({seed, 43, i}) | 1;
    host.phase_ns = static_cast<int64_t>(Mix({seed, 44, i}) % static_cast<uint64_t>(plan_.report_ns));
    host.clock_ns = static_cast<int64_t>(Between(Mix({seed, 45, i}), 1e12, 1e15));
  }
  for (const AgentEvent& event : plan_.agents) hosts_[event.host].events.push_back(event);
  for (Host& host : hosts_) {
    std::stable_sort(host.events.begin(), host.events.end(),
                     [](const AgentEvent& a, const AgentEvent& b) { return a.at_ns < b.at_ns; });
  }
}

// Lives that begin by then.
void Agents::Begin(int64_t at_ns) {
  while (lives_.size() < plan_.lives.size() && plan_.lives[lives_.size()].start_ns <= at_ns) {
    const Life& life = plan_.lives[lives_.size()];
    Running running;
    running.life = &life;
    running.number = static_cast<uint32_t>(lives_.size());
    running.physics =
        std::make_unique<Physics>(life.shape, life.fault, life.seed, static_cast<uint32_t>(lives_.size()));
    running.reporter = std::make_unique<Reporter>(*running.physics);
    running.processes.resize(life.shape.ranks());
    running.ranks_on.resize(hosts_.size());
    for (uint32_t rank = 0; rank < life.shape.ranks(); ++rank) {
      running.ranks_on[life.hosts[life.shape.node(rank)]].push_back(rank);
    }
    lives_.push_back(std::move(running));
  }
}

void Agents::ForgetAll(uint32_t number, int64_t at_ns) {
  for (Running& running : lives_) {
    for (const uint32_t rank : running.ranks_on[number]) {
      Process* const process = running.processes[rank].get();
      if (process == nullptr) continue;
      process->health = agent::HealthTracker();
      process->counters.ForgetTally(at_ns - running.life->start_ns);
      process->gone = false;
    }
  }
}

bool Agents::LiveThrough(int64_t at_ns, uint32_t number, Host* host) {
  while (host->next_event < host->events.size() && host->events[host->next_event].at_ns <= at_ns) {
    const AgentEvent& event = host->events[host->next_event++];
    host->silent_to_ns = std::max(host->silent_to_ns, event.at_ns + event.lasts_ns);
    switch (event.kind) {
      case AgentEventKind::kRestart:
        host->epoch = Mix(host->epoch) | 1;
        host->sequence = 0;
        host->has_before = false;
        ForgetAll(number, at_ns);
        break;
      case AgentEventKind::kStall:
        break;
      case AgentEventKind::kClockStep:
        host->stepped_ns += event.step_ns;
        break;
      case AgentEventKind::kGone:
        host->gone = true;
        break;
    }
  }
  return !host->gone && at_ns >= host->silent_to_ns;
}

// What the kernel says of the process, and what the agent's scans have made of it since.
void Agents::Look(const Physics& physics, uint32_t rank, int64_t at_ns, Process* process) const {
  if (process->gone) return;
  const int64_t ends_ns = physics.ends_ns(rank);
  const int64_t before_ns = process->seen_ns;
  process->seen_ns = at_ns;
  if (at_ns >= ends_ns) {
    // Seen by the first scan after it; an agent that has just begun sees it now.
    const int64_t scan_ns = std::max(ends_ns, std::min(at_ns, ends_ns + (at_ns - ends_ns) % kScanNs));
    const bool fresh = process->health.health().state == agent::ProcessState::kUnknown;
    process->health.Gone(fresh ? at_ns : scan_ns);
    const Fate& fate = physics.fate(rank);
    if (!fresh) process->health.Exited({ends_ns, fate.signal != 0 ? fate.signal : fate.exit_status << 8});
    process->gone = true;
    process->gone_ns = std::min(process->gone_ns, at_ns);
    return;
  }
  agent::ProcessInfo info;
  const auto elapsed_ns = static_cast<uint64_t>(std::max<int64_t>(0, at_ns - before_ns));
  if (at_ns >= physics.fate(rank).stops_ns) {
    info.stat.state = 'T';
  } else if (physics.IsBlocked(rank, at_ns)) {
    info.stat.state = 'D';
    process->cpu_ns += elapsed_ns / kTickShare;
  } else if (physics.IsIdle(rank, at_ns)) {
    info.stat.state = 'S';
    process->cpu_ns += elapsed_ns / kTickShare;
  } else {
    info.stat.state = 'R';
    process->cpu_ns += elapsed_ns;
    if (physics.IsWriting(rank, at_ns)) process->io_bytes += elapsed_ns * (kWrittenBytes >> 20) / 1'000'000;
  }
  // A CPU that sleeps while its GPU works has launched that work, and loaded the data.
  const uint64_t steps = physics.steps(rank);
  if (physics.shape().blocking_sync) {
    const auto step_ns = static_cast<uint64_t>(NominalStepNs(physics.shape()));
    process->cpu_ns += (steps - process->seen_steps) * step_ns / kLaunchShare;
  }
  process->seen_steps = steps;
  info.cpu_ns = process->cpu_ns / kClockTickNs * kClockTickNs;
  info.io_bytes = process->io_bytes;
  process->health.Update(info, at_ns);
}

bool Agents::Follow(uint32_t rank, int64_t at_ns, Running* running) {
  Physics& physics = *running->physics;
  std::unique_ptr<Process>& place = running->processes[rank];
  if (place == nullptr) {
    if (at_ns < physics.starts_ns(rank)) return false;
    place = std::make_unique<Process>(RankCounters(physics, rank));
    place->seen_ns = at_ns;
  }
  Process& process = *place;
  if (process.gone && at_ns - process.gone_ns > kKeptNs) return false;
  for (const Event& event : physics.Take(rank, at_ns)) process.counters.Apply(event);
  const bool was_there = process.gone_ns >= kNeverNs;
  Look(physics, rank, at_ns, &process);
  if (was_there && process.gone) ++running->gone;
  return true;
}

uint32_t Agents::PidOf(const Running& running, uint32_t rank) {
  return kFirstPid + running.number * 20'000 + rank;
}

void Agents::FillProcess(uint32_t rank, int64_t at_ns, const Host& host, Running* running,
                         v1::ProcessReport* report) {
  Process& process = *running->processes[rank];
  Identity identity;
  identity.host = host.name;
  identity.boot_id = host.boot_id;
  identity.pid = PidOf(*running, rank);
  identity.start_ticks =
      static_cast<uint64_t>(host.clock_ns + running->life->start_ns + running->physics->starts_ns(rank)) /
      kTickNs;
  identity.incarnation = running->life->incarnation;
  running->reporter->Fill(rank, identity, process.health.health(), at_ns, &process.counters, report);
}

// What the kernel's log has said lately.
void Agents::FillHardware(int64_t read_ns, v1::TelemetryBatch* batch) const {
  batch->clear_hardware();
  for (const auto& [number, rank] : who_) {
    const Running& running = lives_[number];
    const int64_t age_ns = read_ns - running.life->start_ns - running.physics->ends_ns(rank);
    if (!running.physics->fate(rank).for_memory || age_ns < 0 || age_ns > kToldNs) continue;
    const uint32_t pid = PidOf(running, rank);
    v1::HardwareEvent* const event = batch->add_hardware();
    event->set_kind(agent::event_kind::kOutOfMemory);
    event->set_device("process " + std::to_string(pid) + " (trainer)");
    event->set_number(pid);
    event->set_text("killed, for the host's memory was full");
    event->set_age_ns(age_ns);
    event->set_sequence(1 + rank);
  }
}

void Agents::FillBatch(uint32_t number, int64_t read_ns, Host* host) {
  who_.clear();
  for (Running& running : lives_) {
    for (const uint32_t rank : running.ranks_on[number]) {
      if (Follow(rank, read_ns - running.life->start_ns, &running)) who_.emplace_back(running.number, rank);
    }
  }
  if (who_.empty()) return;
  Host::Buffer& buffer = host->buffers[host->turn];
  v1::TelemetryBatch& batch = buffer.batch;
  if (buffer.who != who_) {
    buffer.who = who_;
    batch.clear_processes();
    for (size_t i = 0; i < who_.size(); ++i) batch.add_processes();
  }
  for (size_t i = 0; i < who_.size(); ++i) {
    Running& running = lives_[who_[i].first];
    FillProcess(who_[i].second, read_ns - running.life->start_ns, *host, &running,
                batch.mutable_processes(static_cast<int>(i)));
  }
  FillHardware(read_ns, &batch);
  batch.set_host(host->name);
  batch.set_agent_epoch(host->epoch);
  batch.set_sequence(++host->sequence);
  batch.set_monotonic_ns(host->clock_ns + read_ns);
  batch.set_unix_ns(start_unix_ns_ + read_ns + host->stepped_ns);
  batch.set_agent_version("0.1.0");
  v1::ClockRelation* const clock = batch.mutable_clock();
  clock->set_offset_ns(start_ns_ - host->clock_ns);
  clock->set_error_ns(kClockErrorNs);
  host->turn = 1 - host->turn;
  told_.push_back({&batch, host->has_before ? &host->buffers[host->turn].batch : nullptr});
  host->has_before = true;
}

const std::vector<Told>& Agents::Report(int64_t at_ns) {
  at_ns_ = at_ns;
  Begin(at_ns);
  for (Running& running : lives_) {
    if (!IsOver(running)) running.physics->Advance(at_ns - running.life->start_ns);
  }
  told_.clear();
  for (uint32_t number = 0; number < hosts_.size(); ++number) {
    Host& host = hosts_[number];
    if (LiveThrough(at_ns, number, &host)) FillBatch(number, at_ns - host.phase_ns, &host);
  }
  return told_;
}

// All of its processes have ended. A node that is gone does not tell.
bool Agents::IsOver(const Running& running) const {
  const Shape& shape = running.life->shape;
  return running.gone == running.processes.size() ||
         (shape.ended_ns < kNeverNs && at_ns_ >= running.life->start_ns + shape.ended_ns + kEndedNs);
}

// The number of the life that began last, where all others are over and it is whole; -1.
int Agents::OnlyOne() const {
  for (size_t i = 0; i + 1 < lives_.size(); ++i) {
    if (!IsOver(lives_[i])) return -1;
  }
  if (lives_.empty() || lives_.back().gone != 0) return -1;
  const auto& processes = lives_.back().processes;
  const bool whole = std::none_of(processes.begin(), processes.end(),
                                  [](const auto& process) { return process == nullptr; });
  return whole ? static_cast<int>(lives_.size()) - 1 : -1;
}

Rhythm Agents::rhythm() const {
  return OnlyOne() < 0 ? Rhythm() : lives_.back().physics->rhythm();
}

int64_t Agents::last_event_ns() const {
  return lives_.empty() ? 0 : lives_.back().life->start_ns + lives_.back().physics->last_event_ns();
}

void Agents::Mark() {
  if (OnlyOne() < 0) return;
  for (const auto& process : lives_.back().processes) {
    process->mark_ns = process->seen_ns;
    process->mark_cpu_ns = process->cpu_ns;
    process->counters.Mark(process->seen_ns);
  }
}

int64_t Agents::Skip(uint64_t steps) {
  if (OnlyOne() < 0) return 0;
  const int64_t by_ns = lives_.back().physics->Skip(steps);
  for (const auto& process : lives_.back().processes) {
    process->counters.Skip(steps, process->seen_ns, by_ns);
    const int64_t looked_ns = process->seen_ns - process->mark_ns;
    const double share = looked_ns <= 0 ? 0
                                        : static_cast<double>(process->cpu_ns - process->mark_cpu_ns) /
                                              static_cast<double>(looked_ns);
    process->cpu_ns += static_cast<uint64_t>(share * static_cast<double>(by_ns));
    process->seen_ns += by_ns;
    process->seen_steps += steps;
  }
  at_ns_ += by_ns;
  return by_ns;
}

}  // namespace c4::jobsim
