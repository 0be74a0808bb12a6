// What a client of the RAS port says, line by line, and what it is answered at once. Pure; one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace c4::ras {

class Session {
 public:
  // Bytes as they come. What is to be sent back is added to `reply`. True: a report is wanted now, after
  // which the connection is closed; nothing is read any more.
  bool Take(std::string_view bytes, std::string* reply);

  bool json() const { return json_; }
  bool verbose() const { return verbose_; }
  // For how long processes may be silent; 0: for ever.
  int timeout_s() const { return timeout_s_; }
  // The client talks nonsense without end: it is to be closed after its reply.
  bool failed() const { return failed_; }

 private:
  // True: a report is wanted.
  bool TakeLine(std::string_view line, std::string* reply);

  std::string line_;
  bool json_ = false;
  bool verbose_ = false;
  bool failed_ = false;
  int timeout_s_ = 5;
};

}  // namespace c4::ras
