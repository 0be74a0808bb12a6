// What of the sessions is kept: the whole report of the newest ones, the figures of many more. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace c4::c4d {

struct Retention {
  size_t reports = 100;                                          // at most so many
  int64_t report_age_ns = int64_t{30} * 86'400 * 1'000'000'000;  // and none that began longer ago
  size_t sessions = 5000;                                        // figures: at most so many
};

struct KeptSession {
  uint64_t number = 0;
  int64_t begun_unix_ns = 0;
  bool has_report = false;
};

struct Pruned {
  std::vector<uint64_t> reports;   // these lose their report and keep their figures
  std::vector<uint64_t> sessions;  // these go altogether
};

// `sessions` in the order in which they began.
Pruned Prune(const std::vector<KeptSession>& sessions, const Retention& retention, int64_t now_unix_ns);

}  // namespace c4::c4d
