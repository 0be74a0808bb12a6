#include "cli/launch/verdict_feed.h"

#include <algorithm>
#include <chrono>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cli/text/verdict_exit.h"
#include "cli/text/verdict_text.h"

namespace c4::cli {
namespace {

constexpr std::chrono::milliseconds kPause{300};

}  // namespace

bool VerdictNews::Take(const v1::Verdict& verdict) {
  // Cleared ones that were told are over: the map holds what is open.
  std::erase_if(known_, [](const auto& entry) { return entry.second.told == v1::VERDICT_STATE_CLEARED; });
  Known& known = known_[verdict.id()];
  known.verdict = verdict;
  if (known.told == verdict.state()) return false;
  const bool explained = std::any_of(known_.begin(), known_.end(), [&](const auto& other) {
    return ExplainedBy(verdict, other.second.verdict);
  });
  const bool never_told = known.told == v1::VERDICT_STATE_UNSPECIFIED && !IsOpen(verdict);
  if (explained || never_told) return false;
  known.told = verdict.state();
  return true;
}

std::vector<v1::Verdict> VerdictNews::Open() const {
  v1::ListVerdictsReply open;
  for (const auto& [id, known] : known_) {
    if (IsOpen(known.verdict)) *open.add_verdicts() = known.verdict;
  }
  size_t folded = 0;
  std::vector<v1::Verdict> result;
  for (const v1::Verdict* verdict : VerdictsToShow(open, &folded)) result.push_back(*verdict);
  return result;
}

VerdictFeed::VerdictFeed(MasterOptions master)
    : master_(std::move(master)), event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  thread_ = std::thread([this] { Follow(); });
}

VerdictFeed::~VerdictFeed() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    if (client_ != nullptr) client_->StopWatching();
  }
  wake_.notify_all();
  thread_.join();
  if (event_fd_ >= 0) close(event_fd_);
}

bool VerdictFeed::Pause() {
  std::unique_lock lock(mutex_);
  return !wake_.wait_for(lock, kPause, [this] { return ending_; });
}

void VerdictFeed::Follow() {
  do {
    absl::StatusOr<std::unique_ptr<MasterClient>> connected = ConnectToMaster(master_);
    if (!connected.ok()) continue;
    const std::shared_ptr<MasterClient> client = *std::move(connected);
    {
      const std::lock_guard lock(mutex_);
      if (ending_) return;
      client_ = client;
    }
    client
        ->WatchVerdicts([this](const v1::Verdict& verdict) {
          const std::lock_guard lock(mutex_);
          if (ending_) return false;
          if (!news_.Take(verdict)) return true;
          changes_.push_back(verdict);
          if (event_fd_ >= 0) eventfd_write(event_fd_, 1);
          return true;
        })
        .IgnoreError();
    const std::lock_guard lock(mutex_);
    client_.reset();
  } while (Pause());
}

std::vector<v1::Verdict> VerdictFeed::Take() {
  const std::lock_guard lock(mutex_);
  eventfd_t ignored = 0;
  if (event_fd_ >= 0) eventfd_read(event_fd_, &ignored);
  return std::exchange(changes_, {});
}

std::vector<v1::Verdict> VerdictFeed::Open() const {
  const std::lock_guard lock(mutex_);
  return news_.Open();
}

}  // namespace c4::cli
