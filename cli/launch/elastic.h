// The launcher's side of the local driver (docs/recovery.md): a socket in the job's directory at which the
// job's master asks for nodes to be isolated and given back, and for the job to be started again on others;
// one line of JSON each way. What is asked for is decided here, carried out by the launcher.
//
// ElasticJob is pure: which hosts are out, where ranks go. ElasticSocket answers one caller at a time and
// does not wait for one for longer than a second. One thread, the launcher's.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "service/status.h"

namespace c4::cli {

class ElasticJob {
 public:
  // `hosts`: all, spare ones included; `host_of_rank`: indexes into them.
  ElasticJob(std::vector<std::string> hosts, std::vector<int> host_of_rank)
      : hosts_(std::move(hosts)), host_of_rank_(std::move(host_of_rank)) {}

  // What a restart takes.
  struct Restart {
    int incarnation = 0;
    std::vector<int> host_of_rank;
  };
  // Does it, and gives when the checkpoint was written that the job begins with, in Unix seconds; 0: unknown.
  using DoRestart = std::function<absl::StatusOr<double>(const Restart&)>;

  // The answer to a line; `incarnation`: that runs now, or has ended and `failed`.
  std::string Answer(const std::string& line, int incarnation, bool failed, const DoRestart& restart);

  const std::vector<int>& host_of_rank() const { return host_of_rank_; }

 private:
  int Find(const std::string& host) const;  // -1: there is none
  // The job has not come up on these hosts, and nobody can say why: as many as can be make room for hosts
  // that are free, other ones each time.
  void GoElsewhere(std::vector<int>* host_of_rank);

  const std::vector<std::string> hosts_;
  std::vector<int> host_of_rank_;
  std::set<int> isolated_;
  uint64_t restarted_by_ = 0;  // number of the command
  uint64_t incident_ = 0;      // for which it was; 0: not said
  size_t next_to_go_ = 0;      // place of a host among those in use
};

class ElasticSocket {
 public:
  static absl::StatusOr<ElasticSocket> Listen(const std::string& path);
  ElasticSocket(ElasticSocket&& other) noexcept;
  ElasticSocket& operator=(ElasticSocket&&) = delete;
  ~ElasticSocket();

  int fd() const { return fd_; }  // readable: there is a caller
  // Takes a caller, if there is one, and gives back what `answer` makes of its line.
  void Serve(const std::function<std::string(const std::string&)>& answer) const;

 private:
  ElasticSocket(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_ = -1;
  std::string path_;
};

// The master's file of recovery: the user's (may be empty: then automatic) with this driver.
absl::StatusOr<std::string> ElasticRecoveryFile(const std::string& users_text, const std::string& socket);

}  // namespace c4::cli
