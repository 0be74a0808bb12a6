#include "c4a/health/gpu_source.h"

#include "service/text.h"
#include "service/xid.h"

namespace c4::agent {

absl::StatusOr<std::vector<HealthEvent>> GpuSource::Read(int64_t now_ns) {
  if (nvml_ == nullptr) {
    absl::StatusOr<std::unique_ptr<Nvml>> opened = Nvml::Open(library_, note_);
    if (!opened.ok()) return opened.status();
    nvml_ = *std::move(opened);
  }
  std::vector<HealthEvent> events;
  for (const Nvml::Xid& xid : nvml_->TakeXids()) {
    HealthEvent event;
    event.kind = event_kind::kXid;
    event.device = xid.gpu;
    event.number = xid.number;
    event.text = service::Concat("Xid ", xid.number, ", ", service::MeaningOfXid(xid.number).words);
    event.at_ns = now_ns;
    events.push_back(std::move(event));
  }
  for (size_t gpu = 0; gpu < nvml_->gpus(); ++gpu) watch_.Take(nvml_->Read(gpu), now_ns, &events);
  return events;
}

}  // namespace c4::agent
