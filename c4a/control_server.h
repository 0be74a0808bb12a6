// The agent's end of the control socket (wire/control.h): welcomes the libraries of this node, tells them
// at which level to record, and passes on what they ask about paths. One agent per run directory: a lock file
// keeps a second one out and names the first; the socket file of an agent that died is replaced, and socket
// or lock files that somebody removed are made anew. A client that sends something malformed, or does not
// read, loses its connection, nobody else's; so does one that says no hello, and a user has only so many. Own
// thread; Start and Stop by one thread, the rest by any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "service/status.h"
#include "wire/control.h"

namespace c4::agent {

// Who is at the other end, from the socket itself.
struct ControlPeer {
  uint32_t pid = 0;  // 0: outside the agent's pid namespace
  uint32_t uid = 0;
};

// A connection of a library; a process that connects again is another one.
using ControlClientId = uint64_t;

struct ControlOptions {
  std::string run_dir;
  wire::ProcessIdentity identity{};  // the agent's own
  uint32_t agent_version = 0;
  wire::RecordLevel level = wire::kLevelCoarse;
  int check_files_ms = 1000;
  size_t most_of_uid = 512;  // connections of a user other than root: he leaves room for the others
  // A library has said hello; on the server's thread.
  std::function<void(const ControlPeer&, const std::string& segment_name)> on_hello;
  // As well; what a frame says was checked for its form only. nullptr: path frames are left out.
  std::function<void(ControlClientId, const ControlPeer&, const wire::ControlPathAsk&)> on_path_ask;
  std::function<void(ControlClientId, const ControlPeer&, const wire::ControlPathUse&)> on_path_use;
  std::function<void(ControlClientId)> on_gone;
  // How far a hold has come that SendTo ordered; as well.
  std::function<void(uint32_t pid, const wire::ControlHoldState&)> on_hold_state;
  // What a program, or its library, says of a plan that SendTo offered, and of its steps; as well.
  std::function<void(uint32_t pid, const wire::ControlPlanAnswer&)> on_plan_answer;
  std::function<void(uint32_t pid, const wire::ControlPlanStep&)> on_plan_step;
  // No connection of that process is left, or SendTo found none; as well.
  std::function<void(uint32_t pid)> on_unreachable;
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
  // To one client; left out when it has gone. Never waits.
  void Answer(ControlClientId client, const wire::ControlPathAnswer& answer);
  // To the process, over its newest connection. Never waits.
  template <typename Body>
  void SendTo(uint32_t pid, wire::ControlType type, const Body& body) {
    Queue({.pid = pid, .packet = Packed(type, body)});
  }
  int clients() const { return clients_.load(); }

 private:
  struct Client {
    ControlClientId id = 0;
    ControlPeer peer;
    int64_t since_ms = 0;
    bool greeted = false;
  };
  using Clients = std::map<int, Client>;  // by descriptor
  // For one client, or for a process.
  struct Outgoing {
    ControlClientId client = 0;
    uint32_t pid = 0;
    std::string packet;
  };

  template <typename Body>
  std::string Packed(wire::ControlType type, const Body& body) const {
    const auto packet = wire::MakeControlPacket(type, options_.identity, body);
    return std::string(reinterpret_cast<const char*>(&packet), sizeof packet);
  }
  void Queue(Outgoing outgoing);

  absl::Status TakeLock();
  absl::Status Listen();
  void CheckFiles();
  void Run();
  void Accept();
  void Admit(int fd);
  void DropSilent(int64_t now_ms);  // those that have not said hello in time
  void TellCrowded(std::string_view why);
  // False: the client is to be closed.
  bool Receive(int fd, Client* client);
  bool Greet(int fd, Client* client, const wire::ControlHello& hello);
  // Of a later type, or one for nobody here: true.
  bool HandlePath(const Client& client, const char* packet, size_t bytes, uint32_t type);
  bool HandleHold(const Client& client, const char* packet, size_t bytes);
  bool HandlePlan(const Client& client, const char* packet, size_t bytes, uint32_t type);
  Clients::iterator Drop(Clients::iterator at);
  void Broadcast();
  void SendQueued();
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
  std::mutex outgoing_mutex_;
  std::vector<Outgoing> outgoing_;     // to be sent
  Clients by_fd_;                      // the thread's own, as what follows
  std::map<uint32_t, size_t> of_uid_;  // how many of by_fd_
  size_t most_clients_ = 0;
  int64_t accept_again_ms_ = 0;
  ControlClientId next_id_ = 1;
  std::set<uint32_t> told_;  // processes whose faults have been logged
  bool told_crowded_ = false;
  bool told_files_ = false;
  std::thread thread_;
};

}  // namespace c4::agent
