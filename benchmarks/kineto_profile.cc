#include "benchmarks/kineto_profile.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>

namespace c4::benchmarks {
namespace {

using whatif::OperationRecord;
using whatif::OperationType;

constexpr int64_t kAhead_ns = 1000000;  // the CPU before the GPU
constexpr int64_t kFirst_ns = 5000000;

int64_t Start_ns(const OperationRecord& record) {
  return kFirst_ns + std::llround(record.start_s * 1e9);
}

int64_t Duration_ns(const OperationRecord& record) {
  return std::llround(static_cast<double>(record.duration_s) * 1e9);
}

class Writer {
 public:
  explicit Writer(const std::function<void(std::string_view)>& put) : put_(put) {}

  void Text(const std::string& text) {
    text_ += text;
    constexpr size_t kPiece = 1 << 20;
    if (text_.size() >= kPiece) Flush();
  }
  void Flush() {
    put_(text_);
    text_.clear();
  }
  void Event(const char* category, const std::string& name, const char* thread, int64_t start_ns,
             int64_t duration_ns, const std::string& args) {
    char times[100];
    snprintf(times, sizeof times, "\"ts\": %" PRId64 ".%03" PRId64 ", \"dur\": %" PRId64 ".%03" PRId64,
             start_ns / 1000, start_ns % 1000, duration_ns / 1000, duration_ns % 1000);
    Text(std::string(first_ ? "\n" : ",\n") + "  {\n    \"ph\": \"X\", \"cat\": \"" + category +
         "\", \"name\": \"" + name + "\", " + thread + ",\n    " + times + ",\n    \"args\": {" + args +
         "}\n  }");
    first_ = false;
  }

 private:
  const std::function<void(std::string_view)>& put_;
  std::string text_;
  bool first_ = true;
};

constexpr char kCpu[] = R"("pid": 4711, "tid": 4711)";
constexpr char kGpu[] = R"("pid": 0, "tid": 7)";

void WriteOperation(const OperationRecord& record, int external_id, Writer* writer) {
  const auto type = static_cast<OperationType>(record.type);
  const int64_t start_ns = Start_ns(record);
  const int64_t duration_ns = Duration_ns(record);
  if (type == OperationType::kParamsAllGather || type == OperationType::kGradsReduceScatter) {
    const bool gather = type == OperationType::kParamsAllGather;
    writer->Event("kernel",
                  gather ? "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
                         : "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                  kGpu, start_ns, duration_ns,
                  R"("Process Group Description": "DATA_PARALLEL_GROUP_WITH_CP", "Collective name": ")" +
                      std::string(gather ? "_allgather_base" : "_reduce_scatter_base") +
                      R"(", "stream": 20, "In msg nelems": 1048576)");
    return;
  }
  std::string name = whatif::OperationName(type);
  if (whatif::IsCompute(type)) {
    name += " mb=" + std::to_string(record.micro_batch) + " chunk=" + std::to_string(record.chunk);
  }
  const std::string id = "\"External id\": " + std::to_string(external_id);
  // What collects garbage stops the program, not the device.
  if (type == OperationType::kGc) {
    writer->Event("user_annotation", name, kCpu, start_ns, duration_ns, id);
    return;
  }
  writer->Event("user_annotation", name, kCpu, std::max<int64_t>(0, start_ns - kAhead_ns), duration_ns / 3,
                id);
  if (!whatif::IsCompute(type)) {
    writer->Event("gpu_user_annotation", name, kGpu, start_ns, duration_ns, id);
    return;
  }
  // Kernels of one mark on two streams.
  writer->Event("gpu_user_annotation", name, kGpu, start_ns, duration_ns - duration_ns / 4, id);
  const int64_t later_ns = start_ns + duration_ns / 2;
  writer->Event("gpu_user_annotation", name, R"("pid": 0, "tid": 20)", later_ns,
                start_ns + duration_ns - later_ns, id);
}

void WritePadding(const OperationRecord& record, int number, Writer* writer) {
  writer->Event(
      "cpu_op", "aten::mm", kCpu, Start_ns(record) + number, 20123,
      "\"External id\": " + std::to_string(number) +
          R"(, "Record function id": 0, "Concrete Inputs": ["", ""], "Input type": ["float", "float"],)"
          R"( "Input Strides": [[1, 4096], [4096, 1]], "Input Dims": [[8192, 4096], [4096, 4096]], "Ev Idx": )" +
          std::to_string(number));
}

}  // namespace

void WriteKinetoProfile(const whatif::TraceRecords& records, const KinetoProfile& profile,
                        const std::function<void(std::string_view)>& put) {
  Writer writer(put);
  writer.Text(
      "{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [{\"id\": 0, \"name\": \"GPU\"}],\n  "
      "\"distributedInfo\": {\"backend\": \"nccl\", \"rank\": " +
      std::to_string(profile.written_rank) + ", \"world_size\": " + std::to_string(profile.world_size) +
      "},\n  \"baseTimeNanoseconds\": 1711900800000000000,\n  \"displayTimeUnit\": \"ms\",\n  "
      "\"traceEvents\": [");
  std::map<int32_t, std::pair<int64_t, int64_t>> steps;
  int external_id = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    const OperationRecord& record = records[i];
    if (record.rank != profile.rank) continue;
    const int64_t start_ns = Start_ns(record);
    const auto [step, fresh] = steps.try_emplace(record.step, start_ns, start_ns);
    step->second.first = std::min(step->second.first, start_ns);
    step->second.second = std::max(step->second.second, start_ns + Duration_ns(record));
    for (int number = 0; number < profile.padding; ++number) WritePadding(record, number, &writer);
    WriteOperation(record, ++external_id, &writer);
  }
  for (const auto& [number, interval] : steps) {
    const std::string name = "ProfilerStep#" + std::to_string(number);
    const int64_t lasted_ns = interval.second - interval.first;
    writer.Event("user_annotation", name, kCpu, interval.first - 2 * kAhead_ns, lasted_ns + 3 * kAhead_ns,
                 "");
    writer.Event("gpu_user_annotation", name, kGpu, interval.first, lasted_ns, "");
  }
  writer.Text("\n  ],\n  \"traceName\": \"trace.json\"\n}\n");
  writer.Flush();
}

}  // namespace c4::benchmarks
