#include "c4p_master/state/etcd_state.h"

#include <algorithm>
#include <chrono>

#include "service/clock.h"
#include "service/log.h"
#include "service/status.h"
#include "service/text.h"

namespace c4::c4p {
namespace {

using service::Concat;

// etcd takes 128 operations and 1.5 MiB in a transaction, unless it is told otherwise.
constexpr size_t kMostChanges = 100;
constexpr size_t kMostBytes = size_t{512} << 10;
// That wait for an etcd that is slow. Then this master gives up rather than its machine's memory.
constexpr size_t kMostWaitingBytes = size_t{256} << 20;
constexpr size_t kPage = 500;
constexpr absl::Duration kLeaseTimeout = absl::Milliseconds(400);
constexpr absl::Duration kWriteTimeout = absl::Seconds(2);
constexpr absl::Duration kLoadTimeout = absl::Seconds(10);
constexpr absl::Duration kPause = absl::Milliseconds(100);
constexpr absl::Duration kLook = absl::Milliseconds(20);

size_t BytesOf(const std::vector<StateChange>& changes) {
  size_t bytes = 0;
  for (const StateChange& change : changes)
    bytes += change.key.size() + (change.value ? change.value->size() : 0);
  return bytes;
}

}  // namespace

EtcdState::EtcdState(Options options)
    : options_(std::move(options)),
      client_(options_.place, [this] { return stopping(); }),
      leadership_(options_.self, options_.wished, options_.times) {
  lease_thread_ = std::thread([this] { HoldLease(); });
  write_thread_ = std::thread([this] { WriteAll(); });
}

EtcdState::~EtcdState() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  lease_thread_.join();
  write_thread_.join();
}

int64_t EtcdState::NowNs() const {
  return service::SystemClock().MonotonicNs();
}

bool EtcdState::stopping() const {
  const std::lock_guard lock(mutex_);
  return stop_;
}

void EtcdState::Nap(absl::Duration pause) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoNanoseconds(pause), [this] { return stop_; });
}

void EtcdState::HoldLease() {
  int64_t seen_revision = 0;
  while (!stopping()) {
    std::optional<Leadership::Step> step;
    {
      const std::lock_guard lock(mutex_);
      step = leadership_.Next(NowNs());
    }
    if (!step) {
      Nap(kLook);
      continue;
    }
    const std::string& prefix = options_.place.prefix;
    const absl::StatusOr<std::string> answer =
        step->write ? client_.Ask("/v3/kv/txn", EtcdWriteLease(prefix, *step), kLeaseTimeout)
                    : client_.Ask("/v3/kv/range", EtcdReadLease(prefix), kLeaseTimeout);
    absl::Status status = answer.status();
    bool writable = status.ok() && step->write;
    {
      const std::lock_guard lock(mutex_);
      if (status.ok() && step->write) {
        const absl::StatusOr<EtcdWritten> written = ReadEtcdWritten(*answer);
        status = written.status();
        if (status.ok()) leadership_.Wrote(written->written, written->revision, NowNs());
        if (status.ok() && written->written) seen_revision = revision_ = written->revision;
      } else if (status.ok()) {
        const absl::StatusOr<LeaseSeen> seen = ReadEtcdLease(*answer);
        status = seen.status();
        if (status.ok()) leadership_.Seen(*seen, NowNs());
        // Somebody writes there.
        writable = status.ok() && std::exchange(seen_revision, seen->revision) != seen->revision;
      }
      if (!status.ok()) leadership_.Failed(NowNs());
    }
    Tell(status, writable);
    changed_.notify_all();
  }
}

void EtcdState::Tell(const absl::Status& status, bool writable) {
  {
    const std::lock_guard lock(mutex_);
    // An etcd that is full answers reads.
    const bool still_full = status.ok() && absl::IsResourceExhausted(told_) && !writable;
    if (stop_ || still_full || status == told_) return;
    told_ = status;
  }
  if (status.ok()) {
    service::LogInfo("etcd answers again");
  } else {
    service::LogWarning(status.message());
  }
}

absl::Status EtcdState::AwaitLeadership(const std::function<bool()>& stop) {
  std::string told;
  for (;;) {
    if (stop()) return absl::CancelledError("ended while another master led");
    std::unique_lock lock(mutex_);
    const Leadership::State state = leadership_.state(NowNs());
    if (state == Leadership::State::kLeads) {
      epoch_ = leadership_.epoch();
      return absl::OkStatus();
    }
    if (state == Leadership::State::kLost)
      return absl::UnavailableError("the lease was lost as soon as it was taken");
    // Nothing that time mends.
    if (absl::IsPermissionDenied(told_) || absl::IsFailedPrecondition(told_) || absl::IsDataLoss(told_)) {
      return told_;
    }
    const std::string holder = leadership_.holder();
    if (!holder.empty() && std::exchange(told, holder) != holder) {
      service::LogInfo("standing by: ", service::ToUtf8(holder), " leads");
    }
    changed_.wait_for(lock, absl::ToChronoNanoseconds(kPause));
  }
}

absl::Status EtcdState::leading() const {
  const std::lock_guard lock(mutex_);
  if (leadership_.state(NowNs()) == Leadership::State::kLeads) return absl::OkStatus();
  const std::string& holder = leadership_.holder();
  return absl::UnavailableError(
      holder.empty() || holder == options_.self
          ? Concat("the lease in etcd could not be renewed in time", told_.ok() ? "" : ": ", told_.message())
          : Concat(service::ToUtf8(holder), " has the lease in etcd"));
}

absl::StatusOr<StateRecords> EtcdState::Load() {
  StateRecords records;
  std::string from;
  do {
    const absl::StatusOr<std::string> answer =
        client_.Ask("/v3/kv/range", EtcdList(options_.place.prefix, from, kPage), kLoadTimeout);
    if (!answer.ok()) return answer.status();
    absl::StatusOr<EtcdPage> page = ReadEtcdPage(options_.place.prefix, *answer);
    if (!page.ok()) return page.status();
    for (auto& [key, value] : page->records) records[key] = std::move(value);
    from = page->next;
  } while (!from.empty());
  return records;
}

void EtcdState::Write(std::vector<StateChange> changes, Done done) {
  bool too_much = false;
  {
    const std::lock_guard lock(mutex_);
    waiting_bytes_ += BytesOf(changes);
    too_much = waiting_bytes_ > kMostWaitingBytes;
    if (!too_much) {
      // One large change is cut: what is not told before its end may be half there.
      for (size_t at = 0; at == 0 || at < changes.size();) {
        Batch batch;
        size_t bytes = 0;
        while (at < changes.size() && batch.changes.size() < kMostChanges && bytes < kMostBytes) {
          bytes += changes[at].key.size() + (changes[at].value ? changes[at].value->size() : 0);
          batch.changes.push_back(std::move(changes[at++]));
        }
        Batch* const back = waiting_.empty() ? nullptr : &waiting_.back();
        // The first is under way.
        const bool joins = waiting_.size() > 1 &&
                           back->changes.size() + batch.changes.size() <= kMostChanges &&
                           BytesOf(back->changes) + bytes <= kMostBytes;
        if (joins) {
          std::move(batch.changes.begin(), batch.changes.end(), std::back_inserter(back->changes));
        } else {
          waiting_.push_back(std::move(batch));
        }
        if (at >= changes.size()) break;
      }
      waiting_.back().done.push_back(std::move(done));
    }
  }
  if (too_much) {
    return done(absl::ResourceExhaustedError(
        Concat("etcd has not taken ", kMostWaitingBytes >> 20, " MiB of changes; see its health")));
  }
  changed_.notify_all();
}

absl::Status EtcdState::WriteBatch(const Batch& batch) {
  if (batch.changes.empty()) return absl::OkStatus();
  const std::string body = EtcdWrite(options_.place.prefix, epoch_, batch.changes);
  for (;;) {
    const absl::StatusOr<std::string> answer = client_.Ask("/v3/kv/txn", body, kWriteTimeout);
    absl::Status status = answer.status();
    if (status.ok()) {
      const absl::StatusOr<EtcdWritten> written = ReadEtcdWritten(*answer);
      if (written.ok() && written->written) return absl::OkStatus();
      if (written.ok()) return absl::FailedPreconditionError("a later master has the lease in etcd");
      status = written.status();
    }
    // Writing the same again does no harm, for as long as this one leads.
    if (const absl::Status leads = leading(); !leads.ok()) {
      return absl::UnavailableError(Concat(leads.message(), " (", status.message(), ")"));
    }
    if (stopping()) return absl::CancelledError("this master ends");
    Nap(kPause);
  }
}

void EtcdState::Compact() {
  if (options_.compact_every == absl::ZeroDuration() || NowNs() < compact_at_ns_ || !leading().ok()) return;
  const bool first = compact_at_ns_ == 0;
  compact_at_ns_ = NowNs() + absl::ToInt64Nanoseconds(options_.compact_every);
  int64_t revision = 0;
  {
    const std::lock_guard lock(mutex_);
    revision = std::exchange(compact_revision_, revision_);
  }
  if (first) return;
  const absl::Status status = client_.Ask("/v3/kv/compaction", EtcdCompact(revision), kWriteTimeout).status();
  // Another may have done it: etcd itself, or whoever else uses it.
  if (!status.ok() && !absl::IsOutOfRange(status)) {
    service::LogWarning("etcd's history could not be compacted: ", status.message());
  }
}

void EtcdState::WriteAll() {
  absl::Status failed;
  for (;;) {
    Batch* batch = nullptr;
    {
      std::unique_lock lock(mutex_);
      const auto busy = [this] { return stop_ || !waiting_.empty(); };
      while (!busy()) {
        changed_.wait_for(lock, absl::ToChronoNanoseconds(kPause), busy);
        lock.unlock();
        Compact();
        lock.lock();
      }
      if (stop_) return;
      batch = &waiting_.front();  // nobody else touches the first
    }
    if (failed.ok()) failed = WriteBatch(*batch);
    std::vector<Done> done;
    {
      const std::lock_guard lock(mutex_);
      done = std::move(batch->done);
      waiting_bytes_ -= BytesOf(batch->changes);
      waiting_.pop_front();
    }
    if (done.empty()) continue;
    (void)post_([done = std::move(done), status = failed] {
      for (const Done& one : done) one(status);
    });
  }
}

}  // namespace c4::c4p
