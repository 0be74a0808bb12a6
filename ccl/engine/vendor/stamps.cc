#include "ccl/engine/vendor/stamps.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <mutex>
#include <sched.h>
#include <sys/mman.h>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/base/log.h"
#include "ccl/engine/vendor/stamp_reader.h"
#include "ccl/monitor/monitor.h"

namespace c4::vendor {

// A GPU that stamps are made on; its module holds the counters. Kept for good.
struct Stamps::Device {
  int ordinal = 0;
  CudaDriver driver;
  CudaContext context = nullptr;
  void* function = nullptr;
  Result fault;               // why it cannot be stamped on
  std::vector<Stamps*> made;  // each with a counter
  std::vector<Stamps*> free;
};

namespace {

constexpr uint64_t kTryNs = 1'000'000'000;
constexpr size_t kRingBytes = Stamps::kRecords * sizeof(StampRecord);

// Of devices, and which stamps are free. A set-up is rare and takes milliseconds.
std::mutex& SetUp() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

}  // namespace

Stamps::Stamps(Device* device, uint32_t counter, uint64_t ticks_per_second)
    : device_(device), counter_(counter), book_(ticks_per_second) {}

Result Stamps::Load(Device* device) {
  CudaDriver& driver = device->driver;
  C4_RETURN_IF_ERROR(FindCudaDriver(&driver));
  const OutsideCaptures outside(driver);
  int number = 0;
  if (const CudaStatus status = driver.device_get(&number, device->ordinal); status != 0) {
    return CudaRefused(driver, "cuDeviceGet", status);
  }
  // The vendor's library works in this context; it is there already.
  if (const CudaStatus status = driver.retain_context(&device->context, number); status != 0) {
    return CudaRefused(driver, "cuDevicePrimaryCtxRetain", status);
  }
  const InContext in(driver, device->context);
  if (in.status() != 0) return CudaRefused(driver, "cuCtxPushCurrent", in.status());
  void* module = nullptr;
  if (const CudaStatus status = driver.load_module(&module, kStampPtx); status != 0) {
    return CudaRefused(driver, "cuModuleLoadData", status);
  }
  if (const CudaStatus status = driver.get_function(&device->function, module, kStampFunction); status != 0) {
    return CudaRefused(driver, "cuModuleGetFunction", status);
  }
  return Ok();
}

Result Stamps::Prepare(int ordinal, Device** device) {
  static auto* const devices = new std::vector<Device*>;
  const auto found = std::find_if(devices->begin(), devices->end(),
                                  [&](const Device* known) { return known->ordinal == ordinal; });
  if (found == devices->end()) {
    auto* const made = new Device;
    made->ordinal = ordinal;
    made->fault = Load(made);
    devices->push_back(made);
    *device = made;
  } else {
    *device = *found;
  }
  return (*device)->fault;
}

Result Stamps::MapRing() {
  const CudaDriver& driver = device_->driver;
  // Shared, so that a fork does not part the GPU's pages from ours.
  void* const data = mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return Fail(ncclSystemError, "no %zu bytes of memory: %s", kRingBytes, ErrnoText(errno).c_str());
  }
  ring_ = static_cast<StampRecord*>(data);
  madvise(data, kRingBytes, MADV_DONTFORK);
  if (const CudaStatus status = driver.register_host(data, kRingBytes, kCudaHostPortable | kCudaHostMapped);
      status != 0) {
    return CudaRefused(driver, "cuMemHostRegister", status);
  }
  if (const CudaStatus status = driver.device_pointer(&ring_on_device_, data, 0); status != 0) {
    return CudaRefused(driver, "cuMemHostGetDevicePointer", status);
  }
  return Ok();
}

// One stamp on a stream of our own: whether the kernel runs here and is seen to. It is of no batch.
Result Stamps::Try() {
  const CudaDriver& driver = device_->driver;
  CudaStream stream = nullptr;
  if (const CudaStatus status = driver.create_stream(&stream, kCudaStreamNonBlocking); status != 0) {
    return CudaRefused(driver, "cuStreamCreate", status);
  }
  CudaStatus status = Launch(reinterpret_cast<uint64_t>(stream), StampBook::kNoTag) ? kCudaNotReady : 1;
  const uint64_t deadline = MonotonicNs() + kTryNs;
  while (status == kCudaNotReady && MonotonicNs() < deadline) {
    sched_yield();
    status = driver.query_stream(stream);
  }
  driver.destroy_stream(stream);
  if (broken_.load(std::memory_order_relaxed))
    return Fail(ncclUnhandledCudaError, "the kernel cannot be launched");
  if (status != 0) return CudaRefused(driver, "our kernel", status);
  StampRecord record;
  if (!ReadOne(&record) || record.tag != StampBook::kNoTag) {
    return Fail(ncclInternalError, "what our kernel writes is not seen");
  }
  return Ok();
}

Result Stamps::Open(int ordinal, ObservedCommunicator* communicator, Stamps** stamps) {
  const std::lock_guard<std::mutex> lock(SetUp());
  Device* device = nullptr;
  C4_RETURN_IF_ERROR(Prepare(ordinal, &device));
  Stamps* opened = nullptr;
  if (!device->free.empty()) {
    opened = device->free.front();  // the one that was closed longest ago
    device->free.erase(device->free.begin());
  } else {
    if (device->made.size() == kStampCounters) {
      return Fail(ncclSystemError, "more than %u communicators of one GPU", kStampCounters);
    }
    opened = new Stamps(device, static_cast<uint32_t>(device->made.size()),
                        Monitor::Get().segment().header().ticks_per_second);
    device->made.push_back(opened);
    const OutsideCaptures outside(device->driver);
    const InContext in(device->driver, device->context);
    if (in.status() != 0) return CudaRefused(device->driver, "cuCtxPushCurrent", in.status());
    // What fails stays as it is: the GPU may know of it.
    C4_RETURN_IF_ERROR(opened->MapRing());
    C4_RETURN_IF_ERROR(opened->Try());
    C4_RETURN_IF_ERROR(StampReader::Get().Add(opened));
  }
  const std::lock_guard<BriefLock> brief(opened->lock_);
  opened->book_.Open(communicator);
  *stamps = opened;
  return Ok();
}

void Stamps::Close() {
  Poll();
  uint64_t lost = 0;
  StampBook::Counts counts;
  {
    const std::lock_guard<BriefLock> brief(lock_);
    counts = book_.counts();
    lost = std::exchange(lost_, 0);
    book_.Close();
    later_.clear();
    later_count_.store(0, std::memory_order_release);
  }
  C4_INFO("stamps: %llu read, %llu launches of graphs, %llu of no call, %llu lost",
          static_cast<unsigned long long>(counts.read), static_cast<unsigned long long>(counts.replayed),
          static_cast<unsigned long long>(counts.strange), static_cast<unsigned long long>(lost));
  const std::lock_guard<std::mutex> lock(SetUp());
  if (!broken_.load(std::memory_order_relaxed)) device_->free.push_back(this);
}

bool Stamps::Takes(uint64_t stream, bool* captured) {
  int status = kCudaCaptureNone;
  // Asking about the default stream while another captures is itself a fault: then nothing is to be launched.
  if (device_->driver.is_capturing(std::bit_cast<CudaStream>(stream), &status) != 0) return false;
  *captured = status == kCudaCaptureActive;
  return *captured || status == kCudaCaptureNone;
}

bool Stamps::Launch(uint64_t stream, uint64_t tag) {
  const CudaDriver& driver = device_->driver;
  uint64_t ring = ring_on_device_;
  uint64_t mask = kRecords - 1;
  uint64_t counter = counter_;
  void* arguments[] = {&ring, &mask, &counter, &tag};
  const InContext in(driver, device_->context);
  const CudaStatus status = in.status() != 0
                                ? in.status()
                                : driver.launch_kernel(device_->function, 1, 1, 1, 1, 1, 1, 0,
                                                       std::bit_cast<CudaStream>(stream), arguments, nullptr);
  if (status == 0) return true;
  const bool of_a_capture = status >= kCudaFirstCaptureFault && status <= kCudaLastCaptureFault;
  if (!of_a_capture && !broken_.exchange(true)) {
    C4_WARN("kernel times end here: our stamp cannot be launched: %s (%d)", driver.NameOf(status), status);
  }
  return false;
}

StampedBatch Stamps::Before(uint64_t stream, const StampedCall* calls, size_t count) {
  bool captured = false;
  if (broken_.load(std::memory_order_relaxed) || !Takes(stream, &captured)) return {};
  uint64_t tag = StampBook::kNoTag;
  {
    const std::lock_guard<BriefLock> lock(lock_);
    tag = book_.Begin(calls, count, captured, NowTicks());
  }
  if (tag == StampBook::kNoTag) return {};
  const StampedBatch batch{this, tag, stream};
  if (!Launch(stream, tag)) {
    Cancel(batch);
    return {};
  }
  StampReader::Get().Wake();
  return batch;
}

void Stamps::After(const StampedBatch& batch) {
  if (!Launch(batch.stream, batch.tag | StampBook::kAfter)) Cancel(batch);
}

void Stamps::Cancel(const StampedBatch& batch) {
  const std::lock_guard<BriefLock> lock(lock_);
  book_.Cancel(batch.tag);
}

void Stamps::Later(const StampedBatch& batch) {
  const std::lock_guard<BriefLock> lock(lock_);
  later_.push_back(batch);
  later_count_.fetch_add(1, std::memory_order_release);
}

void Stamps::Settle(bool launched) {
  std::vector<StampedBatch> settled;
  {
    const std::lock_guard<BriefLock> lock(lock_);
    settled.swap(later_);
    later_count_.store(0, std::memory_order_release);
  }
  for (const StampedBatch& batch : settled) {
    if (launched) {
      After(batch);
    } else {
      Cancel(batch);
    }
  }
}

// With the lock, but in the set-up. The GPU writes while we read: the number tells whether a record is whole.
bool Stamps::ReadOne(StampRecord* record) {
  for (;;) {
    StampRecord& at = ring_[next_ % kRecords];
    const uint64_t seen = __atomic_load_n(&at.number_plus_one, __ATOMIC_ACQUIRE);
    if (seen < next_ + 1) return false;
    if (seen > next_ + 1) {
      // It has gone round since; what is still there begins about here.
      const uint64_t oldest = seen - 1 > kRecords / 2 ? seen - 1 - kRecords / 2 : 0;
      const uint64_t to = std::max(next_ + 1, oldest);
      lost_ += to - next_;
      next_ = to;
      continue;
    }
    record->gpu_ns = __atomic_load_n(&at.gpu_ns, __ATOMIC_RELAXED);
    record->tag = __atomic_load_n(&at.tag, __ATOMIC_RELAXED);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (__atomic_load_n(&at.number_plus_one, __ATOMIC_RELAXED) != seen) continue;
    record->number_plus_one = seen;
    ++next_;
    return true;
  }
}

Stamps::More Stamps::Poll() {
  const std::lock_guard<BriefLock> lock(lock_);
  StampRecord record;
  while (ReadOne(&record)) book_.Read(record.tag, record.gpu_ns, NowTicks());
  return book_.waits() ? More::kSoon : book_.has_captured() ? More::kAnyTime : More::kWhenAsked;
}

StampBook::Counts Stamps::counts() {
  const std::lock_guard<BriefLock> lock(lock_);
  return book_.counts();
}

}  // namespace c4::vendor
