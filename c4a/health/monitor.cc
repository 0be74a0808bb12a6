#include "c4a/health/monitor.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <pthread.h>
#include <utility>

#include "absl/strings/str_format.h"
#include "c4a/health/gpu_source.h"
#include "c4a/health/host_sources.h"
#include "c4a/health/kernel_log_source.h"
#include "c4a/health/network_sources.h"
#include "service/log.h"
#include "service/text.h"
#include "service/wakeup.h"

namespace c4::agent {
namespace {

using service::Concat;

constexpr int kAbsentLooks = 60;       // what a node does not have is looked for so much more seldom
constexpr size_t kMostWaiting = 1000;  // events of a source that nobody has collected
constexpr std::chrono::milliseconds kFarewell{500};

}  // namespace

struct HealthMonitor::Reader {
  SourceMaker make;
  absl::Duration interval;
  const service::Clock* clock = nullptr;
  service::Wakeup wake;  // at the end

  mutable std::mutex mutex;  // what follows
  std::condition_variable changed;
  std::string name = "?";
  bool stop = false;
  bool ended = false;
  int64_t reading_since_ns = 0;  // 0: it does not read
  std::string where;             // what it reads
  std::vector<HealthEvent> events;
  absl::Status status;
  uint64_t reads = 0;
  int64_t read_ns = 0;

  // The collecting thread's own.
  bool stalled = false;
  std::string told;  // the last status that the log was told

  bool Begin() {
    const std::lock_guard lock(mutex);
    reading_since_ns = clock->MonotonicNs();
    return !stop;
  }
  void End(absl::StatusOr<std::vector<HealthEvent>> found) {
    const std::lock_guard lock(mutex);
    read_ns = clock->MonotonicNs() - reading_since_ns;
    reading_since_ns = 0;
    ++reads;
    status = found.status();
    if (!found.ok()) return;
    for (HealthEvent& event : *found) {
      if (events.size() < kMostWaiting) events.push_back(std::move(event));
    }
  }
};

std::vector<SourceMaker> AllSources(const HealthOptions& options) {
  const auto files = [root = options.root](RootFiles::Note note) { return RootFiles(root, std::move(note)); };
  return {
      [files, path = options.kernel_log](RootFiles::Note note) {
        return std::make_unique<KernelLogSource>(files(std::move(note)), path);
      },
      [library = options.nvml](RootFiles::Note note) {
        return std::make_unique<GpuSource>(library, std::move(note));
      },
      [files](RootFiles::Note note) { return std::make_unique<InfinibandSource>(files(std::move(note))); },
      [files, selects = options.selects](RootFiles::Note note) {
        return std::make_unique<EthernetSource>(files(std::move(note)), selects);
      },
      [files](RootFiles::Note note) { return std::make_unique<PcieSource>(files(std::move(note))); },
      [files](RootFiles::Note note) { return std::make_unique<ThermalSource>(files(std::move(note))); },
      [files](RootFiles::Note note) { return std::make_unique<PressureSource>(files(std::move(note))); },
  };
}

HealthMonitor::HealthMonitor(MonitorOptions options, const std::vector<SourceMaker>& sources,
                             const service::Clock& clock)
    : options_(std::move(options)), clock_(clock) {
  for (const SourceMaker& make : sources) {
    auto reader = std::make_shared<Reader>();
    reader->make = make;
    reader->interval = options_.interval;
    reader->clock = &clock_;
    readers_.push_back(std::move(reader));
  }
}

HealthMonitor::~HealthMonitor() {
  Stop();
}

void HealthMonitor::Start() {
  for (const std::shared_ptr<Reader>& reader : readers_) threads_.emplace_back([reader] { Run(reader); });
}

void HealthMonitor::Run(const std::shared_ptr<Reader>& reader) {
  {
    const std::unique_ptr<HealthSource> source =
        reader->make([reader = reader.get()](const std::string& path) {
          const std::lock_guard lock(reader->mutex);
          reader->where = path;
        });
    const std::string name = source->name();
    pthread_setname_np(pthread_self(), Concat("c4-hw-", name).substr(0, 15).c_str());
    {
      const std::lock_guard lock(reader->mutex);
      reader->name = name;
    }
    while (reader->Begin()) {
      absl::StatusOr<std::vector<HealthEvent>> found = source->Read(reader->clock->MonotonicNs());
      const bool absent = absl::IsNotFound(found.status());
      reader->End(std::move(found));
      if (reader->wake.WaitFor(reader->interval * (source->period() * (absent ? kAbsentLooks : 1)))) break;
    }
  }
  const std::lock_guard lock(reader->mutex);
  reader->ended = true;
  reader->changed.notify_all();
}

void HealthMonitor::Stop() {
  for (const std::shared_ptr<Reader>& reader : readers_) {
    {
      const std::lock_guard lock(reader->mutex);
      reader->stop = true;
    }
    reader->wake.Notify();
  }
  const auto deadline = std::chrono::steady_clock::now() + kFarewell;
  for (size_t i = 0; i < threads_.size(); ++i) {
    std::unique_lock lock(readers_[i]->mutex);
    const bool ended = readers_[i]->changed.wait_until(lock, deadline, [&] { return readers_[i]->ended; });
    lock.unlock();
    if (ended) {
      threads_[i].join();
    } else {
      threads_[i].detach();
    }
  }
  threads_.clear();
}

void HealthMonitor::TellStalled(Reader* reader, const std::string& where, int64_t now_ns) {
  HealthEvent event;
  event.kind = event_kind::kSourceStalled;
  event.device = Concat("source ", reader->name);
  event.text = Concat("reading ", service::ToUtf8(where), " has not come back for ",
                      absl::StrFormat("%.0f s", absl::ToDoubleSeconds(options_.stall_limit)),
                      ": a driver hangs, perhaps");
  event.at_ns = now_ns;
  service::LogWarning("hardware: ", event.text, "; the other sources go on");
  log_.Add(std::move(event), now_ns);
}

void HealthMonitor::CollectOf(Reader* reader, int64_t now_ns) {
  std::vector<HealthEvent> events;
  absl::Status status;
  std::string where;
  bool stalled = false;
  bool begun = false;
  {
    const std::lock_guard lock(reader->mutex);
    events.swap(reader->events);
    status = reader->status;
    begun = reader->reads > 0;
    stalled = reader->reading_since_ns != 0 &&
              now_ns - reader->reading_since_ns > absl::ToInt64Nanoseconds(options_.stall_limit);
    if (stalled && !reader->stalled) where = reader->where;
  }
  if (stalled && !reader->stalled) TellStalled(reader, where, now_ns);
  if (!stalled && reader->stalled) service::LogInfo("hardware: source ", reader->name, " answers again");
  reader->stalled = stalled;
  const std::string said(status.message());
  if (begun && said != reader->told) {
    if (!status.ok() && !absl::IsNotFound(status)) {
      service::LogWarning("hardware: ", said);
    } else {
      service::LogInfo("hardware: ", status.ok() ? Concat("source ", reader->name, " is read") : said);
    }
    reader->told = said;
  }
  for (HealthEvent& event : events) {
    if (!event.interface.empty() && options_.address_of != nullptr) {
      event.address = options_.address_of(event.interface);
    }
    log_.Add(std::move(event), now_ns);
  }
}

const std::deque<NumberedEvent>& HealthMonitor::Collect() {
  const int64_t now_ns = clock_.MonotonicNs();
  for (const std::shared_ptr<Reader>& reader : readers_) CollectOf(reader.get(), now_ns);
  return log_.Recent(now_ns);
}

std::vector<HealthMonitor::SourceFigures> HealthMonitor::Figures() const {
  std::vector<SourceFigures> figures;
  for (const std::shared_ptr<Reader>& reader : readers_) {
    const std::lock_guard lock(reader->mutex);
    if (reader->reads == 0 && !reader->stalled) continue;  // it has no name yet
    figures.push_back(
        {reader->name, absl::IsNotFound(reader->status), reader->stalled, reader->reads, reader->read_ns});
  }
  return figures;
}

}  // namespace c4::agent
