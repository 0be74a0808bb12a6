// Fleet tomography: which links between switches are grey (they carry everything, some per cent slower), from
// the message times of all jobs over paths that are known, without asking a switch. No single job need see
// enough of a link; together they cross each from many hosts.
//
// A sample is how long messages of one queue pair took, as the logarithm of their mean time per byte beside
// what is usual, or of anything in proportion to it. What the samples of one NIC have in common, as a sender
// or as a receiver, is the NIC's, its host's or its job's matter and is taken off (median polish, Tukey
// 1977). Of the rest a link's share is the mean over all samples that take it; the link that stands out most
// is taken out first, with its effect on the samples over it, until none stands out (orthogonal matching
// pursuit). Outliers are clipped. Links that nearly the same samples take are not told apart: `instead` names
// the others.
//
// Pure; any thread; deterministic, whatever the order of the samples, but for rounding. A NIC or link beyond
// the counts is a defect of the caller and is caught by an assertion.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace c4::analysis {

struct FleetSample {
  uint32_t source = 0;  // NICs
  uint32_t destination = 0;
  std::array<uint32_t, 4> links{};  // directed, between switches
  uint32_t link_count = 0;          // 0: within a leaf; such a sample still says what is usual for its NICs
  float log_time = 0;               // natural logarithm; any constant may be added to all
};

struct FleetOptions {
  // How far, in standard errors, a link's mean has to stand out. Chance alone would do with 6, as there are
  // hundreds of thousands of links; but errors of one host's samples hang together a little.
  double least_score = 7;
  double least_worse = 0.05;   // what is less slow than this is nobody's trouble
  uint32_t least_samples = 4;  // over a link that is judged
  uint32_t least_sources = 3;  // NICs that they come from, and go to: one host's trouble is no link's
  double clip = 3;             // samples further off, in standard deviations, count as so far off
  double margin = 9;           // of squared scores: links that explain the samples as well but for this
  size_t most_links = 64;
};

struct GreyLink {
  uint32_t link = 0;
  double worse = 0;  // 0.2: messages over it take 20 % longer
  double score = 0;  // standard errors
  uint32_t samples = 0;
  std::vector<uint32_t> instead;  // others that would do in its place, ascending; empty: it is this one
};

struct FleetFindings {
  std::vector<GreyLink> links;  // that stands out most first
  double deviation = 0;         // of a sample, when all that is common is taken off: logarithm
  size_t judged_links = 0;      // with samples enough
};

FleetFindings FindGreyLinks(const std::vector<FleetSample>& samples, uint32_t nics, uint32_t links,
                            const FleetOptions& options = {});

}  // namespace c4::analysis
