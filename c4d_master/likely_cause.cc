#include "c4d_master/likely_cause.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "c4d_master/hardware_log.h"
#include "service/text.h"
#include "service/xid.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr char kCuda[] = "CUDA error";
constexpr char kEccNvlink[] = "ECC/NVLink error";
constexpr char kNcclTimeout[] = "NCCL timeout";
constexpr char kAckTimeout[] = "ACK timeout";
constexpr char kNetworkError[] = "network error";

enum class Part { kGpu, kNetwork, kHost };

// How a kind of sign counts: 10 for what ends a process for certain, 1 for what hardly ever does.
struct KindRule {
  std::string_view kind;
  Part part;
  double weight;
  bool slows;                    // it makes things slow, and stops nothing
  std::string_view error_class;  // empty: by the syndrome
};
constexpr std::array kRules = {
    KindRule{"gpu-lost", Part::kGpu, 10, false, kCuda},
    KindRule{"xid", Part::kGpu, 9, false, kCuda},  // refined by its number
    KindRule{"sxid", Part::kGpu, 7, false, kEccNvlink},
    KindRule{"ecc", Part::kGpu, 8, false, kEccNvlink},
    KindRule{"nvlink", Part::kGpu, 8, false, kEccNvlink},
    KindRule{"retired-pages", Part::kGpu, 5, false, kEccNvlink},
    KindRule{"ecc-corrected", Part::kGpu, 3, true, kEccNvlink},
    KindRule{"gpu-throttle", Part::kGpu, 7, true, ""},
    KindRule{"gpu-hot", Part::kGpu, 6, true, ""},
    KindRule{"gpu-clock", Part::kGpu, 6, true, ""},
    KindRule{"link-down", Part::kNetwork, 9, false, kNetworkError},
    KindRule{"nic-error", Part::kNetwork, 8, false, kNetworkError},
    KindRule{"ack-timeout", Part::kNetwork, 7, false, kAckTimeout},
    KindRule{"link-error", Part::kNetwork, 6, false, kNetworkError},
    KindRule{"link-slow", Part::kNetwork, 7, true, kNetworkError},
    KindRule{"packet-loss", Part::kNetwork, 5, true, kNetworkError},
    KindRule{"out-of-memory", Part::kHost, 9, false, ""},
    KindRule{"machine-check", Part::kHost, 7, false, ""},
    KindRule{"pcie-error", Part::kHost, 6, false, ""},
    KindRule{"pcie-slow", Part::kHost, 6, true, ""},
    KindRule{"cpu-stuck", Part::kHost, 7, false, ""},
    KindRule{"storage", Part::kHost, 6, false, ""},
    KindRule{"task-blocked", Part::kHost, 5, false, ""},
    KindRule{"thermal", Part::kHost, 5, true, ""},
    KindRule{"pressure", Part::kHost, 4, true, ""},
    KindRule{"source-stalled", Part::kHost, 3, false, ""},
};

constexpr double kLeast = 2;      // below it a sign says nothing
constexpr double kOfProcess = 3;  // it names the culprit's process
constexpr double kOfOtherProcess = 0.3;
constexpr double kOfOtherPart = 0.5;      // a GPU's sign for trouble in the network, and the other way around
constexpr double kOtherSpeed = 0.4;       // what slows down for what stands still, and the other way around
constexpr double kHalfAfterS = 30;        // a sign that far before the onset counts half
constexpr double kConsequenceAfterS = 5;  // one that far after it is a consequence, as likely as not
constexpr double kOfConsequence = 0.4;

bool IsOfNetwork(const v1::Verdict& verdict) {
  return verdict.syndrome() == v1::SYNDROME_COMMUNICATION_HANG ||
         verdict.syndrome() == v1::SYNDROME_COMMUNICATION_SLOW ||
         verdict.syndrome() == v1::SYNDROME_PATH_LOST ||
         verdict.fail_slow().cause() == v1::FAIL_SLOW_CAUSE_COMMUNICATION;
}

bool IsSlow(const v1::Verdict& verdict) {
  return verdict.syndrome() == v1::SYNDROME_COMMUNICATION_SLOW ||
         verdict.syndrome() == v1::SYNDROME_NON_COMMUNICATION_SLOW ||
         verdict.syndrome() == v1::SYNDROME_FAIL_SLOW;
}

// What NCCL itself would show of it: peers of a process that is gone miss its acknowledgements, peers of one
// that stands still run into their watchdogs.
std::string ClassOfSyndrome(const v1::Verdict& verdict) {
  switch (verdict.syndrome()) {
    case v1::SYNDROME_NON_COMMUNICATION_HANG:
    case v1::SYNDROME_NEVER_JOINED:
      return kNcclTimeout;
    case v1::SYNDROME_CRASH:
    case v1::SYNDROME_LOST_NODE:
      return kAckTimeout;
    case v1::SYNDROME_COMMUNICATION_HANG:
    case v1::SYNDROME_PATH_LOST:
      return kNetworkError;
    default:
      return {};
  }
}

// Whether it is the culprit's process that the sign names; nothing where it names none.
std::optional<bool> NamesCulprit(const v1::HardwareSign& sign, const v1::Culprit& culprit) {
  const bool of_process = sign.kind() == "task-blocked" ||
                          (sign.kind() == "out-of-memory" && sign.device().starts_with("process "));
  if (of_process) return sign.host() == culprit.process().host() && sign.number() == culprit.process().pid();
  const std::string mark = Concat("(process ", culprit.process().pid(), ")");
  if (sign.kind() == "xid" && sign.text().find("(process ") != std::string::npos) {
    return sign.host() == culprit.process().host() && sign.text().find(mark) != std::string::npos;
  }
  return std::nullopt;
}

struct Judged {
  double score = 0;
  std::string_view error_class;
};

Judged JudgeSign(const v1::HardwareSign& sign, const v1::Verdict& verdict) {
  const auto rule =
      std::find_if(kRules.begin(), kRules.end(), [&](const KindRule& r) { return r.kind == sign.kind(); });
  if (rule == kRules.end()) return {};
  Judged judged{rule->weight, rule->error_class};
  if (sign.kind() == "xid") {
    const service::XidSort sort = service::MeaningOfXid(sign.number()).sort;
    if (sort == service::XidSort::kConsequence) return {};
    if (sort == service::XidSort::kMemory || sort == service::XidSort::kLink) judged.error_class = kEccNvlink;
    if (sort == service::XidSort::kProgram) judged.score -= 2;
  }
  if ((rule->part == Part::kNetwork) != IsOfNetwork(verdict)) judged.score *= kOfOtherPart;
  if (rule->slows != IsSlow(verdict)) judged.score *= kOtherSpeed;
  if (verdict.culprit().process().pid() != 0) {
    if (const auto names = NamesCulprit(sign, verdict.culprit()); names.has_value()) {
      judged.score *= *names ? kOfProcess : kOfOtherProcess;
    }
  }
  const double after_s = static_cast<double>(sign.unix_ns() - verdict.since_unix_ns()) / 1e9;
  judged.score *= kHalfAfterS / (kHalfAfterS + std::abs(after_s));
  if (after_s > kConsequenceAfterS) judged.score *= kOfConsequence;
  return judged;
}

}  // namespace

LikelyCause LikelyCauseOf(const v1::Verdict& verdict) {
  LikelyCause cause{ClassOfSyndrome(verdict), std::nullopt, "none was seen"};
  if (verdict.syndrome() == v1::SYNDROME_MISMATCH) {
    cause.text = "the program: ranks called different collectives; hardware does not do that";
    return cause;
  }
  Judged best{kLeast, {}};
  for (int i = 0; i < verdict.hardware_size(); ++i) {
    const Judged judged = JudgeSign(verdict.hardware(i), verdict);
    if (judged.score < best.score) continue;
    best = judged;
    cause.sign = i;
  }
  if (!cause.sign.has_value()) return cause;
  if (!best.error_class.empty()) cause.error_class = best.error_class;
  cause.text = SignText(verdict.hardware(*cause.sign), verdict.since_unix_ns());
  return cause;
}

}  // namespace c4::c4d
