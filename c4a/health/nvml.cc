#include "c4a/health/nvml.h"

#include <dlfcn.h>
#include <optional>

#include "service/text.h"

namespace c4::agent {
namespace {

using service::Concat;

// As in the library's binary interface.
using Device = void*;
using EventSet = void*;
enum Return : int { kSuccess = 0, kInsufficientSize = 7, kGpuIsLost = 15 };
struct EventData {  // of nvmlEventSetWait_v2
  Device device;
  unsigned long long type;
  unsigned long long data;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};
struct Utilization {
  unsigned int gpu;
  unsigned int memory;
};
constexpr unsigned long long kXidEvent = 0x8;  // nvmlEventTypeXidCriticalError
constexpr int kCorrected = 0;
constexpr int kUncorrected = 1;
constexpr int kVolatile = 0;  // since the driver was loaded
constexpr int kRetirementCauses = 2;
constexpr int kGpuSensor = 0;
constexpr int kSlowdownThreshold = 1;
constexpr int kSmClock = 1;
enum NvlinkCounter : int { kReplay = 0, kRecovery = 1, kCrcFlit = 2, kCrcData = 3 };

using ull = unsigned long long;

}  // namespace

struct Nvml::Parts {
  void* library = nullptr;
  Note note;
  int (*shutdown)() = nullptr;
  int (*total_ecc)(Device, int, int, ull*) = nullptr;
  int (*retired_pages)(Device, int, unsigned int*, ull*) = nullptr;
  int (*remapped_rows)(Device, unsigned int*, unsigned int*, unsigned int*, unsigned int*) = nullptr;
  int (*throttle_reasons)(Device, ull*) = nullptr;
  int (*temperature)(Device, int, unsigned int*) = nullptr;
  int (*temperature_threshold)(Device, int, unsigned int*) = nullptr;
  int (*clock)(Device, int, unsigned int*) = nullptr;
  int (*max_clock)(Device, int, unsigned int*) = nullptr;
  int (*utilization)(Device, Utilization*) = nullptr;
  int (*nvlink_state)(Device, unsigned int, int*) = nullptr;
  int (*nvlink_errors)(Device, unsigned int, int, ull*) = nullptr;
  int (*event_wait)(EventSet, EventData*, unsigned int) = nullptr;
  int (*event_set_free)(EventSet) = nullptr;
  EventSet events = nullptr;
  struct Gpu {
    Device device = nullptr;
    std::string name;
    bool lost = false;  // at the reading under way
  };
  std::vector<Gpu> gpus;

  ~Parts() {
    if (events != nullptr && event_set_free != nullptr) event_set_free(events);
    if (shutdown != nullptr) shutdown();
    if (library != nullptr) dlclose(library);
  }

  template <typename Function>
  bool Find(const char* name, Function* function) const {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    return *function != nullptr;
  }

  // A function's value for that GPU.
  template <typename Value, typename Call>
  std::optional<Value> Ask(Gpu* gpu, const char* what, const Call& call) const {
    if (gpu->lost) return std::nullopt;
    note(Concat(what, " of ", gpu->name));
    Value value{};
    const int code = call(&value);
    if (code == kGpuIsLost) gpu->lost = true;
    if (code != kSuccess) return std::nullopt;
    return value;
  }

  void ReadMemory(Gpu* gpu, GpuReading* reading) const;
  void ReadClocks(Gpu* gpu, GpuReading* reading) const;
  void ReadNvlinks(Gpu* gpu, GpuReading* reading) const;
  void RegisterXids();
};

void Nvml::Parts::ReadMemory(Gpu* gpu, GpuReading* reading) const {
  if (total_ecc != nullptr) {
    const auto ecc = [&](int sort) {
      return Ask<ull>(gpu, "the ECC errors",
                      [&](ull* n) { return total_ecc(gpu->device, sort, kVolatile, n); });
    };
    reading->ecc_uncorrected = ecc(kUncorrected);
    reading->ecc_corrected = ecc(kCorrected);
  }
  if (retired_pages != nullptr) {
    for (int cause = 0; cause < kRetirementCauses; ++cause) {
      // Without room for addresses it tells how many there are.
      const auto pages = Ask<unsigned int>(gpu, "the retired pages", [&](unsigned int* n) {
        const int code = retired_pages(gpu->device, cause, n, nullptr);
        return code == kInsufficientSize ? static_cast<int>(kSuccess) : code;
      });
      if (pages.has_value()) reading->retired_pages = reading->retired_pages.value_or(0) + *pages;
    }
  }
  if (remapped_rows != nullptr) {
    reading->remapped_rows = Ask<ull>(gpu, "the remapped rows", [&](ull* n) {
      unsigned int corrected = 0;
      unsigned int uncorrected = 0;
      unsigned int pending = 0;
      unsigned int failed = 0;
      const int code = remapped_rows(gpu->device, &corrected, &uncorrected, &pending, &failed);
      *n = ull{corrected} + uncorrected;
      return code;
    });
  }
}

void Nvml::Parts::ReadClocks(Gpu* gpu, GpuReading* reading) const {
  const auto number = [&](const char* what, auto function, int which) -> std::optional<double> {
    if (function == nullptr) return std::nullopt;
    return Ask<unsigned int>(gpu, what, [&](unsigned int* n) { return function(gpu->device, which, n); });
  };
  if (throttle_reasons != nullptr) {
    reading->throttle_reasons = Ask<ull>(gpu, "the reasons of throttling",
                                         [&](ull* bits) { return throttle_reasons(gpu->device, bits); });
  }
  reading->temperature = number("the temperature", temperature, kGpuSensor);
  reading->slowdown_temperature =
      number("the temperature's threshold", temperature_threshold, kSlowdownThreshold);
  reading->sm_clock_mhz = number("the clock", clock, kSmClock);
  reading->max_sm_clock_mhz = number("the highest clock", max_clock, kSmClock);
  if (utilization != nullptr) {
    const auto busy =
        Ask<Utilization>(gpu, "the utilization", [&](Utilization* u) { return utilization(gpu->device, u); });
    if (busy.has_value()) reading->utilization = busy->gpu;
  }
}

void Nvml::Parts::ReadNvlinks(Gpu* gpu, GpuReading* reading) const {
  if (nvlink_state == nullptr) return;
  for (unsigned int i = 0; i < kMostNvlinks; ++i) {
    const auto state =
        Ask<int>(gpu, "an NVLink's state", [&](int* active) { return nvlink_state(gpu->device, i, active); });
    if (!state.has_value()) return;  // a GPU has its links in a row
    GpuReading::Nvlink& link = reading->nvlinks[i];
    link.active = *state != 0;
    if (!*link.active || nvlink_errors == nullptr) continue;
    const auto errors = [&](int counter) {
      return Ask<ull>(gpu, "an NVLink's errors",
                      [&](ull* n) { return nvlink_errors(gpu->device, i, counter, n); });
    };
    link.replay = errors(kReplay);
    link.recovery = errors(kRecovery);
    const auto flits = errors(kCrcFlit);
    const auto data = errors(kCrcData);
    if (flits.has_value() || data.has_value()) link.crc = flits.value_or(0) + data.value_or(0);
  }
}

// Where it cannot be done (a container, an old driver) the kernel's log still tells of them.
void Nvml::Parts::RegisterXids() {
  int (*create)(EventSet*) = nullptr;
  int (*enroll)(Device, ull, EventSet) = nullptr;
  if (!Find("nvmlEventSetCreate", &create) || !Find("nvmlDeviceRegisterEvents", &enroll) ||
      !Find("nvmlEventSetWait_v2", &event_wait)) {
    return;
  }
  Find("nvmlEventSetFree", &event_set_free);
  if (create(&events) != kSuccess) {
    events = nullptr;
    return;
  }
  for (const Gpu& gpu : gpus) (void)enroll(gpu.device, kXidEvent, events);
}

Nvml::Nvml(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Nvml::~Nvml() = default;

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& library, Note note) {
  auto parts = std::make_unique<Parts>();
  parts->note = note != nullptr ? std::move(note) : [](const std::string&) {};
  parts->note(Concat("opening ", library));
  parts->library = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc keeps it by thread
  if (parts->library == nullptr) return absl::NotFoundError(Concat("no NVML: ", dlerror()));
  int (*init)() = nullptr;
  int (*count)(unsigned int*) = nullptr;
  int (*handle)(unsigned int, Device*) = nullptr;
  if (!parts->Find("nvmlInit_v2", &init) || !parts->Find("nvmlDeviceGetCount_v2", &count) ||
      !parts->Find("nvmlDeviceGetHandleByIndex_v2", &handle)) {
    return absl::NotFoundError(Concat(library, " is no NVML of a driver from 2013 or later"));
  }
  parts->note("nvmlInit");
  if (const int code = init(); code != kSuccess) {
    return absl::NotFoundError(Concat("NVML finds no driver (nvmlInit gave ", code, ")"));
  }
  parts->Find("nvmlShutdown", &parts->shutdown);
  unsigned int gpus = 0;
  constexpr unsigned int kMostGpus = 64;
  if (count(&gpus) != kSuccess || gpus == 0) return absl::NotFoundError("NVML knows no GPU");
  for (unsigned int i = 0; i < gpus && i < kMostGpus; ++i) {
    Parts::Gpu gpu{nullptr, Concat("GPU ", i)};
    if (handle(i, &gpu.device) == kSuccess) parts->gpus.push_back(std::move(gpu));
  }
  parts->Find("nvmlDeviceGetTotalEccErrors", &parts->total_ecc);
  parts->Find("nvmlDeviceGetRetiredPages", &parts->retired_pages);
  parts->Find("nvmlDeviceGetRemappedRows", &parts->remapped_rows);
  parts->Find("nvmlDeviceGetCurrentClocksThrottleReasons", &parts->throttle_reasons);
  parts->Find("nvmlDeviceGetTemperature", &parts->temperature);
  parts->Find("nvmlDeviceGetTemperatureThreshold", &parts->temperature_threshold);
  parts->Find("nvmlDeviceGetClockInfo", &parts->clock);
  parts->Find("nvmlDeviceGetMaxClockInfo", &parts->max_clock);
  parts->Find("nvmlDeviceGetUtilizationRates", &parts->utilization);
  parts->Find("nvmlDeviceGetNvLinkState", &parts->nvlink_state);
  parts->Find("nvmlDeviceGetNvLinkErrorCounter", &parts->nvlink_errors);
  parts->RegisterXids();
  return std::unique_ptr<Nvml>(new Nvml(std::move(parts)));
}

size_t Nvml::gpus() const {
  return parts_->gpus.size();
}

GpuReading Nvml::Read(size_t gpu) {
  Parts::Gpu* const asked = &parts_->gpus[gpu];
  asked->lost = false;
  GpuReading reading;
  parts_->ReadMemory(asked, &reading);
  parts_->ReadClocks(asked, &reading);
  parts_->ReadNvlinks(asked, &reading);
  if (asked->lost) reading = GpuReading{};
  reading.lost = asked->lost;
  reading.name = asked->name;
  return reading;
}

std::vector<Nvml::Xid> Nvml::TakeXids() {
  std::vector<Xid> xids;
  if (parts_->events == nullptr) return xids;
  parts_->note("the Xids of all GPUs");
  EventData data{};
  while (xids.size() < kMostXids && parts_->event_wait(parts_->events, &data, 0) == kSuccess) {
    if (data.type != kXidEvent) continue;
    for (const Parts::Gpu& gpu : parts_->gpus) {
      if (gpu.device == data.device) xids.push_back({gpu.name, data.data});
    }
  }
  return xids;
}

}  // namespace c4::agent
