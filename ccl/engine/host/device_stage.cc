#include "ccl/engine/host/device_stage.h"

#include <algorithm>

#include "ccl/base/clock.h"
#include "ccl/engine/host/operations.h"

namespace c4::host {
namespace {

constexpr uint64_t kLookNs = 1000000000;
constexpr size_t kAlignment = 64;

uint64_t AddressOf(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

size_t Aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

DeviceStage::~DeviceStage() {
  if (pinned_ == nullptr) return;
  const InContext in(driver_, contexts_.begin()->second);
  (void)driver_.free_host(pinned_);  // a process that ends has no driver any more
}

bool DeviceStage::IsNeeded() {
  if (found_) return true;
  const uint64_t now_ns = MonotonicNs();
  if (look_ns_ != 0 && now_ns - look_ns_ < kLookNs) return false;
  look_ns_ = now_ns;
  found_ = FindCudaDriver(&driver_).ok();
  return found_;
}

bool DeviceStage::IsOfDevice(const void* pointer, int* device) const {
  unsigned type = 0;
  unsigned managed = 0;
  int ordinal = -1;
  int attributes[] = {kCudaMemoryType, kCudaIsManaged, kCudaDeviceOrdinal};
  void* values[] = {&type, &managed, &ordinal};
  // Whoever never began to use CUDA has no memory of a GPU.
  if (driver_.pointer_attributes(3, attributes, values, AddressOf(pointer)) != 0) return false;
  *device = ordinal;
  return type == kCudaMemoryOfDevice && managed == 0;
}

size_t DeviceStage::Place(const Operation& operation, int rank, int rank_count, size_t used) {
  Stretch read{AddressOf(operation.send_buffer), BytesRead(operation, rank, rank_count), -1, used};
  Stretch written{AddressOf(operation.recv_buffer), BytesWritten(operation, rank, rank_count), -1, used};
  const bool reads = read.bytes != 0 && IsOfDevice(operation.send_buffer, &read.device);
  const bool writes = written.bytes != 0 && IsOfDevice(operation.recv_buffer, &written.device);
  const bool one =
      reads && writes && read.at < written.at + written.bytes && written.at < read.at + read.bytes;
  if (one) {
    const uint64_t from = std::min(read.at, written.at);
    read.offset = used + (read.at - from);
    written.offset = used + (written.at - from);
    used = Aligned(std::max(read.offset + read.bytes, written.offset + written.bytes));
  } else {
    if (reads) used = Aligned(used + read.bytes);
    written.offset = used;
    if (writes) used = Aligned(used + written.bytes);
  }
  if (reads) read_.push_back(read);
  if (writes) written_.push_back(written);
  return used;
}

Result DeviceStage::Enter(Operation* operations, size_t count, int rank, int rank_count) {
  read_.clear();
  written_.clear();
  size_t bytes = 0;
  std::vector<std::pair<size_t, size_t>> places;  // of each operation, among what is read and written
  for (size_t i = 0; i < count; ++i) {
    places.emplace_back(read_.size(), written_.size());
    bytes = Place(operations[i], rank, rank_count, bytes);
  }
  if (bytes == 0) return Ok();
  C4_RETURN_IF_ERROR(MakeRoom(bytes));
  places.emplace_back(read_.size(), written_.size());
  for (size_t i = 0; i < count; ++i) {
    const auto [read, written] = places[i];
    if (places[i + 1].first != read) operations[i].send_buffer = pinned_ + read_[read].offset;
    if (places[i + 1].second != written) operations[i].recv_buffer = pinned_ + written_[written].offset;
  }
  return Move(read_, true);
}

Result DeviceStage::ContextOf(int device, CudaContext* context) {
  const auto known = contexts_.find(device);
  if (known != contexts_.end()) {
    *context = known->second;
    return Ok();
  }
  int handle = 0;
  if (const CudaStatus status = driver_.device_get(&handle, device); status != 0) {
    return CudaRefused(driver_, "cuDeviceGet", status);
  }
  if (const CudaStatus status = driver_.retain_context(context, handle); status != 0) {
    return CudaRefused(driver_, "cuDevicePrimaryCtxRetain", status);
  }
  contexts_[device] = *context;
  return Ok();
}

Result DeviceStage::MakeRoom(size_t bytes) {
  if (bytes <= pinned_bytes_) return Ok();
  if (bytes > most_bytes_) {
    return Fail(ncclInvalidUsage,
                "an operation on %zu bytes of GPU memory needs as much pinned memory of the host, and "
                "C4_STAGE_BYTES allows %zu: raise it, or call for less at a time",
                bytes, most_bytes_);
  }
  CudaContext context = nullptr;
  C4_RETURN_IF_ERROR(ContextOf((read_.empty() ? written_ : read_).front().device, &context));
  const OutsideCaptures outside(driver_);
  const InContext in(driver_, context);
  if (in.status() != 0) return CudaRefused(driver_, "cuCtxPushCurrent", in.status());
  if (pinned_ != nullptr) (void)driver_.free_host(pinned_);
  pinned_ = nullptr;
  pinned_bytes_ = 0;
  void* made = nullptr;
  // Twice as much where that is little: operations tend to grow while a program finds its shape.
  const size_t wanted = std::min(most_bytes_, std::max(bytes, std::min<size_t>(2 * bytes, 16 << 20)));
  if (const CudaStatus status = driver_.allocate_host(&made, wanted, kCudaHostPortable); status != 0) {
    return Fail(ncclUnhandledCudaError,
                "no %zu bytes of pinned memory of the host for buffers in GPU memory: %s (%d); call for less "
                "at a time",
                wanted, driver_.NameOf(status), status);
  }
  pinned_ = static_cast<char*>(made);
  pinned_bytes_ = wanted;
  return Ok();
}

Result DeviceStage::Move(const std::vector<Stretch>& stretches, bool to_host) {
  for (const Stretch& stretch : stretches) {
    CudaContext context = nullptr;
    C4_RETURN_IF_ERROR(ContextOf(stretch.device, &context));
    const OutsideCaptures outside(driver_);
    const InContext in(driver_, context);
    if (in.status() != 0) return CudaRefused(driver_, "cuCtxPushCurrent", in.status());
    char* const place = pinned_ + stretch.offset;
    const CudaStatus status = to_host ? driver_.copy_to_host(place, stretch.at, stretch.bytes)
                                      : driver_.copy_to_device(stretch.at, place, stretch.bytes);
    if (status != 0) return CudaRefused(driver_, to_host ? "cuMemcpyDtoH" : "cuMemcpyHtoD", status);
  }
  return Ok();
}

}  // namespace c4::host
