#include "cli/text/matrix_text.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

constexpr size_t kMaxListed = 64;
constexpr size_t kMaxRanks = 16;  // on a screen; a file gets all

// Slower than usual, though not yet enough for C4D to call it slow.
constexpr double kWarmRatio = 1.5;

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string QueuePairList(const v1::GetMatrixReply& matrix, const Screen& screen) {
  std::vector<const v1::MatrixCell*> cells;
  for (const v1::MatrixCell& cell : matrix.cells()) cells.push_back(&cell);
  std::stable_sort(cells.begin(), cells.end(),
                   [](const v1::MatrixCell* a, const v1::MatrixCell* b) { return a->ratio() > b->ratio(); });
  std::string text =
      Fit("  FROM    TO  QP   US/KIB   USUAL  RATIO  CHUNKS  COMMUNICATOR", screen.columns) + "\n";
  for (size_t i = 0; i < std::min(cells.size(), kMaxListed); ++i) {
    const v1::MatrixCell& cell = *cells[i];
    const bool learnt = cell.usual_ns_per_kib() > 0;
    const std::string usual = learnt ? absl::StrFormat("%.2f", cell.usual_ns_per_kib() / 1e3) : "-";
    const std::string ratio = learnt ? absl::StrFormat("%.2f", cell.ratio()) : "-";
    const std::string line =
        absl::StrFormat("%c%5d %5d %3u %8.2f %7s %6s %7u  %s", cell.slow() ? '!' : ' ', cell.from_rank(),
                        cell.to_rank(), cell.index(), cell.low_ns_per_kib() / 1e3, usual, ratio,
                        cell.chunks(), service::CommunicatorText(cell.communicator_id()));
    absl::StrAppend(&text, Fit(line, screen.columns), "\n");
  }
  if (cells.size() > kMaxListed) absl::StrAppend(&text, "and ", cells.size() - kMaxListed, " more\n");
  return text;
}

// Ranks' own times; of a large job those that take longest against what is usual for them.
std::string RankTimes(const v1::GetMatrixReply& matrix, const Screen& screen) {
  std::vector<const v1::RankTime*> ranks;
  for (const v1::RankTime& rank : matrix.ranks()) ranks.push_back(&rank);
  const auto excess = [](const v1::RankTime* rank) {
    return rank->usual_own_ns() > 0 ? rank->own_ns() / rank->usual_own_ns() : 0;
  };
  const size_t listed = std::min(ranks.size(), screen.columns == 0 ? ranks.size() : kMaxRanks);
  if (listed < ranks.size()) {
    std::stable_sort(ranks.begin(), ranks.end(),
                     [&](const auto* a, const auto* b) { return excess(a) > excess(b); });
  }
  std::string text =
      Fit(" RANK  OWN MS  USUAL  CYCLE MS  FIRST WAIT MS   (for each operation)", screen.columns) + "\n";
  for (size_t i = 0; i < listed; ++i) {
    const v1::RankTime& rank = *ranks[i];
    const std::string usual =
        rank.usual_own_ns() > 0 ? absl::StrFormat("%.2f", rank.usual_own_ns() / 1e6) : "-";
    absl::StrAppend(&text,
                    Fit(absl::StrFormat("%5d %7.2f %6s %9.2f %14.2f", rank.rank(), rank.own_ns() / 1e6, usual,
                                        rank.cycle_ns() / 1e6, rank.first_wait_ns() / 1e6),
                        screen.columns),
                    "\n");
  }
  if (listed < ranks.size()) {
    const std::string rest =
        absl::StrCat("and ", ranks.size() - listed, " ranks that are nearer to what is usual for them");
    absl::StrAppend(&text, Fit(rest, screen.columns), "\n");
  }
  return text;
}

// What the queue pairs of one cell of the heat map come to.
struct Heat {
  std::vector<double> ratios;  // of those for which something usual is known
  bool slow = false;

  double Shown() const {
    // The worst of a few queue pairs would hide among the others' median.
    return slow && !ratios.empty() ? *std::max_element(ratios.begin(), ratios.end()) : Median(ratios);
  }
};

std::string HeatWord(const Heat& heat) {
  if (heat.ratios.empty()) return heat.slow ? "-!" : "-";
  const double ratio = heat.Shown();
  return absl::StrCat(ratio < 99.95 ? absl::StrFormat("%.1f", ratio) : absl::StrFormat("%.0f", ratio),
                      heat.slow ? "!" : "");
}

std::string HeatMap(const v1::GetMatrixReply& matrix, MatrixBy by, const Screen& screen) {
  constexpr size_t kCellColumns = 6;
  std::map<std::string, int32_t> first_rank;  // of each name, which orders them
  const auto name_of = [by](int32_t rank, const std::string& nic) {
    return by == MatrixBy::kNic ? nic : absl::StrCat(rank);
  };
  for (const v1::MatrixCell& cell : matrix.cells()) {
    for (const auto& [name, rank] : {std::pair(name_of(cell.from_rank(), cell.from_nic()), cell.from_rank()),
                                     std::pair(name_of(cell.to_rank(), cell.to_nic()), cell.to_rank())}) {
      const auto [known, added] = first_rank.try_emplace(name, rank);
      if (!added) known->second = std::min(known->second, rank);
    }
  }
  std::vector<std::pair<int32_t, std::string>> names;
  names.reserve(first_rank.size());
  for (const auto& [name, rank] : first_rank) names.emplace_back(rank, name);
  std::sort(names.begin(), names.end());
  if (by == MatrixBy::kNic && names.size() == 1) {
    return absl::StrCat("one NIC (", names.front().second, ") carries all queue pairs: try --by rank\n");
  }
  size_t label_columns = 4;
  for (const auto& [rank, name] : names) label_columns = std::max(label_columns, TextColumns(name));
  // Neighbours are joined by twos until a row fits.
  size_t joined = 1;
  const auto fits = [&] {
    const size_t rows = (names.size() + joined - 1) / joined;
    // A span of ranks stands as "0-15", of NICs as the first one's address.
    const size_t label = joined == 1 || by == MatrixBy::kNic ? label_columns : label_columns * 2 + 1;
    return screen.columns == 0 || rows <= 4 ||
           label + 1 + rows * kCellColumns <= static_cast<size_t>(screen.columns);
  };
  while (!fits()) joined *= 2;
  std::vector<std::string> labels;
  std::map<std::string, size_t> index_of;
  for (size_t i = 0; i < names.size(); ++i) {
    index_of[names[i].second] = i / joined;
    if (i % joined == 0) labels.push_back(names[i].second);
    if (by == MatrixBy::kRank && (i % joined == joined - 1 || i + 1 == names.size())) {
      if (labels.back() != names[i].second) labels.back() += "-" + names[i].second;
    }
  }
  std::map<std::pair<size_t, size_t>, Heat> cells;
  for (const v1::MatrixCell& cell : matrix.cells()) {
    Heat& heat = cells[{index_of[name_of(cell.from_rank(), cell.from_nic())],
                        index_of[name_of(cell.to_rank(), cell.to_nic())]}];
    if (cell.usual_ns_per_kib() > 0) heat.ratios.push_back(cell.ratio());
    heat.slow = heat.slow || cell.slow();
  }
  for (const std::string& label : labels) label_columns = std::max(label_columns, TextColumns(label));
  const auto pad = [](const std::string& word, size_t width) {
    return std::string(width > TextColumns(word) ? width - TextColumns(word) : 0, ' ') + word;
  };
  std::string text = std::string(label_columns + 1, ' ');
  for (size_t to = 0; to < labels.size(); ++to) {
    // A NIC's address is too long for the head of a column, and so is a span of ranks: its first rank stands
    // there.
    absl::StrAppend(&text, pad(absl::StrCat(names[to * joined].first), kCellColumns));
  }
  text += "\n";
  for (size_t from = 0; from < labels.size(); ++from) {
    absl::StrAppend(&text, pad(labels[from], label_columns), " ");
    for (size_t to = 0; to < labels.size(); ++to) {
      const auto it = cells.find({from, to});
      if (it == cells.end()) {
        absl::StrAppend(&text, pad(".", kCellColumns));
        continue;
      }
      const std::string word = HeatWord(it->second);
      const std::string padded = pad(word, kCellColumns);
      const std::string blanks = padded.substr(0, padded.size() - word.size());
      const double ratio = it->second.Shown();
      if (it->second.slow) {
        absl::StrAppend(&text, blanks, Painted(screen, Colour::kRed, word));
      } else if (ratio >= kWarmRatio) {
        absl::StrAppend(&text, blanks, Painted(screen, Colour::kYellow, word));
      } else {
        absl::StrAppend(&text, padded);
      }
    }
    text += "\n";
  }
  if (joined > 1) {
    absl::StrAppend(&text,
                    Fit(absl::StrCat("(", joined, by == MatrixBy::kNic ? " NICs" : " ranks",
                                     " a row; a wider screen, --by qp and --json show more)"),
                        screen.columns),
                    "\n");
  }
  return text;
}

}  // namespace

std::string MatrixText(const v1::GetMatrixReply& matrix, MatrixBy by, const Screen& screen) {
  if (matrix.cells().empty()) return absl::StrCat("job ", matrix.job(), ": no window of progress yet\n");
  std::vector<double> medians;
  size_t slow = 0;
  for (const v1::MatrixCell& cell : matrix.cells()) {
    medians.push_back(cell.median_ns_per_kib());
    slow += cell.slow() ? 1 : 0;
  }
  const bool learning = std::all_of(matrix.cells().begin(), matrix.cells().end(),
                                    [](const v1::MatrixCell& cell) { return cell.usual_ns_per_kib() <= 0; });
  std::string text =
      Fit(absl::StrFormat("job %s: %d queue pairs, median latency %.2f us per KiB, %u slow (!)", matrix.job(),
                          matrix.cells_size(), Median(medians) / 1e3, slow),
          screen.columns) +
      "\n";
  absl::StrAppend(&text,
                  Fit(learning ? "what is usual is still being learnt (-); rows send, columns receive"
                               : "ratios to what is usual (- not learnt yet); rows send, columns receive",
                      screen.columns),
                  "\n\n");
  if (matrix.cells_left_out() > 0) {
    absl::StrAppend(&text,
                    Fit(absl::StrCat("these are the slowest; ", matrix.cells_left_out(),
                                     " more are left out: ask for some with --rank"),
                        screen.columns),
                    "\n\n");
  }
  absl::StrAppend(&text,
                  by == MatrixBy::kQueuePair ? QueuePairList(matrix, screen) : HeatMap(matrix, by, screen));
  return text + "\n" + RankTimes(matrix, screen);
}

std::string MatrixJson(const v1::GetMatrixReply& matrix) {
  using Json = nlohmann::ordered_json;
  Json cells = Json::array();
  for (const v1::MatrixCell& cell : matrix.cells()) {
    cells.push_back(Json{{"from_rank", cell.from_rank()},
                         {"to_rank", cell.to_rank()},
                         {"from_host", cell.from_host()},
                         {"to_host", cell.to_host()},
                         {"from_nic", cell.from_nic()},
                         {"to_nic", cell.to_nic()},
                         {"communicator", service::CommunicatorText(cell.communicator_id())},
                         {"channel", cell.channel()},
                         {"index", cell.index()},
                         {"median_ns_per_kib", cell.median_ns_per_kib()},
                         {"low_ns_per_kib", cell.low_ns_per_kib()},
                         {"usual_ns_per_kib", cell.usual_ns_per_kib()},
                         {"ratio", cell.ratio()},
                         {"chunks", cell.chunks()},
                         {"slow", cell.slow()}});
  }
  Json ranks = Json::array();
  for (const v1::RankTime& rank : matrix.ranks()) {
    ranks.push_back(Json{{"rank", rank.rank()},
                         {"host", rank.host()},
                         {"own_ns", rank.own_ns()},
                         {"usual_own_ns", rank.usual_own_ns()},
                         {"cycle_ns", rank.cycle_ns()},
                         {"first_wait_ns", rank.first_wait_ns()}});
  }
  return Json{{"job", matrix.job()},
              {"cells_left_out", matrix.cells_left_out()},
              {"cells", std::move(cells)},
              {"ranks", std::move(ranks)}}
      .dump(2, ' ', false, nlohmann::detail::error_handler_t::replace);
}

}  // namespace c4::cli
