// Slow: a network path whose chunks take much longer than they used to, and a rank whose own time between
// operations has grown while nobody else's has. docs/verdicts.md has the rules and the reasons.
//
// Where C4P tells the paths, the link that slow connections share is named in their place. Paths on which the
// transport lost its patience lately speak as well where the slow ones alone do not tell.
//
// Pure functions of the snapshot and the windows, but for the questions to the PathSource (nullptr: none),
// which never waits; any thread; no errors.
#pragma once

#include <vector>

#include "c4d_master/detectors/blame_link.h"
#include "c4d_master/finding.h"
#include "c4d_master/job_snapshot.h"
#include "c4d_master/windows.h"

namespace c4::c4d {

struct SlowThresholds {
  double share = 0.25;        // the quantile: three chunks of four are slower still
  double own_factor = 2.5;    // to the same quantile of the connection's baseline
  double usual_share = 0.85;  // of the baseline: where its bad chunks begin
  // What the vendor's engine tells of a peer holds all its channels: one on a bad path shows in an upper
  // quantile only.
  double upper_share = 0.8;
  double upper_usual_share = 0.95;
  double bad_factor = 1.25;    // to that: good chunks now are worse than bad ones were
  double matrix_factor = 2.0;  // to the median of that ratio over the job
  double matrix_most = 8.0;    // from here on that does not matter: no job slows its chunks so by itself
  // To the median of its communicator, where there is no baseline: a queue pair that was starved from the
  // start, which shows after a while only.
  double blind_factor = 10.0;
  double blind_chunks =
      3;  // in the window: a queue pair that is hardly used pays for every pause of its ends
  size_t blind_slices = 20;
  double nic_share = 0.6;  // of a NIC's populated cells
  // Without addresses a NIC or node is blamed where it leaves no larger share of what is slow.
  double unaddressed_rest = 0.2;
  double min_chunks = 3;
  double min_usual_chunks = 16;
  double late_factor = 1.8;       // of a rank's own time to its baseline
  double late_high = 1.25;        // and to what that now and then comes to: steps have phases
  double late_mean_factor = 1.2;  // of the mean without the slices that one pause may have spoilt
  double late_alone = 1.5;        // to the second of the job
  double late_cycle_share = 0.2;  // the growth, of all the time that an operation takes
  double late_wait = 0.1;         // of the growth: who is late waits no longer for first data than the median
  double late_whole = 0.75;       // of a node's or a communicator's ranks, so that it counts as a whole
  double late_few = 0.25;         // of the job's ranks: that many may be late each by itself
  double late_suspect = 1.4;      // from here on a rank explains slow cells that touch it
  double late_suspect_alone = 1.25;  // to the second, for that
  double blind_late_median = 2.0;
  size_t blind_late_slices = 30;
  size_t late_persist = 2;      // slices for which a rank must have been late
  size_t alone_persist = 5;     // the same, of a single queue pair
  size_t persist = 3;           // slices for which it must have lasted
  size_t own_persist = 3;       // or, where chunks are rare, slices with some
  size_t again_slices = 2;      // slices in a row with chunks in which each must have been slow, at least
  double chance_a_day = 0.01;   // of queue pairs that are so by chance, as the job scatters; else more slices
  size_t fade = 7;              // slices for which a NIC that was slow explains what touches it
  double scattered_factor = 5;  // of a few ways that nothing joins, to what is usual for them
  size_t link_unique = 2;       // slices in which a link alone explained it, so that it is certain
  // Operations that take longer though nobody comes late to them (slow_inside.h).
  double inside_factor = 1.8;          // to what is usual for the communicator
  double inside_sisters = 1.5;         // to the growth of those of its kind
  double inside_alone_factor = 2.5;    // to what is usual, where there are no three of its kind
  double inside_share = 0.1;           // of all time, that they take longer
  double inside_network = 1.5;         // queue pairs that have grown less are well
  int64_t fenced_ns = 10 * kSecondNs;  // for which a fence speaks of its path
  LinkBlameThresholds link = {.explained = 0.5};
};

std::vector<Finding> DetectSlow(const JobSnapshot& snapshot, const Windows& windows,
                                const NetworkView& network, int64_t now_ns, const SlowThresholds& thresholds);

// A cell of the latency matrix: one queue pair.
struct MatrixCell {
  ConnectionRef connection;  // its ratio: to the median of the cells where there is no baseline
  std::string from_nic;
  std::string to_nic;
  double ns_per_kib = 0;  // median of the window; 0: no chunk in it
  double low_ns_per_kib = 0;
  double usual_ns_per_kib = 0;  // the low quantile's baseline; 0: not known yet
  double chunks = 0;
  bool slow = false;
};

std::vector<MatrixCell> LatencyMatrix(const JobSnapshot& snapshot, const Windows& windows,
                                      const SlowThresholds& thresholds);

}  // namespace c4::c4d
