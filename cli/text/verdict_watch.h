// What `c4 verdicts --watch` shows of the stream of verdicts: each change once, also across reconnects, when
// the master sends everything that it knows again.
//
// Pure: verdicts in, "show it" out. One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "c4/v1/c4d.pb.h"

namespace c4::cli {

class VerdictWatch {
 public:
  // `all`: show also verdicts that were cleared before anybody saw them open.
  explicit VerdictWatch(bool all) : all_(all) {}

  // True when this is news to the reader.
  bool Take(const v1::Verdict& verdict);
  // As `c4 verdicts` would exit now.
  int exit_code() const;

 private:
  const bool all_;
  std::map<std::string, v1::Verdict> known_;
};

}  // namespace c4::cli
