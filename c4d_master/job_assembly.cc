#include "c4d_master/job_assembly.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "c4d_master/queue_pair_sums.h"

namespace c4::c4d {
namespace {

bool IsAlive(const Process& process) {
  return !process.ended && process.health.state != ProcessState::kGone;
}

// Whether the first is believed, of two processes that claim the same rank of one communicator.
bool IsBelieved(const ProcessRef& a, const ProcessRef& b) {
  const Process& x = *a.process;
  const Process& y = *b.process;
  const bool one_owner = x.owner_uid == y.owner_uid;  // another user's word about a rank's life is nothing
  if (one_owner && x.incarnation != y.incarnation) return x.incarnation > y.incarnation;
  if (one_owner && x.key.boot_id == y.key.boot_id && x.key.start_time_ticks != y.key.start_time_ticks) {
    return x.key.start_time_ticks > y.key.start_time_ticks;
  }
  // On different nodes. A communicator does not move to another one: whoever comes to a rank that lives and
  // is reported is a stray, or forged.
  const bool x_lives = IsAlive(x) && !a.stale;
  const bool y_lives = IsAlive(y) && !b.stale;
  if (x_lives != y_lives) return x_lives;
  if (x.first_seen_at_ns != y.first_seen_at_ns) return x.first_seen_at_ns < y.first_seen_at_ns;
  return y.key < x.key;
}

// When it was over with that process, as far as is known; INT64_MAX: it lives.
int64_t EndOf(const ProcessRef& ref) {
  if (!IsAlive(*ref.process)) return ref.process->health.state_since_at_ns;
  return ref.stale ? ref.host->as_of_ns : INT64_MAX;
}

// Of two processes of one rank, the first is what the rank became after the second. What came after the
// other's end is later, whatever number it has: launchers count incarnations from 0 again after a requeue.
// The number tells where their lives overlap.
bool IsLaterLife(const ProcessRef& a, const ProcessRef& b) {
  if (a.process->owner_uid != b.process->owner_uid) return false;  // nobody lives on as another user
  const bool after_b = a.process->first_seen_at_ns >= EndOf(b);
  const bool after_a = b.process->first_seen_at_ns >= EndOf(a);
  if (after_b != after_a) return after_b;
  return a.process->incarnation > b.process->incarnation;
}

bool IsStale(const Host& host, int64_t now_ns, int64_t agent_stale_ns) {
  return !host.Drained() && now_ns - host.as_of_ns > agent_stale_ns;
}

// By communicator and rank, and of those who claim the same the one that is believed first.
void SortClaims(const std::vector<ProcessRef>& processes, std::vector<Claim>* claims) {
  const auto key = [](const Claim& claim) { return std::tie(claim.communicator_id, claim.rank); };
  std::stable_sort(claims->begin(), claims->end(),
                   [&](const Claim& a, const Claim& b) { return key(a) < key(b); });
  // One after the other: among three claims "is believed" need not be an order that a sort could rely on.
  for (auto first = claims->begin(); first != claims->end();) {
    auto last = std::next(first);
    for (; last != claims->end() && key(*last) == key(*first); ++last) {
      if (IsBelieved(processes[last->process], processes[first->process])) std::iter_swap(first, last);
    }
    first = last;
  }
}

bool IsOpen(const Membership& membership) {
  return membership.phase == Phase::kInit || membership.phase == Phase::kReady;
}

// A job that goes on with fewer ranks, or on other nodes, leaves ranks behind that nobody takes over. A
// process that is no more belongs to a former life of the job when others came after its end, and nobody who
// lives is in a communicator with it: nobody misses it.
std::vector<bool> OfFormerLives(const std::vector<ProcessRef>& processes) {
  struct Living {
    std::unordered_set<uint64_t> communicators;
    int64_t newest_ns = kNever;  // when the latest of them was first seen
  };
  std::vector<bool> former(processes.size());
  if (std::all_of(processes.begin(), processes.end(),
                  [](const ProcessRef& ref) { return EndOf(ref) == INT64_MAX; })) {
    return former;
  }
  std::map<int64_t, Living> living;  // by owner
  for (const ProcessRef& ref : processes) {
    if (ref.process->ended || EndOf(ref) != INT64_MAX) continue;
    Living& of_owner = living[ref.process->owner_uid];
    for (const Membership& membership : ref.process->communicators) {
      if (!IsOpen(membership)) continue;
      of_owner.communicators.insert(membership.communicator_id);
      of_owner.newest_ns = std::max(of_owner.newest_ns, ref.process->first_seen_at_ns);
    }
  }
  for (size_t i = 0; i < processes.size(); ++i) {
    const ProcessRef& ref = processes[i];
    const auto of_owner = living.find(ref.process->owner_uid);
    if (of_owner == living.end() || ref.process->communicators.empty() || EndOf(ref) == INT64_MAX) continue;
    former[i] = of_owner->second.newest_ns >= EndOf(ref) &&
                std::none_of(ref.process->communicators.begin(), ref.process->communicators.end(),
                             [&](const Membership& membership) {
                               return of_owner->second.communicators.contains(membership.communicator_id);
                             });
  }
  return former;
}

// What is to be judged anew of a communicator.
enum Dirt : uint8_t { kTimes = 1, kFigures = 2 };

}  // namespace

const JobSnapshot& JobAssembly::Update(const std::map<std::string, Host>& hosts, uint64_t structure,
                                       int64_t now_ns) {
  const bool same = built_ && !again_ && structure == structure_;
  if (!same || !LookAgain(now_ns)) {
    structure_ = structure;
    Rebuild(hosts, now_ns);
  }
  return snapshot_;
}

void JobAssembly::Rebuild(const std::map<std::string, Host>& hosts, int64_t now_ns) {
  built_ = true;
  const uint64_t number = snapshot_.structure + 1;
  snapshot_ = JobSnapshot();
  snapshot_.structure = number;
  hosts_.clear();
  times_.clear();
  processes_.clear();
  std::unordered_map<int32_t, uint32_t> first_life;  // of each rank
  std::unordered_map<int32_t, size_t> several;       // index into lives_
  lives_.clear();
  for (const auto& [name, host] : hosts) {
    const bool stale = IsStale(host, now_ns, agent_stale_ns_);
    snapshot_.stale_hosts[name] = stale;
    hosts_.push_back({&host, host.revision, static_cast<uint32_t>(snapshot_.processes.size()), 0});
    times_.push_back({host.as_of_ns, stale});
    for (const Process& process : host.processes) {
      const auto index = static_cast<uint32_t>(snapshot_.processes.size());
      snapshot_.processes.push_back({&host, &process, stale, false});
      processes_.push_back({process.ended, process.health.state});
      if (process.rank < 0) continue;
      const auto [at, is_first] = first_life.try_emplace(process.rank, index);
      if (is_first) continue;
      const auto [of_rank, is_second] = several.try_emplace(process.rank, lives_.size());
      if (is_second) lives_.push_back({at->second});
      lives_[of_rank->second].push_back(index);
    }
  }
  lives_changed_ = true;
  (void)Supersede();
  SeatAll();
  dirty_.assign(snapshot_.communicators.size(), kTimes | kFigures);
  JudgeDirty(now_ns);
  Former(now_ns);
  for (const SeenHost& seen : hosts_) {
    if (seen.host->back_at_ns <= snapshot_.back_at_ns) continue;
    snapshot_.silent_from_ns = seen.host->silent_from_ns;
    snapshot_.back_at_ns = seen.host->back_at_ns;
  }
}

// Ranks that live on in another process, or that the job goes on without; true where that is news.
bool JobAssembly::Supersede() {
  bool news = false;
  if (lives_changed_) former_lives_ = OfFormerLives(snapshot_.processes);
  lives_changed_ = false;
  std::vector<bool> looked_at(snapshot_.processes.size());
  for (const std::vector<uint32_t>& of_rank : lives_) {
    for (const uint32_t index : of_rank) {
      ProcessRef& ref = snapshot_.processes[index];
      // Who has joined no communicator has not taken the rank over: it may be a helper that knows the rank's
      // number.
      const bool superseded = std::any_of(of_rank.begin(), of_rank.end(), [&](uint32_t other) {
        const ProcessRef& later = snapshot_.processes[other];
        return !later.process->communicators.empty() && IsLaterLife(later, ref);
      });
      looked_at[index] = true;
      news = news || (superseded || former_lives_[index]) != ref.superseded;
      ref.superseded = superseded || former_lives_[index];
    }
  }
  for (size_t i = 0; i < former_lives_.size(); ++i) {
    if (looked_at[i]) continue;
    news = news || former_lives_[i] != snapshot_.processes[i].superseded;
    snapshot_.processes[i].superseded = former_lives_[i];
  }
  return news;
}

// All memberships of processes that were not superseded get their places.
void JobAssembly::SeatAll() {
  std::vector<Claim> claims;
  std::vector<uint32_t> host_of(snapshot_.processes.size());
  seats_.clear();
  for (uint32_t h = 0; h < hosts_.size(); ++h) {
    hosts_[h].first_seat = static_cast<uint32_t>(seats_.size());
    for (uint32_t i = 0; i < hosts_[h].host->processes.size(); ++i) {
      const uint32_t index = hosts_[h].first_process + i;
      ProcessRef& ref = snapshot_.processes[index];
      host_of[index] = h;
      for (const Membership& membership : ref.process->communicators) {
        const int64_t since_ns = SumsOf(membership).outstanding_since_ns;
        ref.outstanding_since_ns = std::min(ref.outstanding_since_ns, since_ns);
        if (!ref.superseded) {
          claims.push_back({membership.communicator_id, membership.rank, index, &membership});
        }
        seats_.push_back({Seat(), membership.revision, since_ns});
      }
    }
  }
  SortClaims(snapshot_.processes, &claims);
  std::vector<Seat> seats;
  current_.Build(snapshot_.processes, host_of, claims, &snapshot_.communicators, &seats,
                 &snapshot_.conflicts);
  // Where a process's memberships begin among the seats.
  std::vector<uint32_t> first(snapshot_.processes.size());
  uint32_t next = 0;
  for (uint32_t i = 0; i < snapshot_.processes.size(); ++i) {
    first[i] = next;
    next += static_cast<uint32_t>(snapshot_.processes[i].process->communicators.size());
  }
  for (size_t i = 0; i < claims.size(); ++i) {
    const Process& process = *snapshot_.processes[claims[i].process].process;
    seats_[first[claims[i].process] +
           static_cast<size_t>(claims[i].membership - process.communicators.data())]
        .seat = seats[i];
  }
}

// Communicators of processes that were superseded a moment ago, as they ended.
void JobAssembly::Former(int64_t now_ns) {
  std::set<uint64_t> ids;
  for (const ProcessRef& ref : snapshot_.processes) {
    if (!ref.superseded || !EndedJustNow(ref)) continue;
    for (const Membership& membership : ref.process->communicators) ids.insert(membership.communicator_id);
  }
  again_ = !ids.empty() || !snapshot_.conflicts.empty();
  if (ids.empty()) return;
  std::vector<Claim> claims;
  std::vector<uint32_t> host_of(snapshot_.processes.size());
  for (uint32_t h = 0; h < hosts_.size(); ++h) {
    for (uint32_t i = 0; i < hosts_[h].host->processes.size(); ++i) {
      const uint32_t index = hosts_[h].first_process + i;
      const ProcessRef& ref = snapshot_.processes[index];
      host_of[index] = h;
      if (ref.superseded && !EndedJustNow(ref)) continue;
      for (const Membership& membership : ref.process->communicators) {
        if (ids.count(membership.communicator_id) == 0) continue;
        claims.push_back({membership.communicator_id, membership.rank, index, &membership});
      }
    }
  }
  SortClaims(snapshot_.processes, &claims);
  std::vector<Seat> seats;
  former_.Build(snapshot_.processes, host_of, claims, &snapshot_.former, &seats, nullptr);
  for (uint32_t i = 0; i < snapshot_.former.size(); ++i) former_.Judge(i, times_, now_ns);
}

// What has changed since the last look. False: all is to be put together anew.
bool JobAssembly::LookAgain(int64_t now_ns) {
  for (uint32_t h = 0; h < hosts_.size(); ++h) {
    SeenHost& seen = hosts_[h];
    const bool stale = IsStale(*seen.host, now_ns, agent_stale_ns_);
    const bool turned = stale != times_[h].stale;
    if (!turned && seen.revision == seen.host->revision) continue;
    seen.revision = seen.host->revision;
    times_[h] = {seen.host->as_of_ns, stale};
    if (turned) snapshot_.stale_hosts[seen.host->name] = stale;
    LookAt(seen, turned);
    if (seen.host->back_at_ns > snapshot_.back_at_ns) {
      snapshot_.silent_from_ns = seen.host->silent_from_ns;
      snapshot_.back_at_ns = seen.host->back_at_ns;
    }
  }
  if (Supersede()) return false;
  if (std::any_of(snapshot_.processes.begin(), snapshot_.processes.end(),
                  [](const ProcessRef& ref) { return ref.superseded && EndedJustNow(ref); })) {
    return false;
  }
  JudgeDirty(now_ns);
  return true;
}

void JobAssembly::LookAt(const SeenHost& seen, bool all) {
  const CommunicatorSet::HostTime& time = times_[static_cast<size_t>(&seen - hosts_.data())];
  size_t place = seen.first_seat;
  for (uint32_t i = 0; i < seen.host->processes.size(); ++i) {
    const Process& process = seen.host->processes[i];
    ProcessRef& ref = snapshot_.processes[seen.first_process + i];
    SeenProcess& was = processes_[seen.first_process + i];
    ref.stale = time.stale;
    const bool turned = all || was.ended != process.ended || was.state != process.health.state;
    was = {process.ended, process.health.state};
    lives_changed_ = lives_changed_ || turned;
    ref.outstanding_since_ns = INT64_MAX;
    for (const Membership& membership : process.communicators) {
      SeenMembership& known = seats_[place++];
      if (turned || known.revision != membership.revision) {
        known.revision = membership.revision;
        known.outstanding_since_ns = SumsOf(membership).outstanding_since_ns;
        if (known.seat.communicator != Seat::kNowhere) {
          current_.Summarize(known.seat, process, membership);
          dirty_[known.seat.communicator] |= kFigures;
        }
      }
      ref.outstanding_since_ns = std::min(ref.outstanding_since_ns, known.outstanding_since_ns);
      if (known.seat.communicator != Seat::kNowhere) dirty_[known.seat.communicator] |= kTimes;
    }
  }
}

void JobAssembly::JudgeDirty(int64_t now_ns) {
  snapshot_.changed.clear();
  for (uint32_t i = 0; i < dirty_.size(); ++i) {
    if (dirty_[i] == 0) continue;
    const Communicator& communicator = snapshot_.communicators[i];
    if ((dirty_[i] & kFigures) != 0) {
      if (current_.Judge(i, times_, now_ns)) snapshot_.queue_pairs.reset();
      snapshot_.changed.push_back(i);
    } else {
      current_.JudgeTimes(i, times_, now_ns);
      // Else nobody minds how long it has stood still.
      if (communicator.waited_in || communicator.joining) snapshot_.changed.push_back(i);
    }
    // Nobody holds the moment back up to which it is known: it goes on with the time.
    dirty_[i] = communicator.as_of_ns == now_ns ? kTimes : 0;
  }
}

}  // namespace c4::c4d
