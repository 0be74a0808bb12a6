// What a batch of what-if analyses says of all its jobs together: a row a job, and the distributions that
// the what-if paper shows in sections 4 to 6, as CSV. Pure; any thread.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "analysis/whatif/operation_type.h"
#include "cli/whatif/whatif_batch.h"

namespace c4::cli {

// What the tables want of a report. Absent: the report has no such figure (a job without slow-down has no
// m_w).
struct BatchFigures {
  std::string job;
  int dp_size = 0;
  int pp_size = 0;
  int workers = 0;
  int steps = 0;
  int64_t operations = 0;
  double slowdown = 1;
  double waste = 0;
  bool straggling = false;
  double discrepancy = 0;
  bool doubtful = false;
  double launch_slowdown = 1;
  double step_time_s = 0;
  double step_time_ideal_s = 0;
  std::optional<double> m_w;
  std::optional<double> m_s;
  std::optional<double> correlation;  // of the second stage; of the only one (section 5.3)
  std::optional<double> correlation_all_stages;
  double speedup_if_pp_comm_zero = 1;
  double speedup_if_dp_comm_zero = 1;
  std::array<std::optional<double>, whatif::kTypeGroups> waste_by_type;
  std::vector<double> slowdown_by_step;
  std::string cause;  // that of the largest share; empty: none
  std::optional<double> cause_share;
  int steps_left_out = 0;
};

struct BatchRow {
  BatchRecord record;
  std::optional<BatchFigures> figures;  // of an analysed trace
};

// Of the JSON that `c4 whatif --json` prints.
absl::StatusOr<BatchFigures> ParseFigures(const std::string& report);

std::string JobsCsv(const std::vector<BatchRow>& rows);

struct NamedTable {
  std::string file;
  std::string text;
};
// Columns: jobs (all, or only those that straggle), [type,] value, share of the values that are at most that.
// Doubtful jobs count for nothing but the discrepancy, as in section 6.
std::vector<NamedTable> CdfTables(const std::vector<BatchRow>& rows);

// "12 traces: 9 analysed (4 straggle, 1 is doubtful), 2 refused, 1 timed out".
std::string BatchSummary(const std::vector<BatchRow>& rows);

}  // namespace c4::cli
