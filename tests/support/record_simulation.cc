// record_simulation FAULT TARGET FILE: writes a recording of a small simulated job that trains for 25 s, gets
// the fault for 12 s and goes on for 13 s. TARGET as for TrainingSim::Inject. What it writes is the same
// every time; tests/data/recordings/simulated-*.c4rec come from it.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "c4d_master/recording.h"
#include "tests/support/fault_trial.h"

namespace {

using c4::simulation::Fault;

std::optional<Fault> FaultOf(const char* name) {
  for (int fault = 0; fault <= static_cast<int>(Fault::kHiccups); ++fault) {
    if (strcmp(name, c4::simulation::FaultName(static_cast<Fault>(fault))) == 0)
      return static_cast<Fault>(fault);
  }
  return std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
  const std::optional<Fault> fault = argc == 4 ? FaultOf(argv[1]) : std::nullopt;
  if (!fault.has_value()) {
    fprintf(stderr, "usage: record_simulation FAULT TARGET FILE\n");
    return 2;
  }
  c4::simulation::TrainingShape shape;
  shape.data = 2;
  shape.queue_pairs = 2;
  shape.hosts_per_leaf = 2;
  c4::simulation::TrainingSim sim(shape, 7);
  auto writer = c4::c4d::RecordingWriter::Create(argv[3]);
  absl::Status status = writer.status();
  constexpr int kStepsPerSecond = 4;
  for (int step = 0; status.ok() && step < 50 * kStepsPerSecond; ++step) {
    if (step == 25 * kStepsPerSecond)
      sim.Inject(*fault, static_cast<uint32_t>(strtoul(argv[2], nullptr, 10)));
    if (step == 37 * kStepsPerSecond) sim.Heal();
    for (c4::v1::TelemetryBatch& batch : sim.Step()) {
      c4::v1::RecordedBatch recorded;
      recorded.set_arrival_monotonic_ns(sim.now_ns());
      recorded.set_arrival_unix_ns(sim.unix_ns());
      *recorded.mutable_batch() = std::move(batch);
      if (status.ok()) status = (*writer)->Write(recorded);
    }
  }
  if (status.ok()) status = (*writer)->Close();
  if (!status.ok()) fprintf(stderr, "record_simulation: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
