// c4 matrix: which queue pairs of a job are slower than they used to be.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/clients/master_client.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/text/matrix_text.h"
#include "cli/text/screen.h"
#include "cli/verb.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "show the latency matrix of a job as a heat map";
constexpr absl::Duration kCallLimit = absl::Seconds(5);
constexpr absl::Duration kPatience = absl::Seconds(3);

int RunMatrix(const Arguments& arguments) {
  MasterOptions master;
  bool json = false;
  bool watch = false;
  bool wait = false;
  std::string by = "rank";
  std::vector<std::string> ranks;
  Options options("matrix", kSummary);
  master.Declare(&options);
  options.Flag("--json", &json, "one JSON document: {\"job\",\"cells\":[...],\"ranks\":[...]}");
  options.Flag("--watch", &watch, "show it again every second, until interrupted");
  options.Flag("--wait", &wait, "until there is a window of progress to show");
  options.Text("--by", &by, "rank|nic|qp", "what a row and a column are; qp: a list, the slowest first");
  options.List("--rank", &ranks, "R", "only what this rank sends or receives, and its own time");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (by != "rank" && by != "nic" && by != "qp") return UsageError("matrix", "--by is rank, nic or qp");
  const MatrixBy rows = by == "nic" ? MatrixBy::kNic : by == "qp" ? MatrixBy::kQueuePair : MatrixBy::kRank;
  v1::GetMatrixRequest request;
  for (const std::string& word : ranks) {
    int32_t rank = -1;
    if (!absl::SimpleAtoi(word, &rank) || rank < 0) {
      return UsageError("matrix", absl::StrCat("--rank is a number from 0 on, not \"", word, "\""));
    }
    request.add_ranks(rank);
  }
  for (;;) {
    v1::GetMatrixReply reply;
    const absl::Status asked = AskMaster(master, kPatience, [&](const MasterClient& client) {
      absl::StatusOr<v1::GetMatrixReply> matrix = client.GetMatrix(kCallLimit, request);
      if (!matrix.ok()) return matrix.status();
      reply = *std::move(matrix);
      return absl::OkStatus();
    });
    if (!asked.ok()) {
      fprintf(stderr, "c4 matrix: %s\n", std::string(asked.message()).c_str());
      return kExitUnreachable;
    }
    if (wait && reply.cells().empty()) {
      absl::SleepFor(absl::Milliseconds(500));
      continue;
    }
    const Screen screen = ScreenOf(stdout);
    std::string text = json ? MatrixJson(reply) + "\n" : MatrixText(reply, rows, screen);
    if (watch && !json) text = Repainted(screen, text);
    fputs(text.c_str(), stdout);
    fflush(stdout);
    if (!watch) return kExitOk;
    absl::SleepFor(absl::Seconds(1));
  }
}

}  // namespace

constinit const Verb kMatrixVerb = {"matrix", kSummary, RunMatrix};

}  // namespace c4::cli
