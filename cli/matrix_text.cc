#include "cli/matrix_text.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

constexpr size_t kMaxListed = 64;

struct Sum {
  std::vector<double> ratios;
  size_t slow = 0;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string QueuePairList(const v1::GetMatrixReply& matrix) {
  std::vector<const v1::MatrixCell*> cells;
  for (const v1::MatrixCell& cell : matrix.cells()) cells.push_back(&cell);
  std::stable_sort(cells.begin(), cells.end(),
                   [](const v1::MatrixCell* a, const v1::MatrixCell* b) { return a->ratio() > b->ratio(); });
  std::string text = "  FROM    TO  QP  COMMUNICATOR        US/KIB   USUAL  RATIO  CHUNKS\n";
  for (size_t i = 0; i < std::min(cells.size(), kMaxListed); ++i) {
    const v1::MatrixCell& cell = *cells[i];
    absl::StrAppend(
        &text, absl::StrFormat("%c%5d %5d %3u  %s %8.2f %7.2f %6.2f %7u\n", cell.slow() ? '!' : ' ',
                               cell.from_rank(), cell.to_rank(), cell.index(),
                               service::CommunicatorText(cell.communicator_id()), cell.low_ns_per_kib() / 1e3,
                               cell.usual_ns_per_kib() / 1e3, cell.ratio(), cell.chunks()));
  }
  if (cells.size() > kMaxListed) absl::StrAppend(&text, "and ", cells.size() - kMaxListed, " more\n");
  return text;
}

std::string HeatMap(const v1::GetMatrixReply& matrix, MatrixBy by) {
  std::set<std::pair<int32_t, std::string>> names;
  std::map<std::pair<std::string, std::string>, Sum> cells;
  for (const v1::MatrixCell& cell : matrix.cells()) {
    const std::string from = by == MatrixBy::kNic ? cell.from_nic() : absl::StrCat(cell.from_rank());
    const std::string to = by == MatrixBy::kNic ? cell.to_nic() : absl::StrCat(cell.to_rank());
    names.insert({cell.from_rank(), from});
    names.insert({cell.to_rank(), to});
    Sum& sum = cells[{from, to}];
    sum.ratios.push_back(cell.ratio());
    sum.slow += cell.slow() ? 1 : 0;
  }
  size_t widest = 4;
  for (const auto& [rank, name] : names) widest = std::max(widest, name.size());
  const auto pad = [&](const std::string& word, size_t width) {
    return std::string(width > word.size() ? width - word.size() : 0, ' ') + word;
  };
  std::string text = pad("", widest) + " ";
  for (const auto& [rank, name] : names)
    absl::StrAppend(&text, pad(by == MatrixBy::kNic ? absl::StrCat(rank) : name, 6));
  text += "\n";
  for (const auto& [from_rank, from] : names) {
    absl::StrAppend(&text, pad(from, widest), " ");
    for (const auto& [to_rank, to] : names) {
      const auto it = cells.find({from, to});
      std::string word = ".";
      if (it != cells.end()) {
        // The worst of a few queue pairs would hide among the others' median.
        const double ratio = it->second.slow != 0
                                 ? *std::max_element(it->second.ratios.begin(), it->second.ratios.end())
                                 : Median(it->second.ratios);
        word = absl::StrFormat("%.1f%s", ratio, it->second.slow != 0 ? "!" : "");
      }
      absl::StrAppend(&text, pad(word, 6));
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::string MatrixText(const v1::GetMatrixReply& matrix, MatrixBy by) {
  if (matrix.cells().empty()) return absl::StrCat("job ", matrix.job(), ": no window of progress yet\n");
  std::vector<double> medians;
  size_t slow = 0;
  for (const v1::MatrixCell& cell : matrix.cells()) {
    medians.push_back(cell.median_ns_per_kib());
    slow += cell.slow() ? 1 : 0;
  }
  std::string text = absl::StrFormat(
      "job %s: %d queue pairs, median latency %.2f us per KiB, %u slow (!)\n"
      "ratios to what is usual; rows send, columns receive\n\n",
      matrix.job(), matrix.cells_size(), Median(medians) / 1e3, slow);
  absl::StrAppend(&text, by == MatrixBy::kQueuePair ? QueuePairList(matrix) : HeatMap(matrix, by));
  text += "\n RANK  OWN MS  USUAL  CYCLE MS  FIRST WAIT MS   (for each operation)\n";
  for (const v1::RankTime& rank : matrix.ranks()) {
    absl::StrAppend(
        &text, absl::StrFormat("%5d %7.2f %6.2f %9.2f %14.2f\n", rank.rank(), rank.own_ns() / 1e6,
                               rank.usual_own_ns() / 1e6, rank.cycle_ns() / 1e6, rank.first_wait_ns() / 1e6));
  }
  return text;
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
  return Json{{"job", matrix.job()}, {"cells", std::move(cells)}, {"ranks", std::move(ranks)}}.dump(
      2, ' ', false, nlohmann::detail::error_handler_t::replace);
}

}  // namespace c4::cli
