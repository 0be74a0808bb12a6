// Communication hang: data that a sender has posted, with the receiver's leave, are not acknowledged and no
// byte of that queue pair moves, although both processes can run. docs/verdicts.md has the rules.
//
// A queue pair is told apart from its neighbours by time: bytes that arrived over a NIC after the first
// stuck post prove that the NIC is alive; then it is the connections (a link further on), else the NIC.
//
// Where C4P tells the paths, the link that the connections share is named in their place: queue pairs that
// are stuck or silent are bad, those that give signs of life good.
//
// Pure but for the questions to the PathSource (nullptr: none), which never waits; any thread; no errors.
#pragma once

#include <vector>

#include "c4d_master/detectors/blame_link.h"
#include "c4d_master/finding.h"
#include "c4d_master/job_snapshot.h"

namespace c4::c4d {

struct CommunicationHangThresholds {
  int64_t suspect_ns = 2 * kSecondNs;
  int64_t confirm_ns = 3 * kSecondNs;
  int64_t unheard_ns = 9 * kSecondNs / 4;  // without a sign of life, of which there is one a second
  double nic_share = 0.9;                  // of a NIC's queue pairs that are not heard any more
  int64_t heard_ns = 8 * kSecondNs / 5;    // a sign of life that is newer: its way is well
  LinkBlameThresholds link;
};

std::vector<Finding> DetectCommunicationHangs(const JobSnapshot& snapshot, PathSource* paths,
                                              const CommunicationHangThresholds& thresholds);

}  // namespace c4::c4d
