#include "analysis/failslow/period_tracker.h"

#include <algorithm>
#include <set>

namespace c4::failslow {
namespace {

// A window of w calls is searched every w / kSearchesAWindow calls.
constexpr size_t kSearchesAWindow = 4;
constexpr size_t kSmallestWindow = 16;
// Only windows from here on are searched for nearly equal calls: it takes longer.
constexpr size_t kSmallestNearWindow = 256;
// Periods that are recognised at once.
constexpr size_t kKnown = 4;
// How long nothing shorter is believed once a period has ended, in its periods.
constexpr uint64_t kPeriodsOfDoubt = 4;
// Nobody may forget to take iterations for ever.
constexpr size_t kMostUntaken = 4096;
// What comes again in a fixed rhythm need not be an iteration: training and evaluation in turns are not, nor
// are ten iterations and one call for a log. Iterations that make up such a rhythm have at least so many
// calls; layers have fewer. Between two phases there may be a few odd calls. Micro-batches are fewer, or end
// with several calls of their own for the gradients, and all of them are not more than an iteration has.
constexpr uint64_t kCallsOfAnIteration = 32;
constexpr uint64_t kMostOfMicroBatches = 2048;
constexpr uint64_t kCallsOfAPhase = 2;
constexpr uint64_t kBetweenPhases = 2;
constexpr uint64_t kOfALog = 1;
constexpr uint64_t kIterationsALog = 10;

uint64_t Mixed(uint64_t value) {
  value = (value ^ (value >> 31)) * 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 29)) * 0xbf58476d1ce4e5b9ull;
  return value ^ (value >> 32);
}

// The window that is due to be searched after so many calls; 0: none.
size_t DueWindow(uint64_t calls) {
  if (calls % (kSmallestWindow / kSearchesAWindow) != 0) return 0;
  for (size_t window = PeriodTracker::kKept; window >= kSmallestWindow; window /= 2) {
    if (calls % (window / kSearchesAWindow) == 0) return window;
  }
  return 0;
}

}  // namespace

PeriodTracker::PeriodTracker(size_t stretches) : tokens_(kKept), times_ns_(kKept), stretches_(stretches) {}

void PeriodTracker::Add(uint64_t token, int64_t time_ns) {
  tokens_[calls_ % kKept] = token;
  times_ns_[calls_ % kKept] = time_ns;
  ++calls_;
  if (stretch_) Follow();
  Recognise();
  const size_t due = DueWindow(calls_);
  if (due > 0) Search(std::min<uint64_t>(due, calls_), kRepeats);
}

void PeriodTracker::Finish(size_t repeats) {
  if (calls_ > 0) Search(std::min<uint64_t>(kKept, calls_), repeats);
}

std::vector<Iteration> PeriodTracker::Take() {
  std::vector<Iteration> taken;
  taken.swap(iterations_);
  return taken;
}

size_t PeriodTracker::MemoryBytes() const {
  return sizeof *this + (tokens_.capacity() + newest_first_.capacity()) * sizeof(uint64_t) +
         times_ns_.capacity() * sizeof(int64_t) + iterations_.capacity() * sizeof(Iteration) +
         ended_.size() * sizeof(Stretch);
}

// Holds the newest call against the one a period before it.
void PeriodTracker::Follow() {
  const uint64_t call = calls_ - 1;
  const double forgotten = most_strikes_ / stretch_->period;
  if (TokenAt(call) == TokenAt(call - stretch_->period) || Varies(call)) {
    strikes_ = std::max(0.0, strikes_ - forgotten);
  } else {
    if (strikes_ == 0) first_strike_ = call;
    strikes_ += 1;
    if (strikes_ > most_strikes_) return Drop(first_strike_);
  }
  stretch_->end_call = calls_;
  if (call == next_boundary_) Emit();
}

bool PeriodTracker::Varies(uint64_t call) const {
  return !varies_.empty() && varies_[(call - stretch_->first_call) % stretch_->period];
}

void PeriodTracker::Drop(uint64_t at_call) {
  stretch_->end_call = at_call;
  ended_.push_back(*stretch_);
  if (ended_.size() > stretches_) ended_.pop_front();
  if (varies_.empty()) {
    std::erase_if(known_, [this](const Known& known) { return known.shape == stretch_->shape; });
    known_.insert(known_.begin(),
                  {.period = stretch_->period, .shape = stretch_->shape, .end_call = at_call});
    if (known_.size() > kKnown) known_.pop_back();
  }
  varies_.clear();
  stretch_.reset();
  broken_at_ = at_call;
}

// Whether the calls are those of a period again that was known before. A shorter one may have been found
// meanwhile.
void PeriodTracker::Recognise() {
  const uint64_t call = calls_ - 1;
  for (Known& known : known_) {
    const bool sought = !stretch_ || stretch_->period < known.period;
    known.run = !sought ? 0 : TokenAt(call) == TokenAt(call - known.period) ? known.run + 1 : 0;
    if (known.run < known.period || ShapeOf(known.period) != known.shape) continue;
    Begin({.calls = known.period, .reach = known.period + known.run, .exact = true});
    return;
  }
}

void PeriodTracker::Gather(size_t window) {
  newest_first_.resize(window);
  for (size_t i = 0; i < window; ++i) newest_first_[i] = TokenAt(calls_ - 1 - i);
}

// The same wherever the period begins: of each pair of neighbours, the last and the first call too.
uint64_t PeriodTracker::ShapeOf(size_t period) const {
  uint64_t shape = 0;
  uint64_t later = Varies(calls_ - period) ? 0 : TokenAt(calls_ - period);
  for (size_t i = 1; i <= period; ++i) {
    const uint64_t token = Varies(calls_ - i) ? 0 : TokenAt(calls_ - i);
    shape += Mixed(Mixed(token) + later);
    later = token;
  }
  return shape;
}

void PeriodTracker::Search(size_t window, size_t repeats) {
  const bool nearly = stretch_ && !varies_.empty();
  // What is known explains all of it.
  if (stretch_ && !nearly && (calls_ - stretch_->first_call >= window || broken_at_ == 0)) return;
  Gather(window);
  std::optional<Period> found = ExactPeriod(newest_first_, repeats);
  const bool near_due = calls_ % window == 0;
  if (window >= kSmallestNearWindow && near_due && !nearly && (!found || 2 * found->reach < window)) {
    const std::optional<Period> near = NearPeriod(newest_first_, repeats);
    if (near && (!found || near->reach >= 2 * found->reach)) found = near;
  }
  if (!found || found->calls > kLongestPeriod) return;
  if (stretch_) {
    const uint64_t held = calls_ - stretch_->first_call;
    // A few calls more or less hardly show among many that are alike: exact is better than nearly.
    const bool better = (nearly && found->exact) || found->reach >= 2 * held;
    if (found->calls <= stretch_->period || !better) return;
  }
  // What repeats nearly has swallowed the calls that end an iteration: only an exact one shows them.
  if ((nearly && found->exact) || MayBeAnIteration(*found)) Begin(*found);
}

// Not when it only joins what repeats by itself. Told from the newest two of its periods that stretches are
// known of.
bool PeriodTracker::MayBeAnIteration(const Period& period) const {
  const std::optional<Stretch>& newest =
      stretch_ || ended_.empty() ? stretch_ : std::optional<Stretch>(ended_.back());
  if (!newest || newest->period >= period.calls) return true;
  const uint64_t whole = 2 * period.calls;
  const uint64_t end = newest->end_call;
  const uint64_t begin = end > whole ? end - whole : 0;
  std::set<uint64_t> shapes;
  uint64_t covered = 0;
  uint64_t longest = 0;
  const auto cover = [&](const Stretch& phase) {
    if (phase.end_call <= begin || phase.period < kCallsOfAPhase || phase.period >= period.calls) return;
    // What is left of one that was cut off by its follower is none.
    if (phase.end_call - phase.first_call < kRepeats * phase.period) return;
    shapes.insert(phase.shape);
    longest = std::max<uint64_t>(longest, phase.period);
    covered += phase.end_call - std::max(begin, phase.first_call);
  };
  for (const Stretch& phase : ended_) cover(phase);
  if (stretch_) cover(*stretch_);
  if (longest < kCallsOfAnIteration) return true;
  const uint64_t odd = whole - std::min(covered, whole);
  const bool turns = shapes.size() >= 2 && odd <= 2 * kBetweenPhases;
  const bool log = shapes.size() == 1 && odd <= 2 * kOfALog && period.calls >= kIterationsALog * longest;
  const bool too_long = 2 * odd < whole && period.calls > kMostOfMicroBatches;
  return !turns && !log && !too_long;
}

void PeriodTracker::Begin(const Period& period) {
  const uint64_t first = calls_ - period.reach;
  if (stretch_) Drop(std::min(stretch_->end_call, std::max(first, stretch_->first_call)));
  // What the new one explains belongs to it.
  while (!ended_.empty() && ended_.back().first_call >= first) ended_.pop_back();
  if (!ended_.empty()) ended_.back().end_call = std::min(ended_.back().end_call, first);
  stretch_ = {.first_call = first, .end_call = calls_, .period = static_cast<uint32_t>(period.calls)};
  strikes_ = 0;
  most_strikes_ = 0;
  if (!period.exact) {
    varies_.assign(period.calls, false);
    for (uint64_t call = calls_ - (kRepeats - 1) * period.calls; call < calls_; ++call) {
      if (TokenAt(call) != TokenAt(call - period.calls)) varies_[(call - first) % period.calls] = true;
    }
    most_strikes_ = (1 - kLeastCorrelation) * static_cast<double>(period.calls);
  }
  stretch_->shape = ShapeOf(period.calls);
  next_boundary_ = first;
  while (next_boundary_ < told_until_) next_boundary_ += period.calls;
  next_boundary_ += period.calls;
  while (next_boundary_ < calls_) Emit();
}

// A longer period was known just now: what repeats within it is no iteration, nor is an evaluation.
bool PeriodTracker::OnlyAPart() const {
  return std::any_of(known_.begin(), known_.end(), [this](const Known& known) {
    return known.period > stretch_->period && calls_ - known.end_call < kPeriodsOfDoubt * known.period;
  });
}

// The iteration that ends with the call next_boundary_.
void PeriodTracker::Emit() {
  const uint64_t first = next_boundary_ - stretch_->period;
  const Iteration iteration = {.first_call = first,
                               .began_ns = TimeAt(first),
                               .duration_ns = TimeAt(next_boundary_) - TimeAt(first),
                               .shape = stretch_->shape,
                               .calls = stretch_->period};
  next_boundary_ += stretch_->period;
  if (iteration.duration_ns <= 0 || OnlyAPart()) return;
  told_until_ = first + stretch_->period;
  if (iterations_.size() >= kMostUntaken) iterations_.erase(iterations_.begin());
  iterations_.push_back(iteration);
}

}  // namespace c4::failslow
