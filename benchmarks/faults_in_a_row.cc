#include "benchmarks/faults_in_a_row.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "benchmarks/recovery_trial.h"
#include "service/status.h"

namespace c4::benchmarks {
namespace {

namespace fs = std::filesystem;

constexpr double kLimitS = 240;
constexpr double kLookEveryS = 0.1;
constexpr double kVerdictLimitS = 30;
constexpr double kReferenceLimitS = 1800;
constexpr uint32_t kNotes = 200;

class Row {
 public:
  Row(unsigned seed, const std::string& log_dir, ElasticRange::Say say)
      : say_(std::move(say)),
        random_(seed),
        range_(TrialOptions(directory_, true, seed, {.log_dir = log_dir}), say_),
        seed_(seed) {}

  absl::StatusOr<RowResult> Play(int count) {
    C4_RETURN_IF_NOT_OK(range_.Start());
    while (result_.faults < count) {
      C4_RETURN_IF_NOT_OK(AwaitAtWork(&range_));
      C4_RETURN_IF_NOT_OK(PlayOne(count));
    }
    C4_RETURN_IF_NOT_OK(AwaitAtWork(&range_));
    C4_RETURN_IF_NOT_OK(Look(true));
    result_.wrong.insert(result_.wrong.end(), range_.contradictions().begin(), range_.contradictions().end());
    C4_RETURN_IF_NOT_OK(Compare());
    return result_;
  }

 private:
  double Uniform(double most) { return std::uniform_real_distribution<double>(0, most)(random_); }

  absl::Status PlayOne(int count) {
    const absl::StatusOr<bool> rest = range_.Watch(Uniform(1.5));
    if (!rest.ok()) return rest.status();
    C4_RETURN_IF_NOT_OK(Look(false));
    const uint64_t newest = newest_incident_;
    const int begun = range_.begun();
    std::string name;
    C4_RETURN_IF_NOT_OK(Inject(random_() % 4, &name));
    if (random_() % 4 == 0 && result_.faults < count) C4_RETURN_IF_NOT_OK(InjectDuring(newest, &name));
    absl::Status fault;
    const absl::StatusOr<bool> again = range_.Watch(kLimitS, [&] {
      fault = LookNowAndThen();
      return !fault.ok() ||
             (range_.begun() > begun && !range_.since_begun().empty() && quiet_ && newest_incident_ > newest);
    });
    if (!again.ok())
      return absl::Status(again.status().code(), absl::StrCat(name, ": ", again.status().message()));
    if (!fault.ok()) return fault;
    if (!*again)
      return absl::DeadlineExceededError(absl::StrCat("after ", name, " the job does not run again"));
    C4_RETURN_IF_NOT_OK(Look(true));
    Count(newest);
    say_(absl::StrFormat("%d %s: runs again, %d out", result_.faults, name, out_));
    if (out_ >= 2 || random_() % 3 == 0) C4_RETURN_IF_NOT_OK(Repair());
    return absl::OkStatus();
  }

  // kind: 0 kill, 1 stop, 2 node-loss, 3 cut of a host.
  absl::Status Inject(uint64_t kind, std::string* name) {
    const int rank = static_cast<int>(random_() % 8);
    fabric::Injection injection;
    injection.kind = kind == 0   ? fabric::Kind::kKill
                     : kind == 1 ? fabric::Kind::kStop
                     : kind == 2 ? fabric::Kind::kNodeLoss
                                 : fabric::Kind::kCut;
    const std::string host = range_.HostOfRank(rank);
    injection.target = kind < 2 ? absl::StrCat("rank", rank) : host;
    const absl::StatusOr<fabric::Applied> applied = range_.Inject(injection);
    if (!applied.ok()) return applied.status();
    faulty_.insert(host);
    ++result_.faults;
    absl::StrAppend(name, name->empty() ? "" : ", then ", fabric::KindName(injection.kind), " ",
                    injection.target, kind < 2 ? absl::StrCat(" on ", host) : "");
    return absl::OkStatus();
  }

  // Once it has been decided what to do about the first: before, while or after the ranks are started. One in
  // four does not wait for that: its verdict may come first, and the job is started again with the first
  // fault still in it.
  absl::Status InjectDuring(uint64_t newest, std::string* name) {
    absl::Status fault;
    if (random_() % 4 != 0) {
      const absl::StatusOr<bool> decided = range_.Watch(kVerdictLimitS, [&] {
        fault = Look(false);
        return !fault.ok() || newest_incident_ > newest;
      });
      if (!decided.ok()) return decided.status();
      if (!fault.ok()) return fault;
      if (!*decided) return absl::OkStatus();
    }
    const absl::StatusOr<bool> waited = range_.Watch(Uniform(1));
    if (!waited.ok()) return waited.status();
    for (int attempt = 0; attempt < 20; ++attempt) {
      fault = Inject(random_() % 3 == 0 ? 1 : 0, name);
      if (fault.ok()) {
        ++result_.during;
        return absl::OkStatus();
      }
      const absl::StatusOr<bool> later = range_.Watch(0.1);  // the ranks are just being replaced
      if (!later.ok()) return later.status();
    }
    return fault;
  }

  absl::Status LookNowAndThen() {
    if (UnixNowS() - looked_s_ < kLookEveryS) return absl::OkStatus();
    return Look(false);
  }

  absl::Status Look(bool with_notes) {
    looked_s_ = UnixNowS();
    absl::StatusOr<v1::GetRecoveryReply> reply = range_.Recovery(with_notes ? kNotes : 0);
    if (!reply.ok()) return reply.status();
    recovery_ = *std::move(reply);
    const v1::RecoveryState& state = recovery_.state();
    result_.cap = recovery_.cap();
    result_.most_out = std::max(result_.most_out, recovery_.automated_out());
    if (recovery_.automated_out() > recovery_.cap()) {
      result_.wrong.push_back(
          absl::StrCat(recovery_.automated_out(), " nodes are out, ", recovery_.cap(), " may be"));
    }
    out_ = static_cast<int>(NodesOut(state).size());
    quiet_ = true;
    bool held = false;
    for (const v1::RecoveryIncident& incident : state.incidents()) {
      newest_incident_ = std::max(newest_incident_, incident.id());
      quiet_ = quiet_ && incident.phase() >= v1::RECOVERY_PHASE_RECOVERED;
      held = held ||
             (incident.phase() == v1::RECOVERY_PHASE_PROPOSED && incident.hold() == v1::RECOVERY_HOLD_CAP);
      held = held || incident.phase() == v1::RECOVERY_PHASE_WAITING;
    }
    for (const v1::RecoveryNote& note : recovery_.notes()) TakeNote(note);
    // Nothing goes on until somebody comes.
    if (held && out_ > 0 && !repairing_) return Repair();
    return absl::OkStatus();
  }

  void TakeNote(const v1::RecoveryNote& note) {
    if (note.unix_ns() <= last_note_ns_) return;
    last_note_ns_ = note.unix_ns();
    if (note.what() != "isolated" && note.what() != "isolate-failed") return;
    ++result_.isolations;
    if (faulty_.contains(note.node())) return;
    result_.wrong.push_back(absl::StrCat(note.node(), " was isolated (incident ", note.incident(),
                                         "), and nothing had been done to it"));
  }

  // Somebody mends what is broken, and gives back what is out.
  absl::Status Repair() {
    repairing_ = true;
    C4_RETURN_IF_NOT_OK(Look(true));
    C4_RETURN_IF_NOT_OK(range_.Heal());
    const absl::Status given = GiveBack(&range_);
    C4_RETURN_IF_NOT_OK(Look(true));  // what was decided meanwhile was about these
    faulty_.clear();
    repairing_ = false;
    return given;
  }

  void Count(uint64_t newest) {
    for (const v1::RecoveryIncident& incident : recovery_.state().incidents()) {
      if (incident.id() <= newest) continue;
      ++result_.incidents;
      if (incident.phase() != v1::RECOVERY_PHASE_RECOVERED) continue;
      const double confirmed_s = static_cast<double>(incident.confirmed_unix_ns()) / 1e9;
      const std::vector<Iteration>& done = range_.since_begun();
      if (!done.empty() && incident.running_unix_ns() != 0 && incident.id() == newest_incident_) {
        result_.verdict_to_iteration_s.push_back(done.front().unix_s - confirmed_s);
      }
    }
  }

  // With a run from the beginning to the newest checkpoint.
  absl::Status Compare() {
    int last = 0;
    std::ifstream(directory_.checkpoints() + "/LATEST") >> last;
    std::map<std::string, std::string> weights;
    for (const auto& entry : fs::directory_iterator(directory_.checkpoints())) {
      const std::string file = entry.path().filename().string();
      if (!file.ends_with(absl::StrCat("-", last, ".ckpt"))) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      weights[file] = {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }
    range_.End();
    if (last == 0 || weights.empty()) return absl::InternalError("the job has left no checkpoint");
    say_(absl::StrCat("the same without faults, ", last, " iterations"));
    const TrialDir directory;
    ElasticRange reference(TrialOptions(directory, false, seed_, {.device_ms = 0, .iterations = last}), say_);
    C4_RETURN_IF_NOT_OK(reference.Start());
    const absl::StatusOr<bool> ended = reference.Watch(kReferenceLimitS);
    if (!absl::IsAborted(ended.status()) || reference.launcher().outcome().exit_code != 0) {
      return absl::InternalError("the run without faults has failed");
    }
    for (const auto& [iteration, loss] : reference.losses()) {
      const auto found = range_.losses().find(iteration);
      if (found == range_.losses().end()) continue;
      ++result_.compared;
      if (found->second != loss) {
        result_.wrong.push_back(
            absl::StrCat("iteration ", iteration, ": loss ", found->second, ", without faults ", loss));
      }
    }
    for (const auto& [file, bytes] : weights) {
      std::ifstream in(directory.checkpoints() + "/" + file, std::ios::binary);
      const std::string other = {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
      if (other != bytes) result_.wrong.push_back(file + " is not that of a run without faults");
    }
    return absl::OkStatus();
  }

  const ElasticRange::Say say_;
  std::mt19937 random_;
  const TrialDir directory_;
  ElasticRange range_;
  const unsigned seed_;
  RowResult result_;
  v1::GetRecoveryReply recovery_;
  std::set<std::string> faulty_;  // something was done to it, and nobody has mended it
  uint64_t newest_incident_ = 0;
  int64_t last_note_ns_ = 0;
  double looked_s_ = 0;
  int out_ = 0;
  bool quiet_ = true;
  bool repairing_ = false;
};

}  // namespace

absl::StatusOr<RowResult> FaultsInARow(int count, unsigned seed, const std::string& log_dir,
                                       const ElasticRange::Say& say) {
  return Row(seed, log_dir, say).Play(count);
}

}  // namespace c4::benchmarks
