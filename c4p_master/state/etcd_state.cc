#include "c4p_master/state/etcd_state.h"

#include <algorithm>
#include <chrono>

#include "service/clock.h"
#include "service/http_post.h"
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
constexpr size_t kMostAnswer = size_t{64} << 20;
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
    : options_(std::move(options)), leadership_(options_.self, options_.wished, options_.times) {
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

absl::StatusOr<std::string> EtcdState::Ask(const std::string& path, const std::string& body,
                                           absl::Duration timeout) {
  const size_t members = options_.place.endpoints.size();
  size_t first = 0;
  {
    const std::lock_guard lock(mutex_);
    first = endpoint_;
  }
  absl::Status last;
  for (size_t i = 0; i < members && !stopping(); ++i) {
    const size_t at = (first + i) % members;
    const std::string& endpoint = options_.place.endpoints[at];
    const absl::StatusOr<service::HttpAnswer> answer =
        service::HttpCall({.url = endpoint + path,
                           .body = body,
                           .timeout = timeout / static_cast<double>(members),
                           .allow_inside = true,
                           .max_answer_bytes = kMostAnswer},
                          [this] { return stopping(); });
    if (answer.ok() && answer->status == 200) {
      const std::lock_guard lock(mutex_);
      endpoint_ = at;
      return answer->body;
    }
    last = answer.ok()
               ? absl::UnavailableError(Concat("etcd at ", endpoint, " answers ", answer->status, ": ",
                                               ReadEtcdError(answer->body)))
               : absl::UnavailableError(Concat("etcd at ", endpoint, ": ", answer.status().message()));
  }
  return last.ok() ? absl::CancelledError("this master ends") : last;
}

void EtcdState::HoldLease() {
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
        step->write ? Ask("/v3/kv/txn", EtcdWriteLease(prefix, *step), kLeaseTimeout)
                    : Ask("/v3/kv/range", EtcdReadLease(prefix), kLeaseTimeout);
    absl::Status status = answer.status();
    {
      const std::lock_guard lock(mutex_);
      if (status.ok() && step->write) {
        const absl::StatusOr<EtcdWritten> written = ReadEtcdWritten(*answer);
        status = written.status();
        if (status.ok()) leadership_.Wrote(written->written, written->revision, NowNs());
      } else if (status.ok()) {
        const absl::StatusOr<LeaseSeen> seen = ReadEtcdLease(*answer);
        status = seen.status();
        if (status.ok()) leadership_.Seen(*seen, NowNs());
      }
      if (!status.ok()) leadership_.Failed(NowNs());
    }
    changed_.notify_all();
    const std::string trouble(status.message());
    {
      const std::lock_guard lock(mutex_);
      if (stop_ || trouble == std::exchange(told_, trouble)) continue;
    }
    if (status.ok()) {
      service::LogInfo("etcd answers again");
    } else {
      service::LogWarning(trouble);
    }
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
          ? Concat("the lease in etcd could not be renewed in time", told_.empty() ? "" : ": ", told_)
          : Concat(service::ToUtf8(holder), " has the lease in etcd"));
}

absl::StatusOr<StateRecords> EtcdState::Load() {
  StateRecords records;
  std::string from;
  do {
    const absl::StatusOr<std::string> answer =
        Ask("/v3/kv/range", EtcdList(options_.place.prefix, from, kPage), kLoadTimeout);
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
    const absl::StatusOr<std::string> answer = Ask("/v3/kv/txn", body, kWriteTimeout);
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

void EtcdState::WriteAll() {
  absl::Status failed;
  for (;;) {
    Batch* batch = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
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
