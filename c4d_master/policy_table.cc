// The table of thresholds. docs/policy.md is made from it (`c4 policy --markdown`).
#include "c4d_master/fence_log.h"
#include "c4d_master/policy.h"

namespace c4::c4d {
namespace {

template <auto... kMembers>
PolicyField At(Policy& policy) {
  return &(policy.*....*kMembers);
}

constexpr auto kDetectors = &Policy::detectors;
constexpr auto kHang = &Thresholds::hang;
constexpr auto kStuck = &Thresholds::communication_hang;
constexpr auto kEnd = &Thresholds::end;
constexpr auto kSlow = &Thresholds::slow;
constexpr auto kLost = &Thresholds::path_lost;
constexpr auto kSilence = &Thresholds::silence;

// What a threshold was tuned on.
constexpr char kReasoning[] = "by reasoning";
constexpr char kFabric[] = "emulated fabric, 16 ranks, and recordings of it";
constexpr char kBoth[] = "simulated telemetry, then recordings of the emulated fabric";
constexpr char kPaths[] = "simulated telemetry with paths, seeds 20000 to 20999, then the emulated fabric";
constexpr char kMoves[] = "a model of the network's physics (c4d_experiment_test), seeds below 300";
constexpr char kJobs[] = "simulated hybrid-parallel jobs (c4d_jobs), seeds below 600, 64 ranks";
constexpr char kMoreJobs[] = "simulated hybrid-parallel jobs (c4d_jobs), seeds from 700000, 32 to 256 ranks";

constexpr double kDayS = 86400;
constexpr double kMostLooks = kRecentSlices - 1;  // slices that can be looked back
constexpr double kFencesS = static_cast<double>(FenceLog::kKeepNs) / static_cast<double>(kSecondNs);

// Which link it is that queue pairs of one kind of trouble share: seven lines for each kind.
// clang-format off
#define C4_LINK_ENTRIES(PREFIX, WHAT, GROUP, MEMBER)                                                          \
  {PREFIX "-link-culprit-cost", "queue pairs", 0, 1000,                                                      \
   "a link is blamed for " WHAT " queue pairs only where it explains more than so many", kPaths,             \
   At<kDetectors, GROUP, MEMBER, &LinkBlameThresholds::culprit_cost>},                                       \
  {PREFIX "-link-margin", "queue pairs", 0, 1000,                                                            \
   "links whose explanations of " WHAT " queue pairs differ by less than so many are not told apart", kPaths,\
   At<kDetectors, GROUP, MEMBER, &LinkBlameThresholds::margin>},                                             \
  {PREFIX "-link-least-known", "share", 0, 1,                                                                \
   "no link is named where the paths of less than this share of the " WHAT " queue pairs are known", kPaths, \
   At<kDetectors, GROUP, MEMBER, &LinkBlameThresholds::least_known>},                                        \
  {PREFIX "-link-explained", "share", 0, 1,                                                                  \
   "of these, the links named must explain so many, or unknown paths of acknowledgements might", kPaths,     \
   At<kDetectors, GROUP, MEMBER, &LinkBlameThresholds::explained>},                                          \
  {PREFIX "-link-least-explained", "share", 0, 1,                                                            \
   "of these, the links named must explain so many themselves", kPaths,                                      \
   At<kDetectors, GROUP, MEMBER, &LinkBlameThresholds::least_explained>},                                    \
  {PREFIX "-link-contradicting", "share", 0, 1,                                                              \
   "a link is not named where more than this share of the queue pairs that take it are well", kPaths,        \
   At<kDetectors, GROUP, MEMBER, &LinkBlameThresholds::contradicting>},                                      \
  {PREFIX "-link-most", "links", 1, 4, "links that are named at a time", kReasoning,                        \
   At<kDetectors, GROUP, MEMBER, &LinkBlameThresholds::max_links>},                                          \
  {PREFIX "-link-half-known", "share", 0, 1,                                                                 \
   "weight of a queue pair the path of whose acknowledgements nobody knows", kPaths,                         \
   At<kDetectors, GROUP, MEMBER, &LinkBlameThresholds::half_known>}
// clang-format on

constexpr PolicyEntry kTable[] = {
    // Who is judged.
    {"agent-stale-s", "s", 0.5, kDayS,
     "ranks of a node whose agent has been silent for so long are not judged", kReasoning,
     At<&Policy::agent_stale_ns>},
    {"silence-before-s", "s", 0, kDayS,
     "what stood still for longer than this before a host fell silent is not excused by its silence",
     kReasoning, At<kDetectors, kSilence, &SilenceThresholds::before_ns>},
    {"silence-go-on-s", "s", 0, kDayS,
     "a job that waited for a silent host gets at most so long to go on when the host is back", kReasoning,
     At<kDetectors, kSilence, &SilenceThresholds::most_to_go_on_ns>},

    // A rank that others wait for.
    {"hang-suspect-s", "s", 0.1, kDayS,
     "a communicator that stands still for so long, with ranks waiting, is suspected to hang", kBoth,
     At<kDetectors, kHang, &HangThresholds::suspect_ns>},
    {"hang-suspect-max-s", "s", 0.1, kDayS,
     "upper end of that time, whatever standstills are usual in the job", kReasoning,
     At<kDetectors, kHang, &HangThresholds::suspect_max_ns>},
    {"hang-usual-factor", "times", 1, 100,
     "between these two a standstill of so many times the longest usual one is suspected", kReasoning,
     At<kDetectors, kHang, &HangThresholds::usual_factor>},
    {"no-progress-s", "s", 0.5, kDayS,
     "a suspect that has not worked for so long is confirmed: 1 % of a processor, or 4 KiB of I/O, in 2 s",
     kJobs, At<kDetectors, kHang, &HangThresholds::no_progress_ns>},
    {"hang-limit-s", "s", 1, kDayS,
     "a hang is confirmed after so long, or after what the next two make of the longest usual standstill",
     "by reasoning: a checkpoint of a minute is no hang", At<kDetectors, kHang, &HangThresholds::limit_ns>},
    {"hang-io-limit-s", "s", 1, kDayS,
     "the same of a suspect that is blocked in the kernel, or has read or written files within hang-limit-s",
     "by reasoning: a checkpoint of ten minutes is no hang",
     At<kDetectors, kHang, &HangThresholds::io_limit_ns>},
    {"hang-io-recent-s", "s", 2, kDayS, "who moved 4 KiB in 2 s within this time does", kReasoning,
     At<kDetectors, kHang, &HangThresholds::io_recent_ns>},
    {"hang-limit-factor", "times", 1, 1000,
     "a hang is not confirmed by its length before so many times the longest usual standstill", kReasoning,
     At<kDetectors, kHang, &HangThresholds::certain_factor>},
    {"hang-limit-more-s", "s", 0, kDayS, "or so much more than it, whichever is less", kReasoning,
     At<kDetectors, kHang, &HangThresholds::certain_more_ns>},
    {"hang-inside-s", "s", 0.1, kDayS,
     "all ranks are inside an operation and nothing moves for so long: suspected, ambiguous", kJobs,
     At<kDetectors, kHang, &HangThresholds::inside_ns>},
    {"hang-deadlock-factor", "times", 1, 1000,
     "ranks that wait for each other in a ring are confirmed after so many times the time of a suspicion",
     kReasoning, At<kDetectors, kHang, &HangThresholds::deadlock_factor>},
    {"hang-warm-up-operations", "operations", 0, 1e6,
     "the first operations of a communicator teach no usual standstill", kReasoning,
     At<&Policy::rhythm, &RhythmThresholds::warm_up_operations>},

    // Queue pairs of which no byte moves.
    {"stuck-suspect-s", "s", 0.1, kDayS,
     "a queue pair with data that are not acknowledged, of which no byte moves for so long, is suspected",
     kBoth, At<kDetectors, kStuck, &CommunicationHangThresholds::suspect_ns>},
    {"stuck-confirm-s", "s", 0.1, kDayS, "and confirmed after so long", kBoth,
     At<kDetectors, kStuck, &CommunicationHangThresholds::confirm_ns>},
    {"stuck-unheard-s", "s", 1, kDayS,
     "a queue pair whose other end gave no sign of life for so long is silent; one comes each second",
     kFabric, At<kDetectors, kStuck, &CommunicationHangThresholds::unheard_ns>},
    {"stuck-heard-s", "s", 1, kDayS, "one that was heard within this time is well", kPaths,
     At<kDetectors, kStuck, &CommunicationHangThresholds::heard_ns>},
    {"stuck-nic-share", "share", 0, 1, "a NIC is blamed where this share of its queue pairs is silent",
     kFabric, At<kDetectors, kStuck, &CommunicationHangThresholds::nic_share>},
    C4_LINK_ENTRIES("stuck", "stuck", kStuck, &CommunicationHangThresholds::link),

    // Ends of processes and nodes, and ranks that never join.
    {"crash-together-s", "s", 0, 60, "deaths within this time of the first are not told apart", kBoth,
     At<kDetectors, kEnd, &EndThresholds::together_ns>},
    {"crash-waited-s", "s", 0, kDayS,
     "who waited in an operation for so long before it gave its communicators up is a victim", kReasoning,
     At<kDetectors, kEnd, &EndThresholds::gave_up_wait_ns>},
    {"crash-ended-s", "s", 0, 3600,
     "deaths within this time of the first belong to a job that may have been ended as a whole; one that was "
     "killed "
     "from outside, or unseen, are crashes when the others have outlived them by so long",
     kFabric, At<kDetectors, kEnd, &EndThresholds::ended_ns>},
    {"crash-ended-least", "ranks", 1, 1e6, "and it may have been where at least so many died", kFabric,
     At<kDetectors, kEnd, &EndThresholds::ended_least>},
    {"crash-ended-share", "share", 0, 1, "and more than this share of all ranks", kFabric,
     At<kDetectors, kEnd, &EndThresholds::ended_share>},
    {"lost-node-silence-s", "s", 0.5, kDayS,
     "a node whose agent has been silent for so long is lost, where others wait for its ranks", kBoth,
     At<kDetectors, kEnd, &EndThresholds::lost_silence_ns>},
    {"lost-node-standstill-s", "s", 0.1, kDayS, "and have waited for so long", kBoth,
     At<kDetectors, kEnd, &EndThresholds::lost_standstill_ns>},
    {"lost-node-before-s", "s", 0, kDayS,
     "a node that was heard for longer than this after the last step of the job did not stop it by its end",
     kReasoning, At<kDetectors, kEnd, &EndThresholds::lost_before_ns>},
    {"lost-node-late-s", "s", 0.5, kDayS, "such a node is lost after a silence of so long", kJobs,
     At<kDetectors, kEnd, &EndThresholds::lost_late_ns>},
    {"join-suspect-s", "s", 0.1, kDayS,
     "a rank that is missing for so long while others set a communicator up is suspected", kReasoning,
     At<kDetectors, kEnd, &EndThresholds::join_suspect_ns>},
    {"join-idle-s", "s", 0.1, kDayS, "confirmed after so long where it is there and does not work",
     kReasoning, At<kDetectors, kEnd, &EndThresholds::join_idle_ns>},
    {"join-limit-s", "s", 0.1, kDayS, "and after so long in any case",
     "by reasoning: nodes start minutes apart", At<kDetectors, kEnd, &EndThresholds::join_limit_ns>},

    // The windows in which slowness is looked for, and what becomes usual.
    {"window-slice-s", "s", 0.1, 60, "the past of a process is cut into slices of at least so long", kFabric,
     At<&Policy::windows, &WindowThresholds::slice_ns>},
    {"window-s", "s", 0.1, 600, "a window of latencies covers at least so much", kFabric,
     At<&Policy::windows, &WindowThresholds::window_ns>},
    {"window-slices", "slices", 1, kRecentSlices, "and at most so many slices", kFabric,
     At<&Policy::windows, &WindowThresholds::window_slices>},
    {"window-inside-slice-s", "s", 0.1, 60,
     "and slices within an operation that lasts longer, where chunks of it complete", kMoreJobs,
     At<&Policy::windows, &WindowThresholds::inside_slice_ns>},
    {"window-own-slices", "slices", 3, kRecentSlices, "slices of which a rank's own time is the median",
     kBoth, At<&Policy::windows, &WindowThresholds::own_slices>},
    {"usual-warm-up-operations", "operations", 0, 1e6, "the first operations of a process make no slices",
     kReasoning, At<&Policy::windows, &WindowThresholds::warm_up_operations>},
    {"usual-warm-up-slices", "slices", 0, 1000, "nor do its first slices become usual", kReasoning,
     At<&Policy::windows, &WindowThresholds::warm_up_slices>},
    {"usual-slices", "slices", 1, 3600, "slices whose own times are usual, the newest", kReasoning,
     At<&Policy::windows, &WindowThresholds::usual_slices>},
    {"usual-least-slices", "slices", 1, 3600, "slices after which it is known what is usual", kFabric,
     At<&Policy::windows, &WindowThresholds::least_usual_slices>},
    {"usual-least-rounds", "rounds", 0, 1000,
     "and after so many rounds of its job, in which each of its communicators finished something", kMoreJobs,
     At<&Policy::windows, &WindowThresholds::least_usual_rounds>},
    {"usual-round-s", "s", 1, kDayS, "communicators that have rested for so long are in no round", kReasoning,
     At<&Policy::windows, &WindowThresholds::round_most_ns>},
    {"usual-high-quantile", "share", 0.5, 1, "quantile of the usual own times that parts of a step come to",
     kMoreJobs, At<&Policy::windows, &WindowThresholds::usual_high_share>},
    {"usual-chunks", "chunks", 16, 1e9, "chunks that a baseline holds; the older half counts half",
     kReasoning, At<&Policy::windows, &WindowThresholds::usual_chunks>},
    {"usual-inherited-chunks", "chunks", 0, 1e9,
     "what a process takes over from its predecessor counts as much as so many chunks", kFabric,
     At<&Policy::windows, &WindowThresholds::inherited_chunks>},
    {"usual-inherited-slices", "slices", 0, 3600, "and as so many slices", kFabric,
     At<&Policy::windows, &WindowThresholds::inherited_slices>},

    // Queue pairs that take longer than usual.
    {"slow-quantile", "share", 0.01, 0.99,
     "quantile of a window's latencies that is judged: a bad path makes nearly all chunks slow", kBoth,
     At<kDetectors, kSlow, &SlowThresholds::share>},
    {"slow-own-factor", "times", 1, 1000, "slow is so many times the same quantile of its baseline", kBoth,
     At<kDetectors, kSlow, &SlowThresholds::own_factor>},
    {"slow-bad-quantile", "share", 0.01, 0.99, "quantile of the baseline at which its bad chunks begin",
     kFabric, At<kDetectors, kSlow, &SlowThresholds::usual_share>},
    {"slow-upper-quantile", "share", 0.01, 0.99,
     "the same of what holds several channels, as the vendor's engine tells it: one bad channel shows there",
     kMoreJobs, At<kDetectors, kSlow, &SlowThresholds::upper_share>},
    {"slow-upper-bad-quantile", "share", 0.01, 0.99, "and of its baseline, where its bad chunks begin",
     kMoreJobs, At<kDetectors, kSlow, &SlowThresholds::upper_usual_share>},
    {"slow-bad-factor", "times", 0, 1000, "and so many times that", kFabric,
     At<kDetectors, kSlow, &SlowThresholds::bad_factor>},
    {"slow-matrix-factor", "times", 0, 1000, "and so many times the median growth over the job", kBoth,
     At<kDetectors, kSlow, &SlowThresholds::matrix_factor>},
    {"slow-matrix-most", "times", 1, 1e6, "but no more than so many times its baseline", kMoreJobs,
     At<kDetectors, kSlow, &SlowThresholds::matrix_most>},
    {"slow-blind-factor", "times", 1, 1e6, "without a baseline: so many times the median of its communicator",
     kFabric, At<kDetectors, kSlow, &SlowThresholds::blind_factor>},
    {"slow-blind-chunks", "chunks", 0, 1e6, "and so many chunks in the window", kFabric,
     At<kDetectors, kSlow, &SlowThresholds::blind_chunks>},
    {"slow-blind-slices", "slices", 0, 1e6, "and so many slices since its process began", kFabric,
     At<kDetectors, kSlow, &SlowThresholds::blind_slices>},
    {"slow-nic-share", "share", 0, 1, "a NIC is blamed where this share of its judged cells is slow", kFabric,
     At<kDetectors, kSlow, &SlowThresholds::nic_share>},
    {"slow-unaddressed-rest", "share", 0, 1,
     "without addresses a NIC or node is blamed where it leaves at most this share of what is slow "
     "unexplained",
     kMoreJobs, At<kDetectors, kSlow, &SlowThresholds::unaddressed_rest>},
    {"slow-least-chunks", "chunks", 0, 1e6, "chunks in the window without which nothing is blamed", kBoth,
     At<kDetectors, kSlow, &SlowThresholds::min_chunks>},
    {"slow-least-usual-chunks", "chunks", 1, 1e9, "chunks of a connection that make a baseline", kMoreJobs,
     At<kDetectors, kSlow, &SlowThresholds::min_usual_chunks>},
    {"slow-persist", "slices", 0, kMostLooks - 1, "earlier slices that must agree, so that it is confirmed",
     kBoth, At<kDetectors, kSlow, &SlowThresholds::persist>},
    {"slow-own-persist", "slices", 1, kMostLooks,
     "or, where chunks are rare, slices with some in which most of what is blamed was slow, whenever they "
     "were",
     kMoreJobs, At<kDetectors, kSlow, &SlowThresholds::own_persist>},
    {"slow-again-slices", "slices", 1, kMostLooks,
     "slices in a row with chunks in which a queue pair that nothing explains must have been slow, at least",
     kMoreJobs, At<kDetectors, kSlow, &SlowThresholds::again_slices>},
    {"slow-chance-a-day", "queue pairs", 1e-6, 1e6,
     "so many of the job may be slow in so many slices in a row by chance in a day, as its slices scatter; "
     "else it takes more slices in a row, up to 8",
     kMoreJobs, At<kDetectors, kSlow, &SlowThresholds::chance_a_day>},
    {"slow-alone-persist", "slices", 0, kMostLooks, "the same, of a single queue pair", kFabric,
     At<kDetectors, kSlow, &SlowThresholds::alone_persist>},
    {"slow-fade", "slices", 0, kMostLooks, "slices for which a NIC that was slow explains what touches it",
     kFabric, At<kDetectors, kSlow, &SlowThresholds::fade>},
    {"slow-scattered-factor", "times", 1, 1000,
     "a few slow ways without a known common cause count from so many times their usual", kJobs,
     At<kDetectors, kSlow, &SlowThresholds::scattered_factor>},
    {"slow-link-unique", "slices", 1, kMostLooks + 1,
     "slices in which one link alone must have explained it, so that the link is confirmed", kPaths,
     At<kDetectors, kSlow, &SlowThresholds::link_unique>},
    {"slow-fenced-s", "s", 0, kFencesS,
     "a path that was fenced within this time counts as slow where slow ones alone name no link", kPaths,
     At<kDetectors, kSlow, &SlowThresholds::fenced_ns>},
    C4_LINK_ENTRIES("slow", "slow", kSlow, &SlowThresholds::link),

    // Operations that take longer though nobody comes late to them.
    {"inside-factor", "times", 1, 1000,
     "a communicator is slow at so many times its usual time of an operation", kMoreJobs,
     At<kDetectors, kSlow, &SlowThresholds::inside_factor>},
    {"inside-sisters", "times", 1, 1000, "and so many times the median growth of those of its kind",
     kMoreJobs, At<kDetectors, kSlow, &SlowThresholds::inside_sisters>},
    {"inside-alone-factor", "times", 1, 1000,
     "where there are no three of its kind: at so many times the usual", kMoreJobs,
     At<kDetectors, kSlow, &SlowThresholds::inside_alone_factor>},
    {"inside-share", "share", 0, 1, "and where its growth takes this share of all time", kMoreJobs,
     At<kDetectors, kSlow, &SlowThresholds::inside_share>},
    {"inside-network", "times", 1, 1000,
     "and, over several nodes, where no queue pair of it has grown by so many times", kMoreJobs,
     At<kDetectors, kSlow, &SlowThresholds::inside_network>},

    // Ranks whose own time has grown.
    {"late-factor", "times", 1, 1000, "a rank is late at so many times its usual own time", kBoth,
     At<kDetectors, kSlow, &SlowThresholds::late_factor>},
    {"late-high-factor", "times", 0, 1000, "and so many times what parts of its steps usually come to",
     kMoreJobs, At<kDetectors, kSlow, &SlowThresholds::late_high>},
    {"late-mean-factor", "times", 0, 1000,
     "and, so that it is confirmed, so many times its usual mean, apart from the slices that one pause "
     "spoils",
     kMoreJobs, At<kDetectors, kSlow, &SlowThresholds::late_mean_factor>},
    {"late-alone", "times", 1, 1000, "and so many times the growth of whoever comes next", kBoth,
     At<kDetectors, kSlow, &SlowThresholds::late_alone>},
    {"late-cycle-share", "share", 0, 1, "and where its growth is this share of an operation's whole time",
     kBoth, At<kDetectors, kSlow, &SlowThresholds::late_cycle_share>},
    {"late-wait", "share", 0, 1,
     "and where it waits for first data no longer than the median and this share of its growth", kJobs,
     At<kDetectors, kSlow, &SlowThresholds::late_wait>},
    {"late-whole", "share", 0, 1,
     "late ranks are their node or communicator where they are this share of its ranks", kJobs,
     At<kDetectors, kSlow, &SlowThresholds::late_whole>},
    {"late-few", "share", 0, 1, "else up to this share of the job's ranks is named one by one", kJobs,
     At<kDetectors, kSlow, &SlowThresholds::late_few>},
    {"late-persist", "slices", 0, kMostLooks, "earlier slices that must agree, so that it is confirmed",
     kBoth, At<kDetectors, kSlow, &SlowThresholds::late_persist>},
    {"late-suspect-factor", "times", 1, 1000, "from here on a rank explains slow queue pairs that touch it",
     kBoth, At<kDetectors, kSlow, &SlowThresholds::late_suspect>},
    {"late-suspect-alone", "times", 1, 1000, "and from so many times the growth of whoever comes next", kBoth,
     At<kDetectors, kSlow, &SlowThresholds::late_suspect_alone>},
    {"late-blind-factor", "times", 1, 1000,
     "slow from its start is who has had so many times the others' median share of the time for itself",
     kFabric, At<kDetectors, kSlow, &SlowThresholds::blind_late_median>},
    {"late-blind-slices", "slices", 1, 1e6, "and that over so many slices", kFabric,
     At<kDetectors, kSlow, &SlowThresholds::blind_late_slices>},

    // Paths that the transport gave up.
    {"path-lost-window-s", "s", 0.1, kFencesS,
     "fences within this time belong together; also how long one is told of", kPaths,
     At<kDetectors, kLost, &PathLostThresholds::window_ns>},
    {"path-lost-settle-s", "s", 0, kFencesS,
     "time after which all that take a dead link have shown that they do", kPaths,
     At<kDetectors, kLost, &PathLostThresholds::settle_ns>},
    {"path-lost-dead-s", "s", 0, kDayS,
     "without known paths: queue pairs that cannot be built again for so long", kReasoning,
     At<kDetectors, kLost, &PathLostThresholds::dead_ns>},
    {"path-lost-slack-s", "s", 0, 60, "how far the clocks of two hosts may be apart", kReasoning,
     At<kDetectors, kLost, &PathLostThresholds::slack_ns>},
    {"path-lost-least", "queue pairs", 1, 1e6, "queue pairs that a dead link must have cost their path",
     kPaths, At<kDetectors, kLost, &PathLostThresholds::least>},
    {"path-lost-contradicting", "share", 0, 1, "share of those over the link that may go on over it", kPaths,
     At<kDetectors, kLost, &PathLostThresholds::contradicting>},
    {"path-lost-elsewhere", "share", 0, 1, "share of those elsewhere that may have been fenced as well",
     kPaths, At<kDetectors, kLost, &PathLostThresholds::elsewhere>},
    C4_LINK_ENTRIES("path-lost", "fenced", kLost, &PathLostThresholds::link),

    // Iterations that take longer than they did.
    {"failslow-share", "share", 0, 1,
     "of the ranks whose iterations are known, so many must tell that their time has changed", kReasoning,
     At<&Policy::fail_slow, &FailSlowThresholds::share>},
    {"failslow-relief", "share", 0, 1,
     "it is over when an iteration takes at most so much longer than before", kReasoning,
     At<&Policy::fail_slow, &FailSlowThresholds::relief>},
    {"failslow-least", "share", 0, 1, "a slow-down is past that the newest iterations do not show by so much",
     kReasoning, At<&Policy::fail_slow, &FailSlowThresholds::least>},
    {"failslow-lasting-s", "s", 0, kDayS, "what is over sooner is not told",
     "the paper's (tens of seconds to hours), kept by reasoning",
     At<&Policy::fail_slow, &FailSlowThresholds::lasting_ns>},
    {"failslow-other-shape-s", "s", 1, kDayS,
     "it ends without relief when the job has had other iterations for so long", kReasoning,
     At<&Policy::fail_slow, &FailSlowThresholds::other_shape_ns>},
    {"failslow-silent-s", "s", 1, kDayS, "nor is it told of when no iteration has ended for so long",
     kReasoning, At<&Policy::fail_slow, &FailSlowThresholds::silent_ns>},
    {"failslow-culprit-s", "s", 0, kDayS, "a certain one waits so long for its culprit to be confirmed",
     kFabric, At<&Policy::fail_slow, &FailSlowThresholds::culprit_ns>},
    {"failslow-overlap-s", "s", 0, kDayS,
     "a slow part is about it that was found slow at most so long before the onset, or is still so long "
     "after",
     kReasoning, At<&Policy::fail_slow, &FailSlowThresholds::overlap_ns>},
    {"failslow-unusual-s", "s", 0, kDayS, "nothing is learnt as usual from so much of its beginning",
     kReasoning, At<&Policy::fail_slow, &FailSlowThresholds::unusual_ns>},

    {"failslow-profile-after-s", "s", 0, kDayS, "where nobody is known to be to blame after so long",
     kReasoning, At<&Policy::fail_slow, &FailSlowThresholds::profile_after_ns>},
    {"failslow-profile-iterations", "iterations", 2, 1000,
     "where nobody is known to be to blame, so many iterations are recorded in full, once", kReasoning,
     At<&Policy::fail_slow, &FailSlowThresholds::profile_iterations>},
    {"failslow-profile-s", "s", 1, kDayS, "for so long at the most", kReasoning,
     At<&Policy::fail_slow, &FailSlowThresholds::profile_ns>},
    {"failslow-group-factor", "times", 1, 1000,
     "suspicious is a rank or group that takes so many times the median of its kind",
     "the paper's, kept by reasoning", At<&Policy::fail_slow, &FailSlowThresholds::group_factor>},
    {"failslow-group-share", "share", 0, 1, "and whose excess is this share of what an iteration has lost",
     kReasoning, At<&Policy::fail_slow, &FailSlowThresholds::group_share>},

    // What trouble leaves behind.
    {"trouble-slow-before-s", "s", 0, kDayS,
     "nothing is learnt from so long before something was confirmed to be slow", kFabric,
     At<&Policy::trouble, &TroubleThresholds::slow_before_ns>},
    {"trouble-slow-after-s", "s", 0, kDayS, "and until so long after it", kFabric,
     At<&Policy::trouble, &TroubleThresholds::slow_after_ns>},
    {"trouble-standstill-after-s", "s", 0, kDayS, "nor until so long after a confirmed standstill", kFabric,
     At<&Policy::trouble, &TroubleThresholds::standstill_after_ns>},
    {"trouble-recovery-s", "s", 0, kDayS,
     "a job that stood still is not slow for so long: what was stuck counts as slow once it has arrived",
     kFabric, At<&Policy::trouble, &TroubleThresholds::recovery_ns>},

    // How long verdicts stay.
    {"clear-settle-s", "s", 0, kDayS,
     "a verdict that fresh data cannot judge any more, or of an earlier master, is cleared after so long",
     kReasoning, At<&Policy::verdicts, &VerdictThresholds::settle_ns>},
    {"clear-slow-s", "s", 0, kDayS, "a slow one that does not come again is cleared after so long", kFabric,
     At<&Policy::verdicts, &VerdictThresholds::slow_settle_ns>},
    {"clear-end-s", "s", 0, kDayS,
     "the end of a process or node is cleared after so long, or when another takes the rank", kReasoning,
     At<&Policy::verdicts, &VerdictThresholds::end_settle_ns>},
    {"clear-silent-s", "s", 0, kDayS, "any verdict about a host that does not report again after so long",
     kReasoning, At<&Policy::verdicts, &VerdictThresholds::silent_clear_ns>},
    {"verdict-by-length-s", "s", 0, kDayS,
     "what only its length makes certain is confirmed when it has been suspected for so long", kJobs,
     At<&Policy::verdicts, &VerdictThresholds::by_length_ns>},
    {"verdict-scattered-s", "s", 0, kDayS,
     "a few slow ways that nobody knows a common cause of are confirmed when they have been suspected for "
     "so long",
     kJobs, At<&Policy::verdicts, &VerdictThresholds::scattered_ns>},
    {"verdict-recurring-times", "times", 1, 1000,
     "a culprit that is suspected to be slow for the so-manieth time is confirmed", kJobs,
     At<&Policy::verdicts, &VerdictThresholds::recurring_times>},
    {"verdict-recurring-s", "s", 0, kDayS, "of those within so long", kJobs,
     At<&Policy::verdicts, &VerdictThresholds::recurring_ns>},
    {"verdict-recurring-apart-s", "s", 0, kDayS,
     "one that comes again sooner rests on the same telemetry and counts once", kMoreJobs,
     At<&Policy::verdicts, &VerdictThresholds::recurring_apart_ns>},

    // Moving queue pairs to see whom slowness follows.
    {"intervention-after-s", "s", 0, kDayS,
     "a verdict about slow queue pairs that the detectors cannot settle is tried by moving some after so "
     "long",
     kReasoning, At<&Policy::intervention, &InterventionThresholds::after_ns>},
    {"intervention-quiet-s", "s", 0, kDayS,
     "a moment is safe for it when nothing else has happened to the job for so long", kReasoning,
     At<&Policy::intervention, &InterventionThresholds::quiet_ns>},
    {"intervention-wait-s", "s", 0, kDayS, "a safe moment is waited for at most so long", kReasoning,
     At<&Policy::intervention, &InterventionThresholds::wait_ns>},
    {"intervention-pause-s", "s", 0, kDayS, "between two experiments of a job lies so much time", kReasoning,
     At<&Policy::intervention, &InterventionThresholds::pause_ns>},
    {"intervention-per-hour", "experiments", 0, 1000, "within an hour a job has at most so many", kReasoning,
     At<&Policy::intervention, &InterventionThresholds::per_hour>},
    {"intervention-per-verdict", "experiments", 0, 100, "about one verdict at most so many are made",
     kReasoning, At<&Policy::intervention, &InterventionThresholds::per_verdict>},
    {"intervention-suspects", "queue pairs", 1, 64, "of those that are slow a step moves at most so many",
     kReasoning, At<&Policy::intervention, &InterventionThresholds::most_suspects>},
    {"intervention-controls", "queue pairs", 1, 16,
     "of those that are well so many are moved beside them, as a control", kReasoning,
     At<&Policy::intervention, &InterventionThresholds::controls>},
    {"intervention-steps", "steps", 1, 8, "an experiment has at most so many", kMoves,
     At<&Policy::intervention, &InterventionThresholds::steps>},
    {"intervention-answer-s", "s", 0.1, 600, "C4P has half of so long to answer, at most", kReasoning,
     At<&Policy::intervention, &InterventionThresholds::answer_ns>},
    {"intervention-carry-s", "s", 1, 600, "queue pairs have to be on their new ways within so long",
     kReasoning, At<&Policy::intervention, &InterventionThresholds::carry_ns>},
    {"intervention-measure-s", "s", 1, 600,
     "they are measured there for so long at least, so that the windows hold nothing else", kReasoning,
     At<&Policy::intervention, &InterventionThresholds::measure_ns>},
    {"intervention-measure-most-s", "s", 1, 600, "and at most; two looks in a row have to agree by then",
     kReasoning, At<&Policy::intervention, &InterventionThresholds::measure_most_ns>},
    {"intervention-told-s", "s", 0, kDayS,
     "where all slow queue pairs were left off a bad link, the verdict is told of for so long", kReasoning,
     At<&Policy::intervention, &InterventionThresholds::told_ns>},
    {"intervention-chunks", "chunks", 1, 1e6, "a queue pair says something from so many in the window on",
     kMoves, At<&Policy::intervention, &InterventionThresholds::min_chunks>},
    {"intervention-fast-factor", "times", 1, 1000,
     "one that was moved is fast when it is so many times faster than before, and not slow", kMoves,
     At<&Policy::intervention, &InterventionThresholds::fast_factor>},
    {"intervention-still-factor", "times", 1, 1000, "it is as slow as before up to so many times faster",
     kMoves, At<&Policy::intervention, &InterventionThresholds::still_factor>},
    {"intervention-control-factor", "times", 1, 1000,
     "when a control becomes so many times faster or slower, the load has changed and nothing follows",
     kMoves, At<&Policy::intervention, &InterventionThresholds::control_factor>},
    {"intervention-agree", "share", 0, 1, "of those that were moved so many have to agree", kMoves,
     At<&Policy::intervention, &InterventionThresholds::agree>},
    {"intervention-contradicting", "share", 0, 1,
     "what more than this share of its queue pairs are well over is no candidate", kMoves,
     At<&Policy::intervention, &InterventionThresholds::contradicting>},
    {"intervention-confidence", "share", 0, 1, "confidence of a verdict that was settled so", kReasoning,
     At<&Policy::intervention, &InterventionThresholds::confidence>},
};

#undef C4_LINK_ENTRIES

constexpr PolicyOrder kOrders[] = {
    {"hang-suspect-s", "hang-suspect-max-s"},
    {"hang-suspect-max-s", "hang-limit-s"},
    {"hang-usual-factor", "hang-limit-factor"},
    {"stuck-suspect-s", "stuck-confirm-s"},
    {"stuck-heard-s", "stuck-unheard-s"},
    {"crash-together-s", "crash-ended-s"},
    {"join-suspect-s", "join-idle-s"},
    {"join-idle-s", "join-limit-s"},
    {"hang-limit-s", "hang-io-limit-s"},
    {"slow-quantile", "slow-bad-quantile"},
    {"slow-upper-quantile", "slow-upper-bad-quantile"},
    {"usual-least-slices", "usual-slices"},
    {"late-suspect-factor", "late-factor"},
    {"path-lost-settle-s", "path-lost-window-s"},
    {"intervention-measure-s", "intervention-measure-most-s"},
    {"intervention-still-factor", "intervention-fast-factor"},
};

}  // namespace

std::span<const PolicyEntry> PolicyTable() {
  return kTable;
}

std::span<const PolicyOrder> PolicyOrders() {
  return kOrders;
}

}  // namespace c4::c4d
