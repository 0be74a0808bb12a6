#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <vector>

#include "c4a/tester/device_test.h"
#include "service/text.h"

namespace c4::tester {
namespace {

using service::Concat;
using Clock = std::chrono::steady_clock;

constexpr int kOrder = 256;  // of the matrices: they fit into a cache of today's
constexpr double kFlop = 2.0 * kOrder * kOrder * kOrder;
constexpr size_t kElements = static_cast<size_t>(kOrder) * kOrder;
// CBLAS's numbers.
constexpr int kRowMajor = 101;
constexpr int kNoTranspose = 111;

using Single = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float,
                        float*, int);
using Double = void (*)(int, int, int, int, int, int, double, const double*, int, const double*, int, double,
                        double*, int);
using Brain = void (*)(int, int, int, int, int, int, float, const uint16_t*, int, const uint16_t*, int, float,
                       float*, int);

struct Library {
  Single single = nullptr;
  Double dual = nullptr;
  Brain brain = nullptr;
  void (*set_threads)(int) = nullptr;
};

// Values whose products and sums are exact in any order, so that threads may share a product as they like.
template <typename T>
void Fill(std::vector<T>* matrix, int seed) {
  for (size_t i = 0; i < matrix->size(); ++i) {
    (*matrix)[i] = static_cast<T>(static_cast<int>((i * 31 + static_cast<size_t>(seed) * 7) % 15) - 7);
  }
}

// The upper half of a float.
std::vector<uint16_t> ToBrain(const std::vector<float>& matrix) {
  std::vector<uint16_t> halves;
  for (const float value : matrix) {
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    halves.push_back(static_cast<uint16_t>(bits >> 16));
  }
  return halves;
}

class Cpu final : public DeviceTest {
 public:
  Cpu(const Library& library, int threads) : library_(library), threads_(threads) {
    if (library_.set_threads != nullptr) library_.set_threads(threads);
    Fill(&single_a_, 1);
    Fill(&single_b_, 2);
    Fill(&double_a_, 1);
    Fill(&double_b_, 2);
    brain_a_ = ToBrain(single_a_);
    brain_b_ = ToBrain(single_b_);
    Multiply("fp32");
    Multiply("fp64");
    expected_ = single_c_;
    expected_double_ = double_c_;
  }

  std::string name() const override {
    return Concat("CPU, ", threads_, threads_ == 1 ? " thread" : " threads");
  }

  DeviceFigures Run(std::chrono::milliseconds time) override {
    DeviceFigures figures;
    std::vector<std::string> tests = {"fp32", "fp64"};
    if (library_.brain != nullptr) tests.emplace_back("bf16");
    std::vector<std::pair<std::string, std::vector<double>>> rates;
    for (const std::string& test : tests) rates.emplace_back(test, std::vector<double>());
    for (int round = 0; round < kRounds; ++round) {
      for (auto& [test, of_test] : rates) {
        of_test.push_back(RateOf(test, time / (kRounds * tests.size())));
        if (IsRight(test)) continue;
        figures.fault = Concat("a ", test, " product is not what it was: the processor or its memory errs");
        return figures;
      }
    }
    figures.gflops = MediansOf(rates);
    return figures;
  }

 private:
  double RateOf(const std::string& test, Clock::duration time) {
    const auto began = Clock::now();
    int products = 0;
    do {
      Multiply(test);
      ++products;
    } while (Clock::now() < began + time);
    return products * kFlop / std::chrono::duration<double>(Clock::now() - began).count() / 1e9;
  }
  void Multiply(const std::string& test) {
    if (test == "fp64") {
      library_.dual(kRowMajor, kNoTranspose, kNoTranspose, kOrder, kOrder, kOrder, 1, double_a_.data(),
                    kOrder, double_b_.data(), kOrder, 0, double_c_.data(), kOrder);
    } else if (test == "bf16") {
      library_.brain(kRowMajor, kNoTranspose, kNoTranspose, kOrder, kOrder, kOrder, 1, brain_a_.data(),
                     kOrder, brain_b_.data(), kOrder, 0, single_c_.data(), kOrder);
    } else {
      library_.single(kRowMajor, kNoTranspose, kNoTranspose, kOrder, kOrder, kOrder, 1, single_a_.data(),
                      kOrder, single_b_.data(), kOrder, 0, single_c_.data(), kOrder);
    }
  }
  bool IsRight(const std::string& test) const {
    if (test == "fp64") {
      return memcmp(double_c_.data(), expected_double_.data(), kElements * sizeof(double)) == 0;
    }
    return memcmp(single_c_.data(), expected_.data(), kElements * sizeof(float)) == 0;
  }

  const Library library_;
  const int threads_;
  std::vector<float> single_a_ = std::vector<float>(kElements);
  std::vector<float> single_b_ = std::vector<float>(kElements);
  std::vector<float> single_c_ = std::vector<float>(kElements);
  std::vector<double> double_a_ = std::vector<double>(kElements);
  std::vector<double> double_b_ = std::vector<double>(kElements);
  std::vector<double> double_c_ = std::vector<double>(kElements);
  std::vector<uint16_t> brain_a_;
  std::vector<uint16_t> brain_b_;
  std::vector<float> expected_;
  std::vector<double> expected_double_;
};

template <typename Function>
bool Load(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, name));
  return *function != nullptr;
}

}  // namespace

std::vector<std::pair<std::string, double>> MediansOf(
    const std::vector<std::pair<std::string, std::vector<double>>>& rates) {
  std::vector<std::pair<std::string, double>> medians;
  for (const auto& [test, of_test] : rates) {
    std::vector<double> sorted = of_test;
    std::sort(sorted.begin(), sorted.end());
    medians.emplace_back(test, sorted[sorted.size() / 2]);
  }
  return medians;
}

absl::StatusOr<std::unique_ptr<DeviceTest>> OpenCpu(int threads) {
  void* handle = nullptr;
  for (const char* const name : {"libopenblas.so.0", "libopenblas.so"}) {
    if (handle == nullptr) handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  Library library;
  if (handle == nullptr || !Load(handle, "cblas_sgemm", &library.single) ||
      !Load(handle, "cblas_dgemm", &library.dual)) {
    return absl::NotFoundError("there is no OpenBLAS to test processors with: install libopenblas0-pthread");
  }
  Load(handle, "cblas_sbgemm", &library.brain);
  Load(handle, "openblas_set_num_threads", &library.set_threads);
  return std::make_unique<Cpu>(library, threads);
}

}  // namespace c4::tester
