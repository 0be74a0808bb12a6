// A real terminal of 80 x 24, as somebody reads it at night: a shell in a tmux of its own, into which a test
// types, and whose screen it reads.
//
// One thread. The shell and what it started are ended when the object goes.
#pragma once

#include <string>
#include <vector>

#include "tests/service/harness.h"

namespace c4::service_test {

class Terminal {
 public:
  // `name`: letters, different for each terminal of a test. Variables as NAME=value.
  Terminal(const std::string& name, const std::vector<std::string>& environment);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Types a command and does not wait for it.
  void Type(const std::string& command) const;
  // Types it on an empty screen and gives the screen once the shell asks for the next command.
  std::string Screen(const std::string& command, Seconds limit = Seconds(15)) const;
  // What the screen shows now, in 24 lines; those that are empty at its end are left out.
  std::string Screen() const;
  void Interrupt() const;

 private:
  std::string Tmux(const std::vector<std::string>& words) const;

  static int Next();

  const std::string server_;
  ScratchDir scratch_;
};

}  // namespace c4::service_test
