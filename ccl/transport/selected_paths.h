// One sending connection's share of path allocation: the question that its ends make, the advice that its
// queue pairs follow, corrections on the way, and what it tells the selector of (ccl/pathsel). Whoever drives
// connections (the host engine's links, the net plugin) has one beside each.
//
// Not thread-safe; belongs to the thread that drives the connection. The selector outlives it.
#pragma once

#include <optional>
#include <vector>

#include "ccl/pathsel/pathsel.h"
#include "ccl/transport/connection.h"

namespace c4 {

class SelectedPaths {
 public:
  SelectedPaths() = default;
  SelectedPaths(const SelectedPaths&) = delete;
  SelectedPaths& operator=(const SelectedPaths&) = delete;
  ~SelectedPaths() { Close(); }

  // Both ends by plane; `question.ends` is made of them. Asks nothing where the two share an address: there
  // is no switch to choose. Waits for the answer, as the selector does.
  void Ask(PathSelector* selector, PathQuestion question, const std::vector<SocketAddress>& own,
           const std::vector<SocketAddress>& peers, int wake_fd, std::vector<QpPath>* paths);
  // The same without waiting: Answered says when there is no more to wait for, and puts in what was advised.
  void Begin(PathSelector* selector, PathQuestion question, const std::vector<SocketAddress>& own,
             const std::vector<SocketAddress>& peers, int wake_fd);
  bool Answered(std::vector<QpPath>* paths);
  // Asks once all queue pairs are connected and know their ends (Follow). What is advised comes as a
  // correction.
  void BeginConnected(PathSelector* selector, PathQuestion question, int wake_fd);

  bool asked() const { return selector_ != nullptr; }
  // Moves queue pairs as corrections say, and tells what is in use when that has changed. `corrected`: there
  // may be a correction.
  void Follow(bool corrected, SendConnection* connection);
  void Close();

 private:
  struct Later {
    PathSelector* selector;
    PathQuestion question;
    int wake_fd;
  };

  // False: there is no path to choose.
  bool Prepare(std::vector<PathEnds> ends, PathQuestion* question);
  void AskOf(const std::vector<QpUse>& uses);
  void Heed(const PathAdvice& advice, std::vector<QpPath>* paths) const;
  void Tell(const std::vector<QpUse>& uses);

  PathSelector* selector_ = nullptr;
  std::optional<Later> later_;
  std::vector<PathEnds> ends_;
  uint64_t number_ = 0;   // the selector's
  uint64_t epoch_ = 0;    // of the advice that it follows
  uint64_t changes_ = 0;  // of its paths, that the selector has heard of
};

// Paths of so many queue pairs: they alternate over the planes that both ends have. With one plane the
// kernel chooses where they come from.
std::vector<QpPath> PathsOverPlanes(const std::vector<SocketAddress>& own,
                                    const std::vector<SocketAddress>& peers, uint32_t queue_pairs);

}  // namespace c4
