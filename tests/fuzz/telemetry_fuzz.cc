// What an agent may send to the master of a job: batches, one after the other, each with its length before it
// (two bytes, the lower one first) or, where none fits, the whole input as one. Refused with a sentence, or
// taken in; then the job is judged. Nothing may throw.
#include <cstdint>
#include <google/protobuf/stubs/logging.h>
#include <memory>
#include <string>
#include <string_view>

#include "c4d_master/c4d_handler.h"
#include "tests/fuzz/check.h"

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

struct Master {
  c4::c4d::VerdictStore store{":memory:"};
  c4::service::Metrics metrics;
  c4::c4d::C4dHandler handler{{.job = "job", .master_epoch = 1, .policy = {}}, &store, &metrics};
  c4::c4d::Now now{1000 * kSecondNs, 2000 * kSecondNs};

  void Take(std::string_view bytes) {
    c4::v1::TelemetryBatch batch;
    if (!batch.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
    for (c4::v1::ProcessReport& process : *batch.mutable_processes()) {
      if (process.job().size() < 16) process.set_job("job");  // else it is another job's, and refused at once
    }
    for (c4::v1::ProcessChanges& changes : *batch.mutable_changes()) {
      if (changes.has_whole() && changes.whole().job().size() < 16) changes.mutable_whole()->set_job("job");
    }
    const auto reply = handler.Ingest(batch, now);
    if (!reply.ok()) C4_FUZZ_CHECK(!reply.status().message().empty());
    now.monotonic_ns += kSecondNs;
    now.unix_ns += kSecondNs;
    handler.Tick(now);
  }
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*count*/, char*** /*arguments*/) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  Master master;
  master.Take(rest);
  while (rest.size() > 2) {
    const size_t length = static_cast<uint8_t>(rest[0]) | static_cast<size_t>(static_cast<uint8_t>(rest[1]))
                                                              << 8;
    rest.remove_prefix(2);
    if (length > rest.size()) break;
    master.Take(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  for (int second = 0; second < 5; ++second) {
    master.now.monotonic_ns += kSecondNs;
    master.now.unix_ns += kSecondNs;
    master.handler.Tick(master.now);
  }
  (void)master.handler.GetStatus(master.now);
  (void)master.handler.GetMatrix(master.now);
  (void)master.handler.ListVerdicts(true);
  return 0;
}
