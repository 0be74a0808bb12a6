// Looks at the node's hardware. Each source has a thread of its own, so a source that hangs in a
// stuck driver holds up nobody else. Such a source is reported once, as an event that says where it
// hangs, and is left alone until it answers.
//
// Collect takes what the sources have found, without waiting for them. One thread calls Start,
// Stop, Collect and the questions after it. Stop leaves hanging threads behind: what they use is
// theirs.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "c4a/health/event_log.h"
#include "c4a/health/root_files.h"
#include "c4a/health/source.h"
#include "service/clock.h"

namespace c4::agent {

// Makes a source on its thread. `note` tells the monitor what is about to be read.
using SourceMaker = std::function<std::unique_ptr<HealthSource>(RootFiles::Note note)>;

struct HealthOptions {
  std::string root;  // of /sys, /proc and /dev; "" but in tests, and where the node's lie elsewhere
  std::string kernel_log = "/dev/kmsg";
  std::string nvml = "libnvidia-ml.so.1";
  std::function<bool(const std::string& interface)> selects;  // which interfaces; nullptr: those of hardware
};
std::vector<SourceMaker> AllSources(const HealthOptions& options);

struct MonitorOptions {
  absl::Duration interval = absl::Seconds(1);     // between two looks
  absl::Duration stall_limit = absl::Seconds(5);  // of one read
  // The address of a network interface, for events of NICs; empty where it has none. On the thread of
  // Collect.
  std::function<std::string(const std::string& interface)> address_of;
};

class HealthMonitor {
 public:
  HealthMonitor(MonitorOptions options, const std::vector<SourceMaker>& sources,
                const service::Clock& clock = service::SystemClock());
  ~HealthMonitor();
  HealthMonitor(const HealthMonitor&) = delete;
  HealthMonitor& operator=(const HealthMonitor&) = delete;

  void Start();
  void Stop();

  // The events of the last minutes, oldest first. Valid until the next call.
  const std::deque<NumberedEvent>& Collect();

  const EventLog& log() const { return log_; }

  struct SourceFigures {
    std::string name;
    bool absent = false;   // this node does not have it, or it cannot be read
    bool stalled = false;  // its thread hangs
    uint64_t reads = 0;
    int64_t read_ns = 0;  // what the last one took
  };
  std::vector<SourceFigures> Figures() const;

 private:
  struct Reader;  // shared with its thread
  static void Run(const std::shared_ptr<Reader>& reader);
  void CollectOf(Reader* reader, int64_t now_ns);
  void TellStalled(Reader* reader, const std::string& where, int64_t now_ns);

  const MonitorOptions options_;
  const service::Clock& clock_;
  std::vector<std::shared_ptr<Reader>> readers_;
  std::vector<std::thread> threads_;
  EventLog log_;
};

}  // namespace c4::agent
