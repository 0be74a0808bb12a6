// c4-validate-worker: tests one device and the links from it, as it is told (protocol.h). Started by the
// node's agent in the place of a rank, so to say: as its user, on its processors, in its control group, on
// its GPU; and by `c4 validate --preflight`. It never touches the rank itself, and ends with its input.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <sys/prctl.h>
#include <thread>
#include <vector>

#include "c4a/tester/device_test.h"
#include "c4a/tester/gpu_device.h"
#include "c4a/tester/protocol.h"
#include "c4a/tester/transfer.h"
#include "service/text.h"
#include "service/version.h"

namespace c4::tester {
namespace {

constexpr char kUsage[] =
    "usage: c4-validate-worker [--threads N] [--gpu N|none|auto] [--of-pid PID] [--version]\n"
    "Tests a device and its links as it is told on its standard input (c4a/tester/protocol.h); started by "
    "c4a\n"
    "and by c4 validate.\n";

struct Options {
  int threads = 1;
  GpuChoice gpu;
};

// The exit code; -1: go on.
int ReadOptions(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (word == "--version")
      return printf("c4-validate-worker %s\n", std::string(service::Version()).c_str()), 0;
    if (word == "--help" || word == "-h") return fputs(kUsage, stdout), 0;
    char* end = nullptr;
    const long number = value == nullptr ? -1 : strtol(value, &end, 10);
    const bool is_number =
        value != nullptr && end != value && *end == '\0' && number >= 0 && number < 1 << 30;
    if (word == "--threads" && is_number && number >= 1 && number <= 1024) {
      options->threads = static_cast<int>(number);
    } else if (word == "--of-pid" && is_number) {
      options->gpu.pid = static_cast<unsigned>(number);
    } else if (word == "--gpu" && value != nullptr && strcmp(value, "none") == 0) {
      options->gpu.kind = GpuChoice::kNone;
    } else if (word == "--gpu" && value != nullptr && strcmp(value, "auto") == 0) {
      options->gpu.kind = GpuChoice::kAuto;
    } else if (word == "--gpu" && is_number) {
      options->gpu.kind = GpuChoice::kNumber;
      options->gpu.number = static_cast<int>(number);
    } else {
      fprintf(stderr, "c4-validate-worker: '%s' is not understood\n%s", argv[i], kUsage);
      return 64;
    }
    ++i;
  }
  return -1;
}

void Say(const Answer& answer) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::string line = ToLine(answer) + "\n";
  fwrite(line.data(), 1, line.size(), stdout);
  fflush(stdout);
}

absl::StatusOr<std::unique_ptr<DeviceTest>> OpenDevice(const Options& options) {
  if (options.gpu.kind != GpuChoice::kNone) {
    absl::StatusOr<std::unique_ptr<DeviceTest>> gpu = OpenGpu(options.gpu);
    if (gpu.ok() || options.gpu.kind == GpuChoice::kNumber || !absl::IsNotFound(gpu.status())) return gpu;
  }
  return OpenCpu(options.threads);
}

int Main(int argc, char** argv) {
  Options options;
  if (const int code = ReadOptions(argc, argv, &options); code >= 0) return code;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Receiver receiver;
  absl::StatusOr<std::unique_ptr<DeviceTest>> device = OpenDevice(options);
  absl::Status status = device.status();
  if (status.ok()) status = receiver.Start();
  if (!status.ok()) {
    Say(Fault{std::string(status.message())});
    return 1;
  }
  Say(Ready{receiver.port(), (*device)->name()});
  std::vector<std::thread> transfers;
  for (std::string line; std::getline(std::cin, line);) {
    const absl::StatusOr<Order> order = ParseOrder(line);
    if (!order.ok()) {
      Say(Fault{std::string(order.status().message())});
      return 1;
    }
    if (const auto* devices = std::get_if<DeviceOrder>(&*order)) {
      Say((*device)->Run(std::chrono::milliseconds(devices->ms)));
    } else {
      transfers.emplace_back([transfer = std::get<TransferOrder>(*order)] { Say(SendTransfer(transfer)); });
    }
  }
  for (std::thread& transfer : transfers) transfer.join();
  return 0;
}

}  // namespace
}  // namespace c4::tester

int main(int argc, char** argv) {
  return c4::tester::Main(argc, argv);
}
