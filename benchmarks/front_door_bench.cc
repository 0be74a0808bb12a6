// What the front door costs: calls of a double of the vendor's library directly, and the same through us, in
// turns within one run. Bar: 50 ns a call. The double does nothing, so that the difference is the door.
//
//   front_door_bench [DOUBLE]   path of the double; default: tests/doubles/bench_nccl.so beside bin/
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <vector>

#include "ccl/include/nccl.h"

namespace {

constexpr int kCalls = 200000;
constexpr int kRounds = 41;

using Clock = std::chrono::steady_clock;

template <typename Call>
double NsPerCall(Call call) {
  const auto from = Clock::now();
  for (int i = 0; i < kCalls; ++i) call();
  return std::chrono::duration<double, std::nano>(Clock::now() - from).count() / kCalls;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

template <typename Direct, typename Through>
void Compare(const char* name, Direct direct, Through through) {
  std::vector<double> without;
  std::vector<double> with;
  std::vector<double> difference;
  for (int round = 0; round < kRounds; ++round) {
    without.push_back(NsPerCall(direct));
    with.push_back(NsPerCall(through));
    difference.push_back(with.back() - without.back());
  }
  printf("%-28s %8.1f %8.1f %8.1f\n", name, Median(without), Median(with), Median(difference));
}

template <typename Function>
Function Find(void* library, const char* name) {
  auto* const found = reinterpret_cast<Function>(dlsym(library, name));
  if (found == nullptr) {
    fprintf(stderr, "error: no %s\n", name);
    exit(1);  // NOLINT(concurrency-mt-unsafe)
  }
  return found;
}

void* Open(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fprintf(stderr, "error: %s\n", dlerror());  // NOLINT(concurrency-mt-unsafe)
    exit(1);                                    // NOLINT(concurrency-mt-unsafe)
  }
  return library;
}

std::string BuildFolder(const char* program) {
  const std::string path = program;
  const size_t slash = path.rfind('/');
  return (slash == std::string::npos ? std::string(".") : path.substr(0, slash)) + "/..";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string build = BuildFolder(argv[0]);
  const std::string path = argc > 1 ? argv[1] : build + "/tests/doubles/bench_nccl.so";
  // NOLINTBEGIN(concurrency-mt-unsafe)
  setenv("C4_VENDOR_LIBRARY", path.c_str(), 1);
  setenv("C4_ENGINE", "vendor", 1);
  setenv("C4_RUN_DIR", "/dev/shm/c4-front-door-bench", 0);
  // NOLINTEND(concurrency-mt-unsafe)
  void* const vendor = Open(path);
  void* const ours = Open(build + "/lib/libnccl.so.2");
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  if (Find<decltype(&ncclGetUniqueId)>(ours, "ncclGetUniqueId")(&id) != ncclSuccess ||
      Find<decltype(&ncclCommInitRank)>(ours, "ncclCommInitRank")(&comm, 2, id, 0) != ncclSuccess) {
    fprintf(stderr, "error: no communicator\n");
    return 1;
  }
  const auto all_reduce = [&](void* library) {
    return [call = Find<decltype(&ncclAllReduce)>(library, "ncclAllReduce"), comm] {
      call(nullptr, nullptr, 1, ncclFloat32, ncclSum, comm, nullptr);
    };
  };
  const auto send_receive = [&](void* library) {
    return [start = Find<decltype(&ncclGroupStart)>(library, "ncclGroupStart"),
            end = Find<decltype(&ncclGroupEnd)>(library, "ncclGroupEnd"),
            send = Find<decltype(&ncclSend)>(library, "ncclSend"),
            recv = Find<decltype(&ncclRecv)>(library, "ncclRecv"), comm] {
      start();
      send(nullptr, 1, ncclFloat32, 1, comm, nullptr);
      recv(nullptr, 1, ncclFloat32, 1, comm, nullptr);
      end();
    };
  };
  const auto async_error = [&](void* library) {
    return [call = Find<decltype(&ncclCommGetAsyncError)>(library, "ncclCommGetAsyncError"), comm] {
      ncclResult_t error;
      call(comm, &error);
    };
  };
  const auto count = [&](void* library) {
    return [call = Find<decltype(&ncclCommCount)>(library, "ncclCommCount"), comm] {
      int ranks;
      call(comm, &ranks);
    };
  };
  printf("%-28s %8s %8s %8s   ns, medians of %d rounds of %d\n", "call", "direct", "through", "cost", kRounds,
         kCalls);
  Compare("ncclAllReduce", all_reduce(vendor), all_reduce(ours));
  Compare("group of send and receive", send_receive(vendor), send_receive(ours));
  Compare("ncclCommGetAsyncError", async_error(vendor), async_error(ours));
  Compare("ncclCommCount", count(vendor), count(ours));
  return 0;
}
