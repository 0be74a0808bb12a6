#include "c4d_master/failslow/group_profile.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "analysis/median.h"
#include "c4/v1/telemetry.pb.h"
#include "c4d_master/smon/communicator_roles.h"

namespace c4::c4d {
namespace {

constexpr size_t kFewestToCompare = 3;  // of one kind
constexpr size_t kMostTold = 16;
constexpr double kFewestIterations = 2;

bool IsTransfer(uint8_t function) {
  return function == v1::FUNCTION_SEND || function == v1::FUNCTION_RECV;
}

// One operation of one rank, on the master's clock.
struct Span {
  const CommunicationSpan* operation = nullptr;
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
};

struct RankSpans {
  const ProcessKey* key = nullptr;
  const ProfiledProcess* process = nullptr;
  std::vector<Span> spans;  // by start
};

// What a group does, so that those that do the same are compared: how often it calls what.
using Calls = std::map<std::tuple<uint8_t, uint64_t>, uint64_t>;

// Rates, not counts: a window cuts iterations off at its ends.
std::string Signature(const Calls& calls, double iterations) {
  std::string text;
  for (const auto& [call, times] : calls) {
    const auto a_time = static_cast<uint64_t>(static_cast<double>(times) / iterations + 0.5);
    if (a_time == 0) continue;  // a log
    text += std::to_string(std::get<0>(call)) + "," + std::to_string(std::get<1>(call)) + "," +
            std::to_string(a_time) + ";";
  }
  return text;
}

class Comparison {
 public:
  Comparison(const Profile& profile, const Episode& episode, const Growth& growth,
             const FailSlowThresholds& thresholds)
      : profile_(profile),
        roles_(FindRoles(profile)),
        episode_(episode),
        growth_(growth),
        thresholds_(thresholds) {}

  GroupProfile Run() {
    Collect();
    GroupProfile result;
    if (ranks_.size() < 2 || until_ns_ <= from_ns_) return result;
    iterations_ = static_cast<double>(until_ns_ - from_ns_) / (1e9 * episode_.after_s);
    result.iterations = iterations_;
    if (iterations_ < kFewestIterations) return result;
    result.ranks = CompareRanks();
    result.communicators = CompareCommunicators();
    return result;
  }

 private:
  struct Candidate {
    SlowGroup group;
    double growth = 0;  // 0: not known
  };

  // All ranks' operations, and the time that is seen of all of them.
  void Collect() {
    for (const auto& [key, process] : profile_.processes) {
      if (process.rank < 0 || process.operations.empty()) continue;
      RankSpans rank = {&key, &process, {}};
      const std::vector<ProfileClock>& clocks = profile_.nodes[process.node].clocks;
      for (const CommunicationSpan& operation : process.operations) {
        const int64_t offset_ns = clocks[operation.clock].offset_ns;
        rank.spans.push_back({&operation, operation.started_ns + offset_ns, operation.ended_ns + offset_ns});
      }
      std::sort(rank.spans.begin(), rank.spans.end(),
                [](const Span& a, const Span& b) { return a.started_ns < b.started_ns; });
      from_ns_ = std::max(from_ns_, rank.spans.front().started_ns);
      until_ns_ = std::min(until_ns_, rank.spans.back().ended_ns);
      ranks_.push_back(std::move(rank));
    }
  }
  bool IsSeen(const Span& span) const { return span.started_ns >= from_ns_ && span.ended_ns <= until_ns_; }

  // Of those of one kind: who is above the median by enough to explain what an iteration has lost.
  std::vector<SlowGroup> Suspicious(std::map<std::string, std::vector<Candidate>> kinds) const {
    std::vector<SlowGroup> suspicious;
    const double lost_s = episode_.after_s - episode_.before_s;
    for (auto& [signature, candidates] : kinds) {
      if (candidates.size() < kFewestToCompare) continue;
      std::vector<double> times_s;
      for (const Candidate& candidate : candidates) times_s.push_back(candidate.group.seconds);
      const double median_s = analysis::LowerMedian(times_s);
      for (Candidate& candidate : candidates) {
        SlowGroup& group = candidate.group;
        group.median_seconds = median_s;
        group.ratio = median_s > 0 ? group.seconds / median_s : 0;
        group.of = static_cast<uint32_t>(candidates.size());
        const bool grew = candidate.growth == 0 || candidate.growth >= thresholds_.group_factor;
        if (grew && group.ratio >= thresholds_.group_factor &&
            group.seconds - median_s >= thresholds_.group_share * lost_s) {
          suspicious.push_back(std::move(group));
        }
      }
    }
    std::sort(suspicious.begin(), suspicious.end(), [](const SlowGroup& a, const SlowGroup& b) {
      return a.seconds - a.median_seconds > b.seconds - b.median_seconds;
    });
    if (suspicious.size() > kMostTold) suspicious.resize(kMostTold);
    return suspicious;
  }

  std::vector<SlowGroup> CompareRanks() const {
    std::map<std::string, std::vector<Candidate>> kinds;
    for (const RankSpans& rank : ranks_) {
      Calls calls;
      int64_t own_ns = 0;
      int64_t busy_until_ns = from_ns_;
      for (const Span& span : rank.spans) {
        if (!IsSeen(span)) {
          if (span.started_ns < until_ns_) busy_until_ns = std::max(busy_until_ns, span.ended_ns);
          continue;
        }
        own_ns += std::max<int64_t>(0, span.started_ns - busy_until_ns);
        busy_until_ns = std::max(busy_until_ns, span.ended_ns);
        ++calls[{span.operation->function, span.operation->count}];
      }
      const std::optional<DeclaredWorker>& worker = rank.process->worker;
      const std::string kind =
          (worker.has_value() ? std::to_string(worker->stage) : "") + "/" + Signature(calls, iterations_);
      kinds[kind].push_back({{.kind = "stage",
                              .ranks = {rank.process->rank},
                              .seconds = static_cast<double>(own_ns) / 1e9 / iterations_},
                             growth_(*rank.key)});
    }
    return Suspicious(std::move(kinds));
  }

  struct Communicator {
    uint32_t rank_count = 0;
    std::set<int32_t> ranks;
    Calls calls;  // of the first rank that was looked at
    const RankSpans* first = nullptr;
    int64_t transfer_ns = 0;
    // Collectives by their numbers: how many members, when the last one started, when the first one ended.
    struct Operation {
      uint32_t members = 0;
      int64_t started_ns = 0;
      int64_t ended_ns = 0;
    };
    std::map<uint64_t, Operation> collectives;
    // Sends and receives by their two ends, in order.
    std::map<std::pair<uint32_t, uint32_t>, std::pair<std::vector<Span>, std::vector<Span>>> pairs;
  };

  // Of a send and its receive, which meet in order: from when both have started.
  static int64_t PairsNs(const std::vector<Span>& sends, const std::vector<Span>& receives) {
    int64_t sum_ns = 0;
    for (size_t s = 0, r = 0; s < sends.size() && r < receives.size();) {
      const Span& send = sends[s];
      const Span& receive = receives[r];
      const int64_t both_ns = std::max(send.started_ns, receive.started_ns);
      if (both_ns < receive.ended_ns && receive.started_ns <= send.ended_ns) {
        sum_ns += receive.ended_ns - both_ns;
        ++s;
        ++r;
      } else if (send.ended_ns < receive.ended_ns) {
        ++s;
      } else {
        ++r;
      }
    }
    return sum_ns;
  }

  std::vector<SlowGroup> CompareCommunicators() const {
    std::map<uint64_t, Communicator> communicators;
    for (const RankSpans& rank : ranks_) {
      for (const Span& span : rank.spans) {
        const CommunicationSpan& operation = *span.operation;
        const auto membership = rank.process->communicators.find(operation.communicator_id);
        if (!IsSeen(span) || membership == rank.process->communicators.end()) continue;
        Communicator& communicator = communicators[operation.communicator_id];
        communicator.rank_count = membership->second.rank_count;
        communicator.ranks.insert(rank.process->rank);
        if (communicator.first == nullptr) communicator.first = &rank;
        if (communicator.first == &rank) ++communicator.calls[{operation.function, operation.count}];
        if (IsTransfer(operation.function)) {
          const bool sends = operation.function == v1::FUNCTION_SEND;
          const uint32_t own = membership->second.rank;
          const auto peer = static_cast<uint32_t>(operation.root);
          auto& pair = communicator.pairs[sends ? std::pair(own, peer) : std::pair(peer, own)];
          (sends ? pair.first : pair.second).push_back(span);
          continue;
        }
        Communicator::Operation& collective = communicator.collectives[operation.sequence];
        const bool first = collective.members++ == 0;
        collective.started_ns = first ? span.started_ns : std::max(collective.started_ns, span.started_ns);
        collective.ended_ns = first ? span.ended_ns : std::max(collective.ended_ns, span.ended_ns);
      }
    }
    std::map<std::string, std::vector<Candidate>> kinds;
    for (auto& [id, communicator] : communicators) {
      for (const auto& [sequence, collective] : communicator.collectives) {
        if (collective.members < communicator.rank_count) continue;
        communicator.transfer_ns += std::max<int64_t>(0, collective.ended_ns - collective.started_ns);
      }
      for (const auto& [ends, pair] : communicator.pairs) {
        communicator.transfer_ns += PairsNs(pair.first, pair.second);
      }
      if (communicator.ranks.size() < communicator.rank_count) continue;  // not all of it is seen
      const std::string kind = KindOf(id, communicator);
      kinds[kind + "/" + std::to_string(communicator.rank_count) + "/" +
            Signature(communicator.calls, iterations_)]
          .push_back({{.kind = kind,
                       .ranks = {communicator.ranks.begin(), communicator.ranks.end()},
                       .communicator_id = id,
                       .seconds = static_cast<double>(communicator.transfer_ns) / 1e9 / iterations_},
                      0});
    }
    return Suspicious(std::move(kinds));
  }

  // As the program says; else by what it is used for.
  std::string KindOf(uint64_t id, const Communicator& communicator) const {
    const auto role = roles_.find(id);
    switch (role == roles_.end() ? CommunicatorRole::kUnknown : role->second.role) {
      case CommunicatorRole::kInWorker:
        return "tensor";
      case CommunicatorRole::kData:
        return "data";
      case CommunicatorRole::kPipeline:
        return "pipeline";
      case CommunicatorRole::kAcross:
        return communicator.rank_count == ranks_.size() ? "world" : "other";
      case CommunicatorRole::kUnknown:
        break;
    }
    bool transfers = false;
    bool all_to_all = false;
    uint64_t collectives = 0;
    for (const auto& [call, times] : communicator.calls) {
      const uint8_t function = std::get<0>(call);
      transfers = transfers || IsTransfer(function);
      all_to_all = all_to_all || function == v1::FUNCTION_ALL_TO_ALL;
      if (!IsTransfer(function)) collectives += times;
    }
    if (all_to_all) return "expert";
    if (transfers && collectives == 0) return "pipeline";
    if (communicator.rank_count == ranks_.size()) return "world";
    // A tensor group reduces in each layer, a data group once or a few times an iteration.
    constexpr double kCallsOfDataGroup = 4;
    return static_cast<double>(collectives) > kCallsOfDataGroup * iterations_ ? "tensor" : "data";
  }

  const Profile& profile_;
  const std::map<uint64_t, RoledCommunicator> roles_;
  const Episode& episode_;
  const Growth& growth_;
  const FailSlowThresholds& thresholds_;
  std::vector<RankSpans> ranks_;
  int64_t from_ns_ = INT64_MIN;
  int64_t until_ns_ = INT64_MAX;
  double iterations_ = 0;
};

}  // namespace

GroupProfile CompareGroups(const Profile& profile, const Episode& episode, const Growth& growth,
                           const FailSlowThresholds& thresholds) {
  return Comparison(profile, episode, growth, thresholds).Run();
}

}  // namespace c4::c4d
