// All connections of one rank's communicator: the ring's, made when the communicator is, and those between
// pairs of ranks, made when they first send to each other. One thread, `c4-comm`, drives them together, so
// that a rank that waits for one peer still takes what another sends, and hears when a third is lost.
//
// Not thread-safe. Owns the listener, the connections, and nothing of the recorders.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <poll.h>
#include <vector>

#include "ccl/base/socket.h"
#include "ccl/transport/acceptor.h"
#include "ccl/transport/backend.h"
#include "ccl/transport/connection.h"
#include "ccl/transport/selected_paths.h"

namespace c4::host {

// The channels of collectives are 0 and from 2 on, so that 1 is free for sends and receives.
inline constexpr uint16_t kPairChannel = 1;
inline constexpr uint16_t CollectiveChannel(uint16_t channel) {
  return channel == 0 ? uint16_t{0} : static_cast<uint16_t>(channel + 1);
}

class Links {
 public:
  // `recording` is for rank `recording.rank`; its peer and channel are filled in per connection.
  Links(const Recording& recording, int wake_fd) : recording_(recording), wake_fd_(wake_fd) {}
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  // `backends` have listened. `contacts`: every rank's, by rank; this rank's own listeners are where it
  // connects from.
  void Open(Fd listener, Backends backends, std::vector<Contact> contacts);
  // From here on, connections that have paths ask `paths` which to take, heed its corrections, and tell it
  // what they use; it outlives the links.
  void SelectPaths(PathSelector* paths) { paths_ = paths; }
  // Connects the ring to `next` and from `previous`; blocks until the deadline.
  // `cancelled`: another thread may set it to end the waiting; nullptr: nobody will.
  Result ConnectRing(int next, int previous, DeadlineNs deadline, const std::atomic<bool>* cancelled);

  // The connection to a peer; made when it is not there yet.
  Result SendTo(int peer, uint16_t channel, SendConnection** connection);
  ReceiveConnection* ReceiveFrom(int peer, uint16_t channel);

  // Where messages to several neighbours are written once; nullptr: nowhere.
  Shelf* shelf() { return shelf_; }

  // What can be done now, on all connections.
  Result Progress(bool* moved);
  // Until something can be done, somebody calls (the wake descriptor) or the time is over. Does what can be
  // done between looking and sleeping; the next Progress says so.
  Result Wait(int ms);
  // Wakes the neighbours that have something to do now; Wait does it before it sleeps. To be called before
  // leaving the links alone.
  void WakeNeighbours();
  // While nothing is under way: what tells of a lost peer. Early data wakes nobody. The descriptors may be
  // closed by the time that somebody waits for them; then that wakes for nothing.
  void AppendIdlePolls(std::vector<pollfd>* polls) const;
  // How long such a wait may last at most, of `ms`.
  int WatchMs(int ms) const;
  // To be called after each such wait, and once a second: looks after the connections.
  Result Idle();
  void SayGoodbye();
  void Close();
  // Grows while anything of messages is on the move, on any connection; stands still while peers only show
  // that they live.
  uint64_t ProgressCount() const;
  // The peer whose connection failed, once Progress has failed for that; else -1.
  int blamed() const { return blamed_; }

 private:
  using Key = std::pair<int, uint16_t>;  // peer, channel

  // A connection of it is made.
  void Uses(const Backend& backend);
  Result Attach(int peer, uint16_t channel, std::vector<Accepted> accepted, ReceiveConnection* connection);
  Recording RecordingOf(int peer, uint16_t channel) const;
  const std::vector<SocketAddress>& own() const {
    return contacts_[static_cast<size_t>(recording_.rank)].listeners;
  }
  // Asks for paths, which may take a moment, and puts them in.
  void AskForPaths(int peer, uint16_t channel, uint16_t protocol, std::vector<QpPath>* paths);
  void LookAtPaths();
  // A receive connection waits for its sender to connect.
  bool Expecting() const;
  // The failure of a connection to that rank, with who that is.
  Result Blame(int peer, const Result& failure);
  void LookAtDevices();
  Result TakeIn(bool expecting, bool* moved);
  void CollectPolls();
  // What poll() has said of what was collected.
  void TakePolls();
  // Which streams have something to read, as of now.
  Result LookAtStreams();
  Result Poll(int ms);
  void AfterSleep();
  // Looks for a while before sleeping, where that has paid lately; *moved when there was something.
  Result Spin(bool* moved);

  const Recording recording_;
  const int wake_fd_;
  std::vector<Contact> contacts_;
  std::optional<Acceptor> acceptor_;
  Backends backends_;  // outlive the connections
  std::map<Key, std::unique_ptr<SendConnection>> sends_;
  std::map<Key, std::unique_ptr<ReceiveConnection>> receives_;
  bool fails_over_ = false;  // one of receives_ does
  uint64_t last_accept_ns_ = 0;
  uint64_t last_look_ns_ = 0;
  bool callers_ = true;  // at the acceptor
  bool device_news_ = false;
  PathSelector* paths_ = nullptr;
  std::map<Key, SelectedPaths> selected_;
  uint64_t path_news_ = 0;  // that were looked at
  bool near_ = false;       // a connection is of a backend whose peers are near
  bool far_ = false;
  uint64_t polled_ns_ = 0;
  uint64_t spin_ns_ = 0;
  Shelf* shelf_ = nullptr;
  uint32_t vain_spins_ = 0;
  uint32_t waits_ = 0;
  bool moved_in_wait_ = false;
  int blamed_ = -1;
  // The wake descriptor first; data, fences, acceptor, devices. Kept to spare allocations.
  std::vector<pollfd> polls_;
  size_t acceptor_at_ = 0;
  size_t devices_at_ = 0;
};

}  // namespace c4::host
