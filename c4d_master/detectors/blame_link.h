// Which link of the network it is that queue pairs share which are stuck, slow or were fenced, by the paths
// that C4P tells and binary tomography (analysis/tomography.h). A host's own link is its NIC's matter: the
// detectors judge those before they ask here, and an answer that is one changes nothing.
//
// Nothing is named where paths are not known, where no few links explain what is seen, or where those that
// are well contradict it; several are, as candidates, where no queue pair tells them apart.
//
// Pure but for the questions to the PathSource, which never waits; any thread; no errors.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/tomography.h"
#include "c4d_master/fence_log.h"
#include "c4d_master/finding.h"
#include "c4d_master/path_source.h"

namespace c4::c4d {

struct QueuePairEnds;

// What is known of the network besides the snapshot.
struct NetworkView {
  PathSource* paths = nullptr;       // none: no link is named
  const FenceLog* fences = nullptr;  // none: nothing was fenced
};

// A queue pair that was seen to be well or not.
struct Witness {
  std::string local;  // address:port of the sender, as it was then
  std::string remote;
  analysis::FlowState state = analysis::FlowState::kUnknown;
  // What its acknowledgements come from and go to, where that is known; else they go back as it came.
  std::string ack_source;
  std::string ack_destination;
};

// Of a queue pair on the path from `local` to `remote`, with the way that its acknowledgements take where the
// other end's own queue pair is known.
Witness WitnessOf(const QueuePairEnds& ends, std::string_view local, std::string_view remote,
                  analysis::FlowState state);

struct LinkBlameThresholds {
  double culprit_cost = 2;    // see analysis/tomography.h
  double margin = 1;          // one queue pair that is well, or bad, tells two links apart
  double least_known = 0.75;  // of the bad queue pairs: those whose path is known
  double explained = 0.75;  // of these: those that the links named explain, or unknown acknowledgements might
  double least_explained = 0.3;  // of these: those that the links named explain themselves
  double contradicting = 0.2;    // of the queue pairs over a link named: those that are well
  size_t max_links = 2;
  double half_known = 0.5;  // weight of a bad queue pair whose acknowledgements take nobody knows which way
};

struct BlamedLink {
  std::string cable;
  std::vector<std::string> links;  // its bad directions
  std::vector<size_t> bad;         // witnesses that it explains
  size_t good = 0;                 // that take it and are well
  size_t other_bad = 0;            // that do not take it
  size_t other_good = 0;
};

struct LinkBlame {
  enum class Sort {
    kNone,       // as if no path were known
    kLinks,      // `blamed`
    kAmbiguous,  // one of `candidates`, all of them between switches
    kHost,       // one of `candidates`, among them a host's own
  };
  Sort sort = Sort::kNone;
  std::vector<BlamedLink> blamed;       // most bad queue pairs first
  std::vector<std::string> candidates;  // directed
  BlamedLink shared;                    // where it is ambiguous: what is counted of one of them
  size_t unexplained = 0;               // bad witnesses with a path that is known
  std::string why;                      // of kNone: why no link is named; empty where no path is known at all
  bool paths_known = false;             // of most of the bad witnesses

  // The paths are known, and no few links explain what is bad.
  bool contradicted() const { return sort == Sort::kNone && paths_known; }
};

// `acks_count`: a bad link is as bad for a queue pair whose acknowledgements alone take it.
LinkBlame BlameLinks(const std::vector<Witness>& witnesses, bool acks_count, PathSource* paths,
                     const LinkBlameThresholds& thresholds);

// "7 of 7 queue pairs over leaf0-spine1 are slow, 0 of 25 others".
Evidence LinkEvidence(const BlamedLink& link, std::string_view what);
// "no queue pair tells these apart: …; all that are slow take each of them".
Evidence CandidatesEvidence(const LinkBlame& blame, std::string_view what);
// Why no link was named, where there is something to say.
void AddWhyNone(const LinkBlame& blame, Finding* finding);

}  // namespace c4::c4d
