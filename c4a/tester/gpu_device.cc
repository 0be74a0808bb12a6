#include "c4a/tester/gpu_device.h"

#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "c4a/tester/gpu_kernel.h"
#include "c4a/tester/gpu_library.h"
#include "service/text.h"

namespace c4::tester {
namespace {

using service::Concat;
using Clock = std::chrono::steady_clock;

// Matrices of that order, or less where the job has left little memory.
constexpr unsigned kOrders[] = {4096, 2048, 1024, 512};
constexpr unsigned kOwnKernelOrder = 1024;
constexpr int kInARow = 4;         // products between two looks at the clock
constexpr size_t kChecked = 4096;  // bytes of a result
// cuBLAS's and CUDA's numbers.
constexpr int kNoTranspose = 0;
constexpr int kDefaultAlgorithm = -1;

struct Precision {
  const char* name;
  size_t bytes;
  int type;
  int compute_type;
};
constexpr Precision kPrecisions[] = {
    {"fp64", 8, 1, 70}, {"fp32", 4, 0, 68}, {"tf32", 4, 0, 77}, {"fp16", 2, 2, 68}, {"bf16", 2, 14, 68}};

absl::Status Refused(const char* call, int code) {
  return absl::InternalError(Concat("the GPU cannot be tested: ", call, " gives ", code));
}

#define C4_CUDA(call, ...)                                \
  do {                                                    \
    const int code = cuda_.call(__VA_ARGS__);             \
    if (code != 0) return Refused("CUDA's " #call, code); \
  } while (0)

class Gpu final : public DeviceTest {
 public:
  explicit Gpu(const Cuda& cuda) : cuda_(cuda) {}

  absl::Status Open(int device) {
    char name[128] = "GPU";
    cuda_.device_name(name, sizeof name - 1, device);
    name_ = name;
    void* context = nullptr;
    C4_CUDA(retain_context, &context, device);
    C4_CUDA(set_context, context);
    cublas_ = FindCublas();
    if (cublas_.has_value() && cublas_->create(&handle_) != 0) cublas_.reset();
    name_ += cublas_.has_value() ? ", cuBLAS" : ", own kernel";
    C4_RETURN_IF_NOT_OK(Allocate());
    if (!cublas_.has_value()) C4_RETURN_IF_NOT_OK(LoadKernels());
    expected_.resize(std::size(kPrecisions));
    for (size_t i = 0; i < std::size(kPrecisions); ++i) {
      if (!Has(i)) continue;
      C4_RETURN_IF_NOT_OK(Multiply(i));
      C4_CUDA(synchronize);
      expected_[i].resize(kChecked);
      C4_CUDA(to_host, expected_[i].data(), c_, kChecked);
    }
    return absl::OkStatus();
  }

  std::string name() const override { return name_; }

  DeviceFigures Run(std::chrono::milliseconds time) override {
    DeviceFigures figures;
    std::vector<size_t> tests;
    std::vector<std::pair<std::string, std::vector<double>>> rates;
    for (size_t i = 0; i < std::size(kPrecisions); ++i) {
      if (!Has(i)) continue;
      tests.push_back(i);
      rates.emplace_back(kPrecisions[i].name, std::vector<double>());
    }
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < tests.size(); ++i) {
        const absl::StatusOr<double> rate = RateOf(tests[i], time / (kRounds * tests.size()));
        if (!rate.ok()) {
          figures.fault = std::string(rate.status().message());
          return figures;
        }
        rates[i].second.push_back(*rate);
      }
    }
    figures.gflops = MediansOf(rates);
    return figures;
  }

 private:
  // Our own kernel knows the first two.
  bool Has(size_t precision) const { return cublas_.has_value() || precision < 2; }

  absl::Status Allocate() {
    for (const unsigned order : kOrders) {
      if (!cublas_.has_value() && order > kOwnKernelOrder) continue;
      const size_t bytes = size_t{order} * order * 8;
      for (uint64_t* const matrix : {&a_, &b_, &c_}) {
        if (*matrix == 0 && cuda_.allocate(matrix, bytes) != 0) *matrix = 0;
      }
      if (a_ != 0 && b_ != 0 && c_ != 0) {
        order_ = order;
        // A pattern of small numbers in every precision.
        std::vector<uint16_t> fill(bytes / 2);
        for (size_t i = 0; i < fill.size(); ++i) fill[i] = static_cast<uint16_t>(0x3c00 + i % 64);
        C4_CUDA(to_device, a_, fill.data(), bytes);
        C4_CUDA(to_device, b_, fill.data(), bytes);
        return absl::OkStatus();
      }
      for (uint64_t* const matrix : {&a_, &b_, &c_}) {
        if (*matrix != 0) cuda_.free(*matrix);
        *matrix = 0;
      }
    }
    return absl::ResourceExhaustedError(
        "the GPU cannot be tested: the job has left no memory for three matrices");
  }

  absl::Status LoadKernels() {
    for (const bool doubles : {false, true}) {
      void* module = nullptr;
      C4_CUDA(load_module, &module, GemmPtx(doubles).c_str());
      C4_CUDA(get_function, &kernels_[doubles ? 1 : 0], module, GemmName(doubles).c_str());
    }
    return absl::OkStatus();
  }

  absl::Status Multiply(size_t precision) {
    const Precision& kind = kPrecisions[precision];
    const auto order = static_cast<int>(order_);
    if (cublas_.has_value()) {
      const double double_one = 1;
      const double double_zero = 0;
      const float one = 1;
      const float zero = 0;
      const bool doubles = kind.bytes == 8;
      const int code = cublas_->multiply(
          handle_, kNoTranspose, kNoTranspose, order, order, order,
          doubles ? static_cast<const void*>(&double_one) : &one, reinterpret_cast<const void*>(a_),
          kind.type, order, reinterpret_cast<const void*>(b_), kind.type, order,
          doubles ? static_cast<const void*>(&double_zero) : &zero, reinterpret_cast<void*>(c_), kind.type,
          order, kind.compute_type, kDefaultAlgorithm);
      return code == 0 ? absl::OkStatus() : Refused("cuBLAS", code);
    }
    uint64_t order_argument = order_;
    void* arguments[] = {&a_, &b_, &c_, &order_argument};
    const unsigned blocks = order_ / kGemmBlock;
    C4_CUDA(launch, kernels_[kind.bytes == 8 ? 1 : 0], blocks, blocks, 1, kGemmBlock, kGemmBlock, 1, 0,
            nullptr, arguments, nullptr);
    return absl::OkStatus();
  }

  // Of products for so long; DataLoss: the last one is wrong.
  absl::StatusOr<double> RateOf(size_t precision, Clock::duration time) {
    const auto began = Clock::now();
    int products = 0;
    do {
      for (int i = 0; i < kInARow; ++i) C4_RETURN_IF_NOT_OK(Multiply(precision));
      C4_CUDA(synchronize);
      products += kInARow;
    } while (Clock::now() < began + time);
    const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
    std::vector<char> result(kChecked);
    C4_CUDA(to_host, result.data(), c_, kChecked);
    if (result != expected_[precision]) {
      return absl::DataLossError(Concat("a ", kPrecisions[precision].name,
                                        " product is not what it was: the GPU or its memory errs"));
    }
    return products * 2.0 * order_ * order_ * order_ / seconds / 1e9;
  }

  const Cuda cuda_;
  std::optional<Cublas> cublas_;
  void* handle_ = nullptr;
  void* kernels_[2] = {};  // single, double precision
  std::string name_;
  unsigned order_ = 0;
  uint64_t a_ = 0;
  uint64_t b_ = 0;
  uint64_t c_ = 0;
  std::vector<std::vector<char>> expected_;  // by precision, the beginning of the first product
};

#undef C4_CUDA

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceTest>> OpenGpu(const GpuChoice& choice) {
  const std::optional<Cuda> cuda = FindCuda();
  int count = 0;
  if (!cuda.has_value() || cuda->init(0) != 0 || cuda->device_count(&count) != 0 || count == 0) {
    return absl::NotFoundError("there is no GPU here");
  }
  int device = 0;
  int code = 0;
  if (choice.kind == GpuChoice::kAuto) {
    char bus_id[32] = {};
    if (!BusIdOf(choice.pid, bus_id)) return absl::NotFoundError("the process computes on no GPU");
    code = cuda->device_of_bus(&device, bus_id);
  } else {
    if (choice.number >= count) {
      return absl::InvalidArgumentError(Concat("there is no GPU ", choice.number, ": there are ", count));
    }
    code = cuda->device_get(&device, choice.number);
  }
  if (code != 0) return absl::NotFoundError(Concat("the GPU cannot be opened (CUDA gives ", code, ")"));
  auto gpu = std::make_unique<Gpu>(*cuda);
  C4_RETURN_IF_NOT_OK(gpu->Open(device));
  return gpu;
}

}  // namespace c4::tester
