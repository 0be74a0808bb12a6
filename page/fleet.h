// What the operator's page knows of all jobs together: kept up to date while somebody looks, by one thread
// that calls Refresh; read by many. Refresh asks the source for what is open once a second, for the rest less
// often; a master that does not answer is left alone for a while and holds nobody up but itself.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "page/fleet_source.h"

namespace c4::page {

// The same moment on both clocks of this machine.
struct Moment {
  int64_t monotonic_ns = 0;
  int64_t unix_ns = 0;
};

inline constexpr int kMostOpen = 200;  // verdicts shown of the whole fleet
inline constexpr int kMostOffenders = 50;

// Pure: what more than one verdict names; the more verdicts the earlier.
std::vector<v1::PageOffender> OffendersOf(const std::map<std::string, v1::ListVerdictsReply>& by_job);

v1::PageVerdict DescribeVerdict(const std::string& job_id, const v1::Verdict& verdict);
// Open ones first, then the newest; at most `most`.
v1::PageVerdicts DescribeVerdicts(const std::string& job_id, const v1::ListVerdictsReply& reply,
                                  int64_t unix_ns, int most);

class Fleet {
 public:
  // `source` outlives it.
  explicit Fleet(FleetSource* source);
  // REQUIRES: before Refresh. What pages are told of recordings that they may bring.
  void TakeRecordings(uint64_t most_bytes) { most_recording_bytes_ = most_bytes; }

  void Refresh(const Moment& now);

  // The state after the last Refresh; `number` counts up with every change of it but its time. Of a caller
  // that may see one job only: what is about that one.
  struct View {
    uint64_t number = 0;
    std::shared_ptr<const v1::PageFleet> fleet;
  };
  View Look() const;
  static v1::PageFleet OfOneJob(const v1::PageFleet& fleet, const std::string& job);

 private:
  struct Known {
    v1::PageJob job;
    v1::ListVerdictsReply open;
    v1::ListVerdictsReply all;  // with those that are cleared
    int64_t open_ns = 0;        // when it was asked for last; these are monotonic, 0: never
    int64_t all_ns = 0;
    int64_t status_ns = 0;
    int64_t again_ns = 0;  // not before, of a master that does not answer
    std::string digest;    // of what is open
  };
  void AskOpen(Known* known, const Moment& now);
  void AskRest(Known* known, const Moment& now);
  v1::PageFleet Tell(const Moment& now, const std::vector<std::string>& notes);

  FleetSource* const source_;
  uint64_t most_recording_bytes_ = 0;
  std::map<std::string, Known> known_;  // by id; of the thread that calls Refresh
  std::string told_;                    // the last state without its time
  mutable std::mutex mutex_;            // guards what follows
  View view_;
};

}  // namespace c4::page
