// S3 as the master sees a job: what is measured of it becomes a placement, and that what each process does.
#include "c4d_master/mitigation/placement_offer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using HostPair = std::pair<std::string, std::string>;

// Two groups of two stages of `tensor` ranks, a host a worker, numbered as the trainer does: tensor ranks
// side by side, then stages, then groups. Gradients are a hundred times as large as activations.
struct Job {
  explicit Job(int tensor = 1) {
    for (int number = 0; number < 4 * tensor; ++number) {
      const int place = number / tensor;
      PlacedProcess& process = processes.emplace_back();
      process.process = {"host" + std::to_string(place), static_cast<uint32_t>(number)};
      process.worker.set_dp_rank(static_cast<uint32_t>(place / 2));
      process.worker.set_stage(static_cast<uint32_t>(place % 2));
      process.worker.set_tp_rank(static_cast<uint32_t>(number % tensor));
      process.worker.set_dp_size(2);
      process.worker.set_pp_size(2);
      process.worker.set_tp_size(static_cast<uint32_t>(tensor));
      process.worker.set_cp_size(1);
      process.micro_batch_s = 0.03;
      process.micro_batches = 4;
      ranks[process.process] = number;
    }
    for (const PlacedProcess& a : processes) {
      for (const PlacedProcess& b : processes) {
        if (a.worker.tp_rank() != b.worker.tp_rank() || a.process == b.process) continue;
        if (a.worker.stage() == b.worker.stage()) per_step[{a.process, b.process}] = 1e7;
        if (a.worker.dp_rank() == b.worker.dp_rank()) per_step[{a.process, b.process}] = 1e5;
      }
    }
  }
  void Cell(const std::string& from, const std::string& to, double ratio) {
    v1::MatrixCell* const cell = matrix.add_cells();
    cell->set_from_host(from);
    cell->set_to_host(to);
    cell->set_ratio(ratio);
    cell->set_slow(ratio > 2);
  }
  PlacementOffer Offer(double healthy_s = 0.2, double iteration_s = 1) const {
    return OfferPlacement(processes, ranks, per_step, matrix, healthy_s, iteration_s);
  }
  const PlacedProcess& Of(int rank) const { return processes[static_cast<size_t>(rank)]; }

  std::vector<PlacedProcess> processes;
  std::map<HostPid, int32_t> ranks;
  BytesByPair<double> per_step;
  v1::GetMatrixReply matrix;
};

std::string Name(const v1::WorkerPlace& place) {
  return std::to_string(place.dp_rank()) + "." + std::to_string(place.stage()) + "." +
         std::to_string(place.tp_rank());
}

TEST(PlacementOffer, GradientsLeaveTheSlowLink) {
  Job job;
  job.Cell("host0", "host2", 10);
  job.Cell("host2", "host0", 9);
  job.Cell("host1", "host3", 1.1);
  const PlacementOffer offer = job.Offer();
  ASSERT_EQ(offer.unavailable, "");
  EXPECT_LT(offer.promised_s, 0.25);
  EXPECT_GE(offer.promised_s, 0.2 - 1e-9);
  EXPECT_GT(offer.cost_s, 1);
  EXPECT_THAT(offer.what, HasSubstr("from host"));
  ASSERT_EQ(offer.steps.size(), 4u);
  const v1::WorkerPlace& first = offer.steps.at(job.Of(0).process).next;
  const v1::WorkerPlace& third = offer.steps.at(job.Of(2).process).next;
  EXPECT_NE(first.stage(), third.stage()) << Name(first) << " and " << Name(third);
}

// Whoever sends is received from, and the other one becomes what it was; tensor ranks stay together.
TEST(PlacementOffer, WhatEachProcessDoesFitsTogether) {
  for (const int tensor : {1, 2}) {
    Job job(tensor);
    job.Cell("host0", "host2", 10);
    const PlacementOffer offer = job.Offer();
    ASSERT_EQ(offer.unavailable, "");
    std::set<std::string> next;
    int moved = 0;
    for (const PlacedProcess& process : job.processes) {
      const PlacementStep& step = offer.steps.at(process.process);
      EXPECT_EQ(Name(step.now), Name(process.worker));
      EXPECT_EQ(step.next.tp_rank(), process.worker.tp_rank());
      next.insert(Name(step.next));
      EXPECT_EQ(step.first_micro_batch, 4 * static_cast<int64_t>(step.next.dp_rank()));
      EXPECT_EQ(step.micro_batches, 4);
      EXPECT_EQ(step.send_to < 0, Name(step.now) == Name(step.next));
      EXPECT_EQ(step.send_to < 0, step.receive_from < 0);
      if (step.send_to < 0) continue;
      ++moved;
      const PlacementStep& taker = offer.steps.at(job.Of(step.send_to).process);
      EXPECT_EQ(taker.receive_from, job.ranks.at(process.process));
      EXPECT_EQ(Name(taker.next), Name(step.now));
      EXPECT_EQ(Name(offer.steps.at(job.Of(step.receive_from).process).now), Name(step.next));
    }
    EXPECT_EQ(next.size(), job.processes.size());
    EXPECT_GE(moved, 2 * tensor);
  }
}

TEST(PlacementOffer, WithoutAnythingSlowThereIsNone) {
  Job job;
  job.Cell("host0", "host2", 1.2);
  EXPECT_EQ(job.Offer().unavailable, "no link and no worker is known to be slower than the others");
}

TEST(PlacementOffer, EquallySlowWorkersStayWhereTheyAre) {
  Job job;
  for (PlacedProcess& process : job.processes) process.micro_batch_s = 0.09;
  EXPECT_EQ(job.Offer().unavailable, "no link and no worker is known to be slower than the others");
}

TEST(PlacementOffer, AStragglerThatIsAsSlowEverywhereStays) {
  Job job;
  job.processes[0].micro_batch_s = 0.09;
  const PlacementOffer offer = job.Offer();
  // One straggler of four workers, each on a node of its own: nowhere is it better.
  EXPECT_EQ(offer.unavailable, "no other placement would be better");
}

TEST(PlacementOffer, ASlowDownThatTheLinkCannotHaveMadeIsNotPutDownToIt) {
  Job job;
  for (auto& [ends, bytes] : job.per_step) bytes /= 1e6;
  job.Cell("host0", "host2", 10);
  EXPECT_THAT(job.Offer(0.2, 1000).unavailable, HasSubstr("does not explain the slow-down"));
}

TEST(PlacementOffer, SaysWhatStandsInTheWay) {
  Job unknown;
  unknown.ranks[unknown.Of(2).process] = -1;
  EXPECT_THAT(unknown.Offer().unavailable, HasSubstr("rank of every process"));
  Job parted(2);
  parted.ranks.erase(parted.processes[1].process);
  parted.processes[1].process.first = "host7";
  parted.ranks[parted.processes[1].process] = 1;
  EXPECT_THAT(parted.Offer().unavailable, HasSubstr("on several hosts"));
  Job uneven;
  uneven.processes[1].process.first = "host0";
  uneven.ranks[uneven.processes[1].process] = 1;
  EXPECT_THAT(uneven.Offer().unavailable, HasSubstr("different numbers of workers"));
  Job interleaved;
  for (PlacedProcess& process : interleaved.processes) process.worker.set_vpp_size(2);
  EXPECT_THAT(interleaved.Offer().unavailable, HasSubstr("interleaved"));
  EXPECT_THAT(OfferPlacement({}, {}, {}, {}, 1, 2).unavailable, HasSubstr("no process"));
}

TEST(PlacementOffer, APairThatCarriesNothingIsAsSlowAsItsEnds) {
  Job job;
  job.Cell("host0", "host2", 10);
  job.Cell("host1", "host3", 6);
  job.Cell("host0", "host1", 1);
  // host0 to host3 and host1 to host2 carry nothing: nobody has measured them.
  EXPECT_THAT(SlowHostPairs(job.matrix, job.per_step),
              ElementsAre(Pair(HostPair{"host0", "host2"}, 10), Pair(HostPair{"host0", "host3"}, 6),
                          Pair(HostPair{"host1", "host2"}, 6), Pair(HostPair{"host1", "host3"}, 6)));
}

TEST(JobTraffic, IsToldByCountersOfQueuePairs) {
  FakeJob job(3);
  QueuePair pair;
  pair.peer = 2;
  pair.sends = true;
  pair.completed_bytes = 1000;
  job.membership(0).queue_pairs = {pair, pair};
  pair.sends = false;
  job.membership(2).queue_pairs = {pair};
  const JobTraffic before = TrafficOf(job.hosts());
  const std::pair<HostPid, HostPid> ends = {{"host0", 1000}, {"host2", 1002}};
  ASSERT_EQ(before.completed_bytes.size(), 1u);
  EXPECT_EQ(before.completed_bytes.at(ends), 2000u);
  EXPECT_EQ(before.ranks.size(), 3u);
  job.membership(0).queue_pairs[1].completed_bytes += 600;
  EXPECT_THAT(BytesPerStep(before, TrafficOf(job.hosts()), 3), ElementsAre(Pair(ends, 200.0)));
  // Made anew: nothing can be told yet.
  job.membership(0).queue_pairs[1].completed_bytes = 0;
  EXPECT_THAT(BytesPerStep(before, TrafficOf(job.hosts()), 3), IsEmpty());
  EXPECT_THAT(BytesPerStep(before, before, 0), IsEmpty());
  // The vendor's engine shows the same bytes once more.
  QueuePair whole = job.membership(0).queue_pairs[0];
  whole.carrier = Carrier::kVendor;
  whole.completed_bytes = 1100;
  job.membership(0).queue_pairs.push_back(whole);
  EXPECT_EQ(TrafficOf(job.hosts()).completed_bytes.at(ends), 1100u);
}

}  // namespace
}  // namespace c4::c4d
