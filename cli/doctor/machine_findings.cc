// JudgeMachine: what follows for a job from what a machine has.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/doctor/machine_facts.h"

namespace c4::cli {
namespace {

constexpr uint64_t kMiB = 1 << 20;
// NCCL keeps some ten megabytes a rank and peer there, the data loaders of frameworks more; containers get
// 64 MiB when nobody asks for more.
constexpr uint64_t kLeastSharedBytes = 256 * kMiB;
constexpr uint64_t kUsualSharedBytes = 1024 * kMiB;
constexpr uint64_t kLeastFreeBytes = 64 * kMiB;
// A connection has one to eight files; an all-to-all makes a connection to every rank.
constexpr uint64_t kLeastOpenFiles = 4096;
// Threads count as well: a rank of a framework has some hundreds.
constexpr uint64_t kLeastProcesses = 4096;

std::string SizeText(uint64_t bytes) {
  if (bytes == kUnlimited) return "unlimited";
  if (bytes < 1024 * kMiB) {
    return absl::StrFormat("%.0f MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
  }
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / static_cast<double>(1024 * kMiB));
}

std::string CountText(uint64_t count) {
  return count == kUnlimited ? "unlimited" : absl::StrCat(count);
}

Finding SharedMemory(const MachineFacts& facts) {
  const char* const subject = "shm";
  const std::string larger =
      "docker run --shm-size=8g or --ipc=host; Kubernetes: an emptyDir of medium Memory";
  if (!facts.shared_memory.has_value()) {
    return {Grade::kProblem, subject, "there is no /dev/shm: neither NCCL nor C4 can share memory", larger};
  }
  const auto [total_bytes, free_bytes] = *facts.shared_memory;
  const std::string text =
      absl::StrCat("/dev/shm: ", SizeText(free_bytes), " free of ", SizeText(total_bytes));
  if (total_bytes < kLeastSharedBytes) {
    return {Grade::kProblem, subject, text + ": too little for the ranks of a node", larger};
  }
  if (free_bytes < kLeastFreeBytes) {
    return {Grade::kProblem, subject, text + ": as good as full",
            "remove what ended jobs left there (ls -lt /dev/shm)"};
  }
  if (total_bytes < kUsualSharedBytes) {
    return {Grade::kNote, subject, text + ": little for eight ranks and their data loaders", larger};
  }
  return {Grade::kOk, subject, text, ""};
}

void AddLimits(const MachineFacts& facts, Findings* findings) {
  std::string good;
  const auto fine = [&good](const std::string& text) {
    absl::StrAppend(&good, good.empty() ? "" : ", ", text);
  };
  if (const auto& limit = facts.open_files) {
    const std::string text = absl::StrCat("open files: ", CountText(limit->soft));
    if (limit->soft >= kLeastOpenFiles) {
      fine(text);
    } else if (limit->hard >= kLeastOpenFiles) {
      // NCCL raises its own limit to the hard one.
      findings->push_back({Grade::kNote, "limits", text + ": few for a large job; NCCL raises it itself",
                           "ulimit -n 65536; docker run --ulimit nofile=65536"});
    } else {
      findings->push_back({Grade::kProblem, "limits",
                           absl::StrCat(text, ", at most ", limit->hard, ": too few for a large job"),
                           "docker run --ulimit nofile=65536; LimitNOFILE= of the service"});
    }
  }
  if (const auto& limit = facts.locked_memory_bytes) {
    const std::string text = absl::StrCat("locked memory: ", SizeText(limit->soft));
    if (limit->soft == kUnlimited || facts.rdma.empty()) {
      fine(text);
    } else {
      findings->push_back({Grade::kProblem, "limits", text + ": RDMA locks every buffer that it uses",
                           "ulimit -l unlimited; docker run --ulimit memlock=-1; LimitMEMLOCK=infinity"});
    }
  }
  if (const auto& limit = facts.processes) {
    const std::string text = absl::StrCat("processes and threads: ", CountText(limit->soft));
    if (limit->soft >= kLeastProcesses) {
      fine(text);
    } else {
      findings->push_back({Grade::kProblem, "limits", text + ": too few for the ranks of a node",
                           "ulimit -u unlimited; LimitNPROC= of the service"});
    }
  }
  if (!good.empty()) findings->push_back({Grade::kOk, "limits", good, ""});
}

void AddClock(const MachineFacts& facts, Findings* findings) {
  std::string good;
  const auto fine = [&good](const std::string& text) {
    absl::StrAppend(&good, good.empty() ? "" : ", ", text);
  };
  if (facts.invariant_tsc.has_value()) {
    if (*facts.invariant_tsc) {
      fine("invariant TSC");
    } else {
      findings->push_back({Grade::kNote, "clock",
                           "the TSC is not invariant: events are stamped by the kernel's clock, which takes "
                           "three times as long",
                           ""});
    }
  }
  const bool slow = facts.clock_source == "hpet" || facts.clock_source == "acpi_pm" ||
                    facts.clock_source == "jiffies" || facts.clock_source == "refined-jiffies";
  if (slow) {
    findings->push_back(
        {Grade::kProblem, "clock",
         absl::StrCat("clock source ", facts.clock_source,
                      ": reading the time takes a microsecond, in NCCL as well"),
         "find in dmesg why the kernel does not trust the TSC; boot with tsc=reliable if it may"});
  } else if (!facts.clock_source.empty()) {
    fine("clock source " + facts.clock_source);
  }
  if (facts.clock_synchronised.has_value()) {
    if (*facts.clock_synchronised) {
      fine("synchronised");
    } else {
      findings->push_back(
          {Grade::kNote, "clock",
           "not synchronised with the world: C4 relates the nodes' clocks itself, but logs of "
           "several nodes will not fit together",
           "start chrony or ntpd, or PTP"});
    }
  }
  if (!good.empty()) findings->push_back({Grade::kOk, "clock", good, ""});
}

Finding Gpu(const MachineFacts& facts) {
  if (facts.gpu_driver.empty() && facts.gpus == 0) {
    return {Grade::kNote, "gpu", "no NVIDIA driver: only the host engine (C4_ENGINE=host) can run here", ""};
  }
  if (facts.gpus == 0) {
    return {Grade::kProblem, "gpu",
            absl::StrCat("NVIDIA driver ", facts.gpu_driver, ", and no /dev/nvidia0: no GPU is given to us"),
            "docker run --gpus all; on the machine itself: nvidia-modprobe"};
  }
  return {Grade::kOk, "gpu",
          absl::StrCat("NVIDIA driver ",
                       facts.gpu_driver.empty() ? "(not seen from this container)" : facts.gpu_driver, ", ",
                       facts.gpus, facts.gpus == 1 ? " GPU" : " GPUs"),
          ""};
}

Finding Rdma(const MachineFacts& facts) {
  if (facts.rdma.empty()) {
    return {Grade::kNote, "rdma", "no RDMA device: between nodes data goes over TCP", ""};
  }
  std::vector<std::string> names;
  std::vector<std::string> down;
  int active = 0;
  for (const RdmaDevice& device : facts.rdma) {
    names.push_back(device.name);
    active += device.active_ports;
    if (device.active_ports < device.ports) down.push_back(device.name);
  }
  const std::string all = absl::StrJoin(names, ", ");
  if (facts.verbs_devices == 0) {
    return {Grade::kProblem, "rdma",
            absl::StrCat(all, ", and no /dev/infiniband/uverbs*: NCCL will fall back to sockets"),
            "docker run --device=/dev/infiniband; on the machine itself: modprobe ib_uverbs"};
  }
  if (active == 0) {
    return {Grade::kProblem, "rdma", absl::StrCat(all, ": no port is active"),
            "look at cables and switch ports (ibstat, rdma link)"};
  }
  if (!down.empty()) {
    return {Grade::kNote, "rdma",
            absl::StrCat(all, "; ports that are not active: of ", absl::StrJoin(down, ", ")), ""};
  }
  // Until the verbs backend is there (docs/plans/c1.md).
  return {Grade::kOk, "rdma", absl::StrCat(all, ": active; NCCL's own transport drives them"), ""};
}

}  // namespace

Findings JudgeMachine(const MachineFacts& facts) {
  Findings findings = {SharedMemory(facts)};
  AddLimits(facts, &findings);
  AddClock(facts, &findings);
  findings.push_back(Gpu(facts));
  findings.push_back(Rdma(facts));
  return findings;
}

}  // namespace c4::cli
