#include "c4d_master/detectors/crash.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>

#include "absl/strings/str_join.h"
#include "c4d_master/detectors/first_end.h"
#include "c4d_master/detectors/queue_pair_ends.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using service::Concat;
using service::SecondsText;

constexpr int64_t kLauncherNs = 10 * kSecondNs;  // in which it ends what is left of a broken job

bool IsDead(const ProcessRef& ref) {
  const ProcessState state = ref.process->health.state;
  return !ref.process->ended && (state == ProcessState::kGone || state == ProcessState::kZombie);
}

bool IsInside(const Membership& membership) {
  return membership.started.count > membership.finished.count ||
         membership.p2p_started.count > membership.p2p_finished.count;
}

bool IsOver(Phase phase) {
  return phase == Phase::kDestroyed || phase == Phase::kFinalized;
}

// Communicators of the snapshot that a process is in, by id.
std::vector<const Communicator*> CommunicatorsOf(const JobSnapshot& snapshot, const Process& process) {
  std::set<uint64_t> ids;
  for (const Membership& membership : process.communicators) ids.insert(membership.communicator_id);
  std::vector<const Communicator*> communicators;
  for (const uint64_t id : ids) {
    if (const Communicator* communicator = snapshot.Find(id)) communicators.push_back(communicator);
  }
  return communicators;
}

// Members of its communicators that live, or failed because of it: those for whom its end is a loss.
std::vector<uint32_t> Bereaved(const JobSnapshot& snapshot, uint32_t dead, const Membership** where) {
  std::set<uint32_t> others;
  for (const Communicator* communicator : CommunicatorsOf(snapshot, *snapshot.processes[dead].process)) {
    const auto own = std::find_if(communicator->members.begin(), communicator->members.end(),
                                  [&](const Member& member) { return member.process == dead; });
    if (own == communicator->members.end() || IsOver(own->state->phase)) continue;
    for (const Member& member : communicator->members) {
      const ProcessRef& ref = snapshot.processes[member.process];
      if (member.process == dead || ref.process->ended) continue;
      const bool failed = member.state->phase == Phase::kFailed || member.state->phase == Phase::kAborted;
      if (IsDead(ref) && !failed) continue;
      others.insert(member.process);
      if (*where == nullptr || (failed || IsInside(*member.state))) *where = own->state;
    }
  }
  return {others.begin(), others.end()};
}

// All that the ends of these are a loss for. They may be the whole job: each communicator is looked at once.
std::vector<uint32_t> BereavedOf(const JobSnapshot& snapshot, const std::vector<uint32_t>& dead) {
  std::vector<bool> is_dead(snapshot.processes.size());
  for (const uint32_t i : dead) is_dead[i] = true;
  std::set<uint32_t> bereaved;
  for (const Communicator& communicator : snapshot.communicators) {
    // The first of them in it, and whether there is another: one is no loss for itself.
    const Member* first = nullptr;
    bool several = false;
    for (const Member& member : communicator.members) {
      if (!is_dead[member.process] || IsOver(member.state->phase)) continue;
      several = several || (first != nullptr && first->process != member.process);
      if (first == nullptr) first = &member;
    }
    if (first == nullptr) continue;
    for (const Member& member : communicator.members) {
      const ProcessRef& ref = snapshot.processes[member.process];
      if (ref.process->ended || (!several && member.process == first->process)) continue;
      const bool failed = member.state->phase == Phase::kFailed || member.state->phase == Phase::kAborted;
      if (!IsDead(ref) || failed) bereaved.insert(member.process);
    }
  }
  return {bereaved.begin(), bereaved.end()};
}

// Whether somebody has called a collective that this one, which is gone, will never call.
bool IsMissedByCalls(const JobSnapshot& snapshot, uint32_t dead) {
  for (const Communicator* communicator : CommunicatorsOf(snapshot, *snapshot.processes[dead].process)) {
    uint64_t most = 0;
    for (const Member& member : communicator->members) most = std::max(most, member.state->called.count);
    for (const Member& member : communicator->members) {
      if (member.process != dead || IsOver(member.state->phase)) continue;
      if (member.state->called.count < most) return true;
    }
  }
  return false;
}

// The communicator whose operations its end concerns; nullptr: it had left all of them.
const Membership* LeftBehind(const Process& process) {
  const Membership* where = nullptr;
  for (const Membership& membership : process.communicators) {
    if (!IsOver(membership.phase) && (where == nullptr || IsInside(membership))) where = &membership;
  }
  return where;
}

// The same of a process whose job has been started again: those that ran with it.
std::vector<uint32_t> FormerPeers(const JobSnapshot& snapshot, uint32_t dead, const Membership** where) {
  const Process& process = *snapshot.processes[dead].process;
  *where = LeftBehind(process);
  std::vector<uint32_t> others;
  for (uint32_t i = 0; i < snapshot.processes.size(); ++i) {
    const ProcessRef& ref = snapshot.processes[i];
    if (i != dead && ref.process->incarnation == process.incarnation && !ref.process->ended)
      others.push_back(i);
  }
  return others;
}

// Who had joined no communicator when it ended, as a rank that dies as it starts, takes along only those that
// a launcher ends because of it. Else it was a helper, or is of a life of the job that nobody remembers.
void DropStrangers(const JobSnapshot& snapshot, std::vector<End>* ends) {
  const auto joined = [&](const End& end) {
    return !snapshot.processes[end.process].process->communicators.empty();
  };
  if (std::none_of(ends->begin(), ends->end(), joined)) return;
  std::erase_if(*ends, [&, all = *ends](const End& end) {
    return !joined(end) && std::none_of(all.begin(), all.end(), [&](const End& other) {
      return joined(other) && other.at_ns >= end.at_ns && other.at_ns - end.at_ns <= kLauncherNs;
    });
  });
}

// What tells nothing of what broke the job.
bool EndedForNoReason(const End& end) {
  return end.manner == Manner::kVictim || end.manner == Manner::kInOrder;
}

// A launcher may have started the rank again before anybody looked: its death is news for a moment all the
// same.
bool IsNews(const ProcessRef& ref) {
  return !ref.superseded || EndedJustNow(ref);
}

// Those that a launcher has started again died with those that it has not yet: who of them was first, and how
// many they were, is not told by what is left.
void AddTogether(const std::vector<End>& replaced, int64_t together_ns, std::vector<End>* ends) {
  int64_t first_ns = INT64_MAX;
  for (const End& end : *ends) first_ns = std::min(first_ns, end.at_ns);
  for (const End& end : replaced) {
    if (std::abs(end.at_ns - first_ns) <= together_ns) ends->push_back(end);
  }
}

// Of a life of the job that was followed by another one, which has lost somebody as well: the newer loss is
// the news.
void DropEarlierLives(const JobSnapshot& snapshot, std::vector<End>* ends) {
  int64_t newest_ns = kNever;  // when the latest of them was first seen
  for (const End& end : *ends) {
    newest_ns = std::max(newest_ns, snapshot.processes[end.process].process->first_seen_at_ns);
  }
  std::erase_if(*ends, [&](const End& end) {
    return snapshot.processes[end.process].superseded && end.at_ns < newest_ns;
  });
}

Finding CrashAt(const Membership& where, const End& end) {
  Finding finding;
  finding.syndrome = Syndrome::kCrash;
  finding.communicator_id = where.communicator_id;
  finding.operation = IsInside(where) && where.started.count == where.finished.count
                          ? where.p2p_finished.count
                          : where.finished.count;
  finding.communicators.push_back(where.communicator_id);
  finding.since_at_ns = end.at_ns;
  return finding;
}

// "4 were killed by SIGTERM (signal 15), 2 exited with status 1": how these ended.
std::string MannersText(const JobSnapshot& snapshot, const std::vector<End>& ends) {
  std::map<std::string, size_t> manners;
  for (const End& end : ends) ++manners[ExitText(snapshot.processes[end.process])];
  std::vector<std::string> parts;
  for (const auto& [text, count] : manners) {
    const bool exited = text.starts_with("exited");
    parts.push_back(Concat(count, exited ? " " : count == 1 ? " was " : " were ", text));
  }
  return absl::StrJoin(parts, ", ");
}

// What it said itself, and how it ended; of those that died after it, how they did.
void AddEnd(const JobSnapshot& snapshot, const End& end, const std::vector<End>& after, Finding* finding) {
  const ProcessRef& ref = snapshot.processes[end.process];
  if (const Membership* const words = LastWords(*ref.process)) {
    finding->evidence.push_back(
        {"last-words",
         Concat(
             "it gave communicator ", service::CommunicatorText(words->communicator_id), " up ",
             SecondsText(std::max<int64_t>(0, ref.process->health.state_since_at_ns - words->gave_up.at_ns)),
             " before it ended, with NCCL's result ", words->gave_up.result)});
  }
  if (after.empty()) return;
  int64_t next_ns = INT64_MAX;
  for (const End& other : after) next_ns = std::min(next_ns, other.at_ns);
  finding->evidence.push_back(
      {"exit", Concat("it was the first to end, ", SecondsText(std::max<int64_t>(0, next_ns - end.at_ns)),
                      " before the next; of the ", after.size(), after.size() == 1 ? " other, " : " others, ",
                      MannersText(snapshot, after))});
}

// One process that is known to have died before the others of its job, or without them.
Finding CrashOf(const JobSnapshot& snapshot, const End& end, const Membership& where,
                const std::vector<uint32_t>& bereaved, const std::vector<End>& after, bool alone,
                const EndThresholds& thresholds) {
  const ProcessRef& ref = snapshot.processes[end.process];
  Finding finding = CrashAt(where, end);
  FillProcess(ref, &finding);
  finding.waiting = RanksOf(snapshot, bereaved);
  // Who is gone, nobody saw how, while nobody was inside an operation, may have come to its end.
  const bool missed = end.manner != Manner::kUnknown || IsInside(where) ||
                      IsMissedByCalls(snapshot, end.process) ||
                      std::any_of(bereaved.begin(), bereaved.end(), [&](uint32_t other) {
                        const auto& all = snapshot.processes[other].process->communicators;
                        return std::any_of(all.begin(), all.end(), IsInside);
                      });
  // Several that may have been ended from outside may be the first node of a whole job that is being ended.
  const int64_t alone_ns = alone || end.manner == Manner::kOwn ? 0 : thresholds.ended_ns;
  const bool certain = missed && IsHeardWhole(snapshot, end, alone_ns);
  finding.confidence = certain ? 0.99 : 0.5;
  if (certain) finding.confirmed_by = "gone";
  finding.evidence.push_back(
      {"process-state", Concat("rank ", finding.rank, " was process ", finding.culprit.pid, " on ",
                               finding.host, ": ", ExitText(ref), ", without having left in order, for ",
                               SecondsText(ref.host->as_of_ns - ref.process->health.state_since_at_ns))});
  AddEnd(snapshot, end, after, &finding);
  finding.evidence.push_back(
      {"inside", ref.process->communicators.empty()
                     ? "it had joined no communicator yet"
                     : Concat("it had called ", where.called.count + where.p2p_called.count, " and finished ",
                              where.finished.count + where.p2p_finished.count, " operations of communicator ",
                              service::CommunicatorText(where.communicator_id),
                              IsInside(where) ? ": it died inside an operation" : "")});
  finding.evidence.push_back({"waiting", Concat(service::RankListText(finding.waiting),
                                                finding.waiting.size() == 1 ? " depends" : " depend",
                                                " on it; nobody died before it")});
  finding.suggested_action = Concat("for process ", finding.culprit.pid, " on ", finding.host, " look at ",
                                    WhereToLook(ref), "; then restart the job from its last checkpoint");
  return finding;
}

// The first of many deaths, or all that is left of a job. Whoever ends a whole job from outside does the same
// to it as one that crashes and takes the rest along: a suspicion, of all that may have been the first.
std::vector<Finding> CrashAmong(const JobSnapshot& snapshot, const std::vector<End>& first,
                                const std::vector<End>& together) {
  std::vector<uint32_t> dead;
  std::set<std::string> hosts;
  const Membership* where = nullptr;
  const End* named = nullptr;
  for (const End& end : first) {
    const ProcessRef& ref = snapshot.processes[end.process];
    const Membership* left = LeftBehind(*ref.process);
    if (left == nullptr || ref.process->rank < 0) continue;
    if (where == nullptr) where = left;
    if (named == nullptr) named = &end;
    dead.push_back(end.process);
    hosts.insert(ref.host->name);
  }
  if (dead.empty() || where == nullptr) return {};
  const ProcessRef& ref = snapshot.processes[dead.front()];
  Finding finding = CrashAt(*where, *named);
  const std::vector<uint32_t> ranks = RanksOf(snapshot, dead);
  if (ranks.size() == 1) {
    FillProcess(ref, &finding);
  } else {
    finding.kind = CulpritKind::kAmbiguous;
    finding.candidates.assign(ranks.begin(), ranks.end());
    if (hosts.size() == 1) finding.host = *hosts.begin();
  }
  const std::string where_died =
      hosts.size() <= 4 ? absl::StrJoin(hosts, ", ") : Concat(hosts.size(), " hosts");
  finding.waiting = RanksOf(snapshot, BereavedOf(snapshot, dead));
  finding.confidence = 0.5;
  finding.evidence.push_back(
      {"process-state",
       Concat(service::RankListText(ranks), " on ", where_died, ranks.size() == 1 ? " was" : " were",
              " gone first, without having left in order, ", SecondsText(ref.host->as_of_ns - named->at_ns),
              " ago; ", together.size(), together.size() == 1 ? " process" : " processes",
              " died within a second")});
  finding.evidence.push_back({"exit", Concat("of these, ", MannersText(snapshot, together))});
  finding.suggested_action =
      Concat("if nobody ended the job on purpose, look for what ended ", service::RankListText(ranks),
             " in the job's output and in `dmesg` on ", where_died, " (out of memory, GPU error)");
  return {std::move(finding)};
}

// Whether it ended in another way than most of those that ended with it: a launcher ends all the others
// alike, and who ends a whole job does so to all of it.
bool EndedUnlike(const JobSnapshot& snapshot, const End& end, const std::vector<End>& together) {
  std::map<std::string, size_t> manners;
  size_t others = 0;
  for (const End& other : together) {
    if (other.process == end.process || other.manner == Manner::kUnknown) continue;
    ++others;
    ++manners[ExitText(snapshot.processes[other.process])];
  }
  if (end.manner == Manner::kUnknown || others == 0) return false;
  return 2 * manners[ExitText(snapshot.processes[end.process])] < others;
}

}  // namespace

std::vector<Finding> DetectCrashes(const JobSnapshot& snapshot, const EndThresholds& thresholds) {
  std::vector<End> ends;
  std::vector<End> replaced;  // whose rank another process has taken
  for (uint32_t i = 0; i < snapshot.processes.size(); ++i) {
    const ProcessRef& ref = snapshot.processes[i];
    if (!IsDead(ref)) continue;
    const End end = EndOf(snapshot, i, thresholds.together_ns, thresholds.gave_up_wait_ns);
    if (EndedForNoReason(end)) continue;
    (IsNews(ref) ? ends : replaced).push_back(end);
  }
  DropStrangers(snapshot, &ends);
  if (ends.empty()) return {};
  AddTogether(replaced, thresholds.ended_ns, &ends);
  DropEarlierLives(snapshot, &ends);
  // Who dies later dies of the first death: the launcher ends what is left of a broken job.
  std::vector<End> first = FirstOf(snapshot, ends);
  std::vector<End> own;
  std::copy_if(first.begin(), first.end(), std::back_inserter(own),
               [](const End& end) { return end.manner == Manner::kOwn; });
  const bool all_seen =
      std::none_of(first.begin(), first.end(), [](const End& end) { return end.manner == Manner::kUnknown; });
  if (all_seen && !own.empty()) first = std::move(own);
  const int64_t first_ns = std::min_element(ends.begin(), ends.end(), [](const End& a, const End& b) {
                             return a.at_ns < b.at_ns;
                           })->at_ns;
  std::vector<End> together;
  std::map<uint32_t, std::pair<size_t, size_t>> died;  // by incarnation: with the first, and of how many
  for (const ProcessRef& ref : snapshot.processes) {
    // Launchers may number incarnations from 0 again: neither who came after nor who was dead before counts.
    const bool was_there = IsDead(ref)
                               ? ref.process->health.state_since_at_ns >= first_ns - thresholds.ended_ns
                               : ref.process->first_seen_at_ns <= first_ns;
    if (was_there) ++died[ref.process->incarnation].second;
  }
  for (const End& end : ends) {
    if (end.at_ns - first_ns > thresholds.ended_ns) continue;
    together.push_back(end);
    ++died[snapshot.processes[end.process].process->incarnation].first;
  }
  const bool most = std::any_of(died.begin(), died.end(), [&](const auto& entry) {
    return entry.second.first >= thresholds.ended_least &&
           static_cast<double>(entry.second.first) >
               thresholds.ended_share * static_cast<double>(entry.second.second);
  });
  const bool one = first.size() == 1;
  const bool unlike = one && EndedUnlike(snapshot, first.front(), together);
  if (most && !unlike) {
    return CrashAmong(snapshot, first, together);
  }
  std::erase_if(first, [&](const End& end) { return !IsNews(snapshot.processes[end.process]); });
  if (first.empty()) return {};
  std::vector<End> after;
  std::copy_if(ends.begin(), ends.end(), std::back_inserter(after),
               [&](const End& end) { return one && end.process != first.front().process; });
  // Of many that ended alike one was the first by chance: the rest of the job may be about to follow.
  const bool alone = unlike || (one && together.size() == 1);
  std::vector<Finding> findings;
  for (const End& end : first) {
    const ProcessRef& ref = snapshot.processes[end.process];
    const Membership* where = nullptr;
    std::vector<uint32_t> bereaved =
        ref.superseded ? FormerPeers(snapshot, end.process, &where) : Bereaved(snapshot, end.process, &where);
    // Those that were ended because of it would miss it, too.
    if (bereaved.empty() && !after.empty()) bereaved = FormerPeers(snapshot, end.process, &where);
    // One that had joined none yet: where the first of them was.
    for (size_t i = 0; where == nullptr && ref.process->communicators.empty() && i < after.size(); ++i) {
      where = LeftBehind(*snapshot.processes[after[i].process].process);
    }
    if (!bereaved.empty() && where != nullptr) {
      findings.push_back(CrashOf(snapshot, end, *where, bereaved, after, alone, thresholds));
    }
  }
  return findings.empty() ? CrashAmong(snapshot, first, together) : findings;
}

namespace {

// The job without its silent hosts: whether all of it waits inside operations, and since when.
struct Standstill {
  bool all_inside = true;
  int64_t last_step_ns = kNever;
  int64_t as_of_ns = INT64_MAX;
};

Standstill StandstillOfTheHeard(const JobSnapshot& snapshot) {
  Standstill result;
  for (const ProcessRef& ref : snapshot.processes) {
    if (ref.stale || ref.superseded || ref.process->ended) continue;
    bool in_use = false;
    bool inside = false;
    for (const Membership& membership : ref.process->communicators) {
      if (membership.phase != Phase::kReady) continue;
      in_use = true;
      inside = inside || IsInside(membership);
      for (const Counter* counter :
           {&membership.called, &membership.started, &membership.finished, &membership.p2p_called,
            &membership.p2p_started, &membership.p2p_finished}) {
        result.last_step_ns = std::max(result.last_step_ns, counter->last_at_ns);
      }
    }
    if (!in_use) continue;
    result.all_inside = result.all_inside && inside && !CannotRun(ref.process->health.state);
    result.as_of_ns = std::min(result.as_of_ns, ref.host->as_of_ns);
    if (!result.all_inside) break;
  }
  return result;
}

}  // namespace

// Who waits for a lost node may wait inside another communicator, for a rank that waits for it. A rank that
// is heard and waits for nothing may hold all of them up, and the silent agent mean nothing.
std::vector<Finding> DetectLostNodes(const JobSnapshot& snapshot, int64_t now_ns,
                                     const EndThresholds& thresholds) {
  struct Loss {
    const Host* host = nullptr;
    std::set<uint32_t> waiting;
    std::set<uint64_t> communicators;
    int64_t standstill_ns = 0;
    uint64_t operation = 0;
    size_t still = 0;  // queue pairs of others towards it that stand still
    bool lives = false;
  };
  std::map<std::string, Loss> losses;
  const bool some_stale = std::any_of(snapshot.communicators.begin(), snapshot.communicators.end(),
                                      [](const Communicator& c) { return c.judgement == Judgement::kStale; });
  if (!some_stale) return {};
  const Standstill job = StandstillOfTheHeard(snapshot);
  if (!job.all_inside || job.last_step_ns == kNever) return {};
  if (job.as_of_ns - job.last_step_ns < thresholds.lost_standstill_ns) return {};
  for (const Communicator& communicator : snapshot.communicators) {
    if (communicator.judgement != Judgement::kStale) continue;
    std::map<uint32_t, const Host*> silent;  // by rank in the communicator
    std::vector<const Member*> waiting;
    for (const Member& member : communicator.members) {
      const ProcessRef& ref = snapshot.processes[member.process];
      if (!ref.stale) {
        if (member.state->phase == Phase::kReady && IsInside(*member.state)) waiting.push_back(&member);
        continue;
      }
      const bool spoke_on = ref.host->as_of_ns - job.last_step_ns > thresholds.lost_before_ns;
      const int64_t lost_ns = spoke_on ? thresholds.lost_late_ns : thresholds.lost_silence_ns;
      if (now_ns - ref.host->as_of_ns >= lost_ns) silent[member.state->rank] = ref.host;
    }
    if (silent.empty() || waiting.empty()) continue;
    for (const auto& [rank, host] : silent) {
      Loss& loss = losses[host->name];
      loss.host = host;
      loss.communicators.insert(communicator.id);
      loss.standstill_ns = std::max(loss.standstill_ns, job.as_of_ns - job.last_step_ns);
      for (const Member* member : waiting) loss.waiting.insert(member->process);
      loss.operation = waiting.front()->state->started.count > waiting.front()->state->finished.count
                           ? waiting.front()->state->finished.count
                           : waiting.front()->state->p2p_finished.count;
    }
    for (const Member& member : communicator.members) {
      const ProcessRef& ref = snapshot.processes[member.process];
      if (ref.stale) continue;
      for (const QueuePair& queue_pair : member.own->queue_pairs) {
        const auto it = silent.find(queue_pair.peer);
        if (it == silent.end()) continue;
        Loss& loss = losses[it->second->name];
        const int64_t last_ns = std::max(queue_pair.last_progress_at_ns, queue_pair.last_heard_at_ns);
        if (last_ns != kNever && ref.host->as_of_ns - last_ns < thresholds.lost_standstill_ns) {
          loss.lives = true;
        } else {
          ++loss.still;
        }
      }
    }
  }
  std::erase_if(losses, [](const auto& entry) { return entry.second.lives; });
  std::vector<Finding> findings;
  for (const auto& [name, loss] : losses) {
    Finding finding;
    finding.syndrome = Syndrome::kLostNode;
    finding.kind = CulpritKind::kNode;
    finding.host = name;
    finding.communicators.assign(loss.communicators.begin(), loss.communicators.end());
    finding.communicator_id = *loss.communicators.begin();
    finding.operation = loss.operation;
    finding.waiting = RanksOf(snapshot, {loss.waiting.begin(), loss.waiting.end()});
    finding.since_at_ns = loss.host->as_of_ns;
    finding.confidence = 0.95;
    finding.confirmed_by = "silent";
    finding.evidence.push_back({"silent", Concat("the agent on ", name, " has been silent for ",
                                                 SecondsText(now_ns - loss.host->as_of_ns))});
    finding.evidence.push_back(
        {"waiting", Concat(service::RankListText(finding.waiting), " wait for its ranks for ",
                           SecondsText(loss.standstill_ns), "; ",
                           loss.still == 0 ? std::string("what they exchange with them is not shown")
                                           : Concat(loss.still, " queue pairs with them stand still"))});
    finding.suggested_action = Concat("see whether ", name,
                                      " is up and reachable; isolate it and restart the "
                                      "job from its last checkpoint");
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace c4::c4d
