#include "ccl/transport/selected_paths.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace c4 {
namespace {

bool IsSameHost(const SocketAddress& a, const SocketAddress& b) {
  return memcmp(ToEndpoint(a).address, ToEndpoint(b).address, sizeof wire::Endpoint::address) == 0;
}

bool IsSamePath(const QpPath& a, const QpPath& b) {
  return IsSameHost(a.source, b.source) && a.source.port() == b.source.port() &&
         IsSameHost(a.destination, b.destination) && a.destination.port() == b.destination.port();
}

std::vector<PathEnds> EndsByPlane(const std::vector<SocketAddress>& own,
                                  const std::vector<SocketAddress>& peers) {
  std::vector<PathEnds> ends;
  for (size_t i = 0; i < std::min(own.size(), peers.size()); ++i) ends.push_back({own[i], peers[i]});
  return ends;
}

}  // namespace

std::vector<QpPath> PathsOverPlanes(const std::vector<SocketAddress>& own,
                                    const std::vector<SocketAddress>& peers, uint32_t queue_pairs) {
  const size_t planes = std::min(own.size(), peers.size());
  std::vector<QpPath> paths(queue_pairs);
  for (size_t i = 0; i < paths.size(); ++i) {
    paths[i].destination = peers[i % planes];
    if (planes == 1) continue;
    paths[i].source = own[i % planes];
    paths[i].source.set_port(0);
  }
  return paths;
}

bool SelectedPaths::Prepare(std::vector<PathEnds> ends, PathQuestion* question) {
  const auto within = [](const PathEnds& end) { return IsSameHost(end.source, end.destination); };
  if (std::any_of(ends.begin(), ends.end(), within)) return false;
  ends_ = std::move(ends);
  question->ends = ends_;
  changes_ = UINT64_MAX;  // nothing was told yet
  return true;
}

void SelectedPaths::Ask(PathSelector* selector, PathQuestion question, const std::vector<SocketAddress>& own,
                        const std::vector<SocketAddress>& peers, int wake_fd, std::vector<QpPath>* paths) {
  if (!Prepare(EndsByPlane(own, peers), &question)) return;
  selector_ = selector;
  PathAdvice advice;
  number_ = selector_->Open(question, wake_fd, &advice);
  epoch_ = advice.epoch;
  Heed(advice, paths);
}

void SelectedPaths::Begin(PathSelector* selector, PathQuestion question,
                          const std::vector<SocketAddress>& own, const std::vector<SocketAddress>& peers,
                          int wake_fd) {
  if (!Prepare(EndsByPlane(own, peers), &question)) return;
  selector_ = selector;
  number_ = selector_->Ask(question, wake_fd);
}

bool SelectedPaths::Answered(std::vector<QpPath>* paths) {
  if (!asked()) return true;
  if (selector_->Expects(number_)) return false;
  PathAdvice advice;
  if (selector_->TakeCorrection(number_, &advice)) {
    epoch_ = advice.epoch;
    Heed(advice, paths);
  }
  return true;
}

void SelectedPaths::BeginConnected(PathSelector* selector, PathQuestion question, int wake_fd) {
  later_ = {selector, std::move(question), wake_fd};
}

// Each pair of addresses is a plane.
void SelectedPaths::AskOf(const std::vector<QpUse>& uses) {
  std::vector<PathEnds> ends;
  for (const QpUse& use : uses) {
    if (use.path.source.length == 0) return;  // not known yet
    const PathEnds own = {use.path.source, use.path.destination};
    const auto is_own = [&](const PathEnds& end) {
      return IsSameHost(end.source, own.source) && IsSameHost(end.destination, own.destination);
    };
    if (std::none_of(ends.begin(), ends.end(), is_own)) ends.push_back(own);
  }
  Later later = *std::exchange(later_, std::nullopt);
  if (!Prepare(std::move(ends), &later.question)) return;
  selector_ = later.selector;
  number_ = selector_->Ask(later.question, later.wake_fd);
}

// A queue pair for which there is no port keeps the one that it has.
void SelectedPaths::Heed(const PathAdvice& advice, std::vector<QpPath>* paths) const {
  for (size_t i = 0; i < std::min(paths->size(), advice.paths.size()); ++i) {
    const wire::ControlPath& path = advice.paths[i];
    if (path.source_port == 0 || path.plane >= ends_.size()) continue;
    (*paths)[i] = {ends_[path.plane].source, ends_[path.plane].destination};
    (*paths)[i].source.set_port(path.source_port);
  }
}

void SelectedPaths::Follow(bool corrected, SendConnection* connection) {
  if (later_) AskOf(connection->Paths());
  if (!asked()) return;
  PathAdvice advice;
  if (corrected && selector_->TakeCorrection(number_, &advice)) {
    epoch_ = advice.epoch;
    std::vector<QpPath> paths;
    for (const QpUse& use : connection->Paths()) paths.push_back(use.path);
    const std::vector<QpPath> before = paths;
    Heed(advice, &paths);
    for (size_t i = 0; i < paths.size(); ++i) {
      if (!IsSamePath(paths[i], before[i])) connection->Move(i, paths[i]);
    }
    changes_ = UINT64_MAX;  // the epoch is another one
  }
  if (changes_ == connection->path_changes()) return;
  changes_ = connection->path_changes();
  Tell(connection->Paths());
}

void SelectedPaths::Tell(const std::vector<QpUse>& uses) {
  std::vector<wire::ControlPathInUse> used;
  for (const QpUse& use : uses) {
    wire::ControlPathInUse path{};
    path.source = ToEndpoint(use.path.source);
    path.destination = ToEndpoint(use.path.destination);
    path.state = use.state == QpState::kLost ? wire::kPathDead : wire::kPathLive;
    path.fences = use.fences;
    used.push_back(path);
  }
  selector_->Use(number_, epoch_, used);
}

void SelectedPaths::Close() {
  if (asked()) std::exchange(selector_, nullptr)->Close(number_);
}

}  // namespace c4
