// The agent's end of the control socket (wire/control.h): welcomes the libraries of this node and tells
// them at which level to record. One agent per run directory: a lock file keeps a second one out and names
// the first; the socket file of an agent that died is replaced, and socket or lock files that somebody
// removed are made anew. A client that sends something malformed, or does not read, loses its connection,
// nobody else's. Own thread; Start and Stop by one thread, the rest by any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "service/status.h"
#include "wire/control.h"

namespace c4::agent {

// Who is at the other end, from the socket itself.
struct ControlPeer {
  uint32_t pid = 0;  // 0: outside the agent's pid namespace
  uint32_t uid = 0;
};

struct ControlOptions {
  std::string run_dir;
  wire::ProcessIdentity identity{};  // the agent's own
  uint32_t agent_version = 0;
  wire::RecordLevel level = wire::kLevelCoarse;
  int check_files_ms = 1000;
  // A library has said hello; on the server's thread.
  std::function<void(const ControlPeer&, const std::string& segment_name)> on_hello;
};

class ControlServer {
 public:
  explicit ControlServer(ControlOptions options);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  // Fails when another agent serves this run directory, with its process id in the message.
  absl::Status Start();
  void Stop();  // removes the socket

  // Tells all libraries, now and later ones.
  void SetLevel(wire::RecordLevel level);
  int clients() const { return clients_.load(); }

 private:
  struct Client {
    ControlPeer peer;
    bool greeted = false;
  };

  absl::Status TakeLock();
  absl::Status Listen();
  void CheckFiles();
  void Run();
  void Accept();
  // False: the client is to be closed.
  bool Receive(int fd, Client* client);
  bool Greet(int fd, Client* client, const wire::ControlHello& hello);
  void Broadcast();
  void Tell(const ControlPeer& peer, std::string_view fault);

  const ControlOptions options_;
  const std::string lock_path_;
  const std::string socket_path_;
  int lock_fd_ = -1;
  int listen_fd_ = -1;
  int wake_fd_ = -1;
  std::atomic<uint32_t> level_;
  std::atomic<bool> level_changed_ = false;
  std::atomic<bool> stop_ = false;
  std::atomic<int> clients_ = 0;
  std::map<int, Client> by_fd_;  // the thread's own
  std::set<uint32_t> told_;      // processes whose faults have been logged
  bool told_crowded_ = false;
  bool told_files_ = false;
  std::thread thread_;
};

}  // namespace c4::agent
