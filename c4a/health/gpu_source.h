// The node's GPUs as a source, by NVML. On a node without NVML the source says that it is absent. It tries
// to open the library again at each look, since a driver may be loaded later.
#pragma once

#include <memory>
#include <string>

#include "c4a/health/gpu_watch.h"
#include "c4a/health/nvml.h"
#include "c4a/health/source.h"

namespace c4::agent {

class GpuSource final : public HealthSource {
 public:
  GpuSource(std::string library, Nvml::Note note) : library_(std::move(library)), note_(std::move(note)) {}
  const char* name() const override { return "gpu"; }
  int period() const override { return 1; }
  absl::StatusOr<std::vector<HealthEvent>> Read(int64_t now_ns) override;

 private:
  const std::string library_;
  const Nvml::Note note_;
  std::unique_ptr<Nvml> nvml_;
  GpuWatch watch_;
};

}  // namespace c4::agent
