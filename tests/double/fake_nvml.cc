#include "tests/double/fake_nvml.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

enum Code : int {
  kSuccess = 0,
  kUninitialized = 1,
  kNotSupported = 3,
  kInsufficientSize = 7,
  kTimeout = 10,
  kDriverNotLoaded = 9
};
constexpr int kGpus = 2;

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, uint64_t> values[kGpus];
  int failure[kGpus] = {};
  std::deque<std::pair<int, uint64_t>> xids;
  std::set<std::string> without;
  std::set<const void*> enrolled;
  int initialized = 0;
  bool hang = false;
};

State& TheState() {
  static State* const state = new State;  // threads may hang in here at the end
  return *state;
}

int IndexOf(const void* device) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(device)) - 1;
}

// The value of that name, as the library would give it.
int Give(const void* device, const std::string& what, uint64_t* value) {
  State& state = TheState();
  std::unique_lock lock(state.mutex);
  state.changed.wait(lock, [&] { return !state.hang; });
  if (state.initialized == 0) return kUninitialized;
  const int gpu = IndexOf(device);
  if (gpu < 0 || gpu >= kGpus) return 2;  // invalid argument
  if (state.failure[gpu] != 0) return state.failure[gpu];
  const auto found = state.values[gpu].find(what);
  if (found == state.values[gpu].end()) return kNotSupported;
  *value = found->second;
  return kSuccess;
}

int GiveInt(const void* device, const char* what, unsigned int* value) {
  uint64_t wide = 0;
  const int code = Give(device, what, &wide);
  *value = static_cast<unsigned int>(wide);
  return code;
}

struct EventData {
  void* device;
  unsigned long long type;
  unsigned long long data;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};

}  // namespace

FAKE_EXPORT void fake_nvml_reset() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  for (auto& values : state.values) {
    values = {{"ecc_uncorrected", 0}, {"ecc_corrected", 0},   {"retired_pages", 0}, {"remapped_rows", 0},
              {"throttle", 0},        {"temperature", 40},    {"slowdown", 90},     {"clock", 1980},
              {"max_clock", 1980},    {"utilization", 0},     {"nvlinks", 4},       {"nvlink_down", 0},
              {"nvlink_replay", 0},   {"nvlink_recovery", 0}, {"nvlink_crc", 0}};
  }
  for (int& failure : state.failure) failure = 0;
  state.xids.clear();
  state.without.clear();
  state.hang = false;
  state.changed.notify_all();
}

FAKE_EXPORT void fake_nvml_set(int gpu, const char* what, uint64_t value) {
  const std::lock_guard lock(TheState().mutex);
  TheState().values[gpu][what] = value;
}

FAKE_EXPORT void fake_nvml_xid(int gpu, uint64_t number) {
  const std::lock_guard lock(TheState().mutex);
  TheState().xids.emplace_back(gpu, number);
}

FAKE_EXPORT void fake_nvml_fail(int gpu, int code) {
  const std::lock_guard lock(TheState().mutex);
  TheState().failure[gpu] = code;
}

FAKE_EXPORT void fake_nvml_without(const char* what) {
  const std::lock_guard lock(TheState().mutex);
  TheState().without.insert(what);
}

FAKE_EXPORT void fake_nvml_hang(int hang) {
  const std::lock_guard lock(TheState().mutex);
  TheState().hang = hang != 0;
  TheState().changed.notify_all();
}

FAKE_EXPORT int nvmlInit_v2() {
  const std::lock_guard lock(TheState().mutex);
  if (TheState().without.contains("driver")) return kDriverNotLoaded;
  ++TheState().initialized;
  return kSuccess;
}

FAKE_EXPORT int nvmlShutdown() {
  const std::lock_guard lock(TheState().mutex);
  if (TheState().initialized == 0) return kUninitialized;
  --TheState().initialized;
  return kSuccess;
}

FAKE_EXPORT int nvmlDeviceGetCount_v2(unsigned int* count) {
  const std::lock_guard lock(TheState().mutex);
  *count = TheState().without.contains("gpus") ? 0 : kGpus;
  return kSuccess;
}

FAKE_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  if (index >= kGpus) return 2;
  *device = reinterpret_cast<void*>(static_cast<uintptr_t>(index) + 1);
  return kSuccess;
}

FAKE_EXPORT int nvmlDeviceGetTotalEccErrors(void* device, int sort, int counter, unsigned long long* count) {
  uint64_t value = 0;
  if (counter != 0) return kNotSupported;  // the volatile ones alone
  const int code = Give(device, sort == 1 ? "ecc_uncorrected" : "ecc_corrected", &value);
  *count = value;
  return code;
}

// All of one cause; without room it tells how many there are.
FAKE_EXPORT int nvmlDeviceGetRetiredPages(void* device, int cause, unsigned int* count,
                                          unsigned long long* addresses) {
  uint64_t pages = 0;
  const int code = Give(device, "retired_pages", &pages);
  if (code != kSuccess) return code;
  if (cause != 0) pages = 0;
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(pages);
  return pages > room || (pages > 0 && addresses == nullptr) ? kInsufficientSize : kSuccess;
}

FAKE_EXPORT int nvmlDeviceGetRemappedRows(void* device, unsigned int* corrected, unsigned int* uncorrected,
                                          unsigned int* pending, unsigned int* failed) {
  *corrected = *pending = *failed = 0;
  return GiveInt(device, "remapped_rows", uncorrected);
}

FAKE_EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  uint64_t value = 0;
  const int code = Give(device, "throttle", &value);
  *reasons = value;
  return code;
}

FAKE_EXPORT int nvmlDeviceGetTemperature(void* device, int sensor, unsigned int* degrees) {
  return sensor == 0 ? GiveInt(device, "temperature", degrees) : static_cast<int>(kNotSupported);
}

FAKE_EXPORT int nvmlDeviceGetTemperatureThreshold(void* device, int threshold, unsigned int* degrees) {
  return threshold == 1 ? GiveInt(device, "slowdown", degrees) : static_cast<int>(kNotSupported);
}

FAKE_EXPORT int nvmlDeviceGetClockInfo(void* device, int clock, unsigned int* mhz) {
  return clock == 1 ? GiveInt(device, "clock", mhz) : static_cast<int>(kNotSupported);
}

FAKE_EXPORT int nvmlDeviceGetMaxClockInfo(void* device, int clock, unsigned int* mhz) {
  return clock == 1 ? GiveInt(device, "max_clock", mhz) : static_cast<int>(kNotSupported);
}

FAKE_EXPORT int nvmlDeviceGetUtilizationRates(void* device, unsigned int* rates) {
  rates[1] = 0;
  return GiveInt(device, "utilization", &rates[0]);
}

FAKE_EXPORT int nvmlDeviceGetNvLinkState(void* device, unsigned int link, int* active) {
  uint64_t links = 0;
  uint64_t down = 0;
  const int code = Give(device, "nvlinks", &links);
  if (code != kSuccess) return code;
  if (link >= links) return kNotSupported;
  (void)Give(device, "nvlink_down", &down);
  *active = down == link + 1 ? 0 : 1;
  return kSuccess;
}

// All on link 0.
FAKE_EXPORT int nvmlDeviceGetNvLinkErrorCounter(void* device, unsigned int link, int counter,
                                                unsigned long long* value) {
  static const char* const kNames[] = {"nvlink_replay", "nvlink_recovery", "nvlink_crc", "nvlink_crc"};
  uint64_t errors = 0;
  const int code = Give(device, kNames[counter & 3], &errors);
  *value = link == 0 && counter != 3 ? errors : 0;
  return code;
}

FAKE_EXPORT int nvmlEventSetCreate(void** set) {
  const std::lock_guard lock(TheState().mutex);
  if (TheState().without.contains("events")) return kNotSupported;
  *set = &TheState();
  TheState().enrolled.clear();
  return kSuccess;
}

FAKE_EXPORT int nvmlDeviceRegisterEvents(void* device, unsigned long long types, void* set) {
  const std::lock_guard lock(TheState().mutex);
  if (set != &TheState() || types != 0x8) return 2;
  TheState().enrolled.insert(device);
  return kSuccess;
}

FAKE_EXPORT int nvmlEventSetWait_v2(void* set, EventData* data, unsigned int /*timeout_ms*/) {
  const std::lock_guard lock(TheState().mutex);
  if (set != &TheState() || TheState().xids.empty()) return kTimeout;
  const auto [gpu, number] = TheState().xids.front();
  TheState().xids.pop_front();
  *data = {reinterpret_cast<void*>(static_cast<uintptr_t>(gpu) + 1), 0x8, number, 0xFFFFFFFF, 0xFFFFFFFF};
  return TheState().enrolled.contains(data->device) ? kSuccess : kTimeout;
}

FAKE_EXPORT int nvmlEventSetFree(void* /*set*/) {
  return kSuccess;
}
