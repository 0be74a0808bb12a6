// The questions that a process asks the others for one report, and their answers.
//
// Each process is asked at one of its places: where nobody is there (the kernel says so), at the next. A
// question is asked again until it is answered or time is over. One thread.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "ccl/ras/member.h"
#include "ccl/ras/report.h"

namespace c4::ras {

class Gathering {
 public:
  using Members = std::vector<std::shared_ptr<const Member>>;

  // `own`: this process. `timeout_s` 0: it waits for ever.
  Gathering(const Members& members, const wire::ProcessIdentity& own, uint64_t query, int timeout_s,
            uint64_t now_ns);

  // Asks whom it is time to ask.
  void Ask(uint64_t now_ns);
  // When Ask has something to do next.
  uint64_t next_ns() const { return next_ns_; }
  // All have answered or are gone, or the time is over.
  bool over(uint64_t now_ns) const { return now_ns >= deadline_ns_ || open_ == 0; }

  uint64_t query() const { return query_; }
  // An answer that is signed; `bytes` as IsTell has found them right.
  void Take(const Member& member, const void* data, size_t bytes);
  // Nobody is at that place of that member's peers.
  void Refused(const Member& member, const SocketAddress& place);

  Report Finish(uint64_t now_ns) const;

 private:
  struct Place {
    std::shared_ptr<const Member> member;
    uint32_t rank = 0;
  };
  struct Target {
    wire::ProcessIdentity process{};
    std::string host;
    std::vector<Place> places;
    size_t at = 0;  // the place that is asked; past the last: nobody is at any
    bool answered = false;
    uint32_t total = 0;  // states that are to come
    std::vector<State> states;
  };

  using ProcessKey = std::array<uint8_t, sizeof(wire::ProcessIdentity)>;

  static ProcessKey KeyOf(wire::ProcessIdentity process);
  size_t TargetOf(const wire::ProcessIdentity& process, const SocketAddress& place);
  bool IsOpen(const Target& target) const { return !target.answered && target.at < target.places.size(); }

  const wire::ProcessIdentity own_;
  const uint64_t query_;
  const uint64_t began_ns_;
  const uint64_t deadline_ns_;
  uint64_t next_ns_;
  std::vector<Target> targets_;
  std::map<ProcessKey, size_t> target_of_;
  std::vector<Seat> seats_;
  size_t open_ = 0;
};

}  // namespace c4::ras
