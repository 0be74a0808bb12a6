// How an experiment asks C4P to move queue pairs (C4p.MovePaths, C4p.EndMoves): one order at a time, answered
// later, and nobody waits. An order that is not answered in time may have been carried out all the same; C4P
// moves back by itself what nobody has ended after `hold_ns`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "c4d_master/intervention/step_plan.h"

namespace c4::c4d {

struct MoveOrder {
  enum class Kind { kMove, kEnd };
  Kind kind = Kind::kMove;
  std::string experiment;  // unique in the cluster, as C4D names it
  std::string why;         // a sentence for C4P's log and books
  // Of kMove: all that are not optional, or none.
  std::vector<WantedMove> moves;
  int64_t hold_ns = 0;
  // Of kEnd: the numbers of moves that stay; the others are moved back.
  std::vector<uint64_t> keep;
};

struct MoveAnswer {
  enum class Kind { kDone, kRefused, kNoAnswer };
  Kind kind = Kind::kNoAnswer;
  std::string why;  // unless kDone
  struct Moved {
    bool moved = false;
    std::string why;      // it is not
    uint64_t number = 0;  // of C4P's books
    std::string local;    // "address:port" from where it is to send
    std::vector<std::string> links;
  };
  // Of kMove: as they were asked for. Of kEnd: those that were moved back, by number.
  std::vector<Moved> moves;
};

class Mover {
 public:
  virtual ~Mover() = default;
  // Only once the one before has been answered.
  virtual void Send(const MoveOrder& order) = 0;
  // The answer to it, once; none: not yet.
  virtual std::optional<MoveAnswer> Take() = 0;
};

}  // namespace c4::c4d
