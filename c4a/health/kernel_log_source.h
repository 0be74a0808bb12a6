// The kernel's log as a source: /dev/kmsg, or an ordinary file in its place (a syslog's, under a root). It
// begins at the end of what is there: what was said before the agent started is history. Of a flood it reads
// kMostBytesAtOnce a look and skips what is older.
#pragma once

#include <string>

#include "c4a/health/device_names.h"
#include "c4a/health/root_files.h"
#include "c4a/health/source.h"

namespace c4::agent {

class KernelLogSource final : public HealthSource {
 public:
  KernelLogSource(RootFiles files, std::string path);
  ~KernelLogSource() override;

  const char* name() const override { return "kernel"; }
  int period() const override { return 1; }
  absl::StatusOr<std::vector<HealthEvent>> Read(int64_t now_ns) override;

  static constexpr size_t kMostBytesAtOnce = size_t{1} << 20;

 private:
  absl::Status Open();
  absl::Status ReadRecords(int64_t now_ns, std::vector<HealthEvent>* events);  // of a device: one a read
  absl::Status ReadText(int64_t now_ns, std::vector<HealthEvent>* events);     // of an ordinary file
  void TakeLine(std::string_view line, int64_t now_ns, std::vector<HealthEvent>* events);

  const RootFiles files_;
  const std::string path_;
  DeviceNames names_;
  int fd_ = -1;
  bool is_device_ = false;
  int64_t offset_ = 0;
  std::string rest_;          // of a line that has not ended yet
  int64_t last_read_ns_ = 0;  // what comes in the next read happened after it
};

}  // namespace c4::agent
