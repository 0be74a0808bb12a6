// S3 in a job as the master sees it: its workers where they run, what an iteration carries from one to
// another (job_traffic.h), which links C4D finds slower than usual (the latency matrix). Makes the model of
// it (analysis/mitigation/iteration_model.h), looks for a better placement, and says what each process has to
// do.
//
// The model's numbers are measured but for the speed of a healthy link, for which there is no measure that
// counts everything that shares it: it is the one with which the model is as much slower as the job is. A
// backward pass counts as two forward ones; ranks of a host reach each other for nothing.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "c4/v1/c4d.pb.h"
#include "c4/v1/telemetry.pb.h"
#include "c4d_master/mitigation/job_traffic.h"

namespace c4::c4d {

struct PlacedProcess {
  HostPid process;
  v1::WorkerPlace worker;     // that it is now
  double micro_batch_s = 0;   // that it computes for one
  int64_t micro_batches = 0;  // of its data-parallel group
};

// What one process is told.
struct PlacementStep {
  v1::WorkerPlace now;
  v1::WorkerPlace next;
  int32_t send_to = -1;  // the job's ranks; -1: nobody
  int32_t receive_from = -1;
  int64_t first_micro_batch = 0;
  int64_t micro_batches = 0;
};

struct PlacementOffer {
  std::string unavailable;  // why there is none, a sentence
  double cost_s = 0;        // an estimate: one iteration for new communicators, and the exchange of state
  double promised_s = 0;    // an iteration with it
  std::string what;         // who changes places, a sentence
  std::map<HostPid, PlacementStep> steps;  // of all processes
};

// How many times as long as usual data takes between two hosts (the lesser name first), where it is slow. A
// pair that carries hardly anything tells nothing by itself: it counts as slow where both its ends have slow
// links, since these may share what is slow.
std::map<std::pair<std::string, std::string>, double> SlowHostPairs(const v1::GetMatrixReply& matrix,
                                                                    const BytesByPair<double>& per_step);

// `processes`: all of the layout. `ranks`: the job's, by process.
PlacementOffer OfferPlacement(const std::vector<PlacedProcess>& processes,
                              const std::map<HostPid, int32_t>& ranks, const BytesByPair<double>& per_step,
                              const v1::GetMatrixReply& matrix, double healthy_s, double iteration_s);

}  // namespace c4::c4d
