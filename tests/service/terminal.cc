#include "tests/service/terminal.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace c4::service_test {
namespace {

constexpr char kPrompt[] = "night$ ";

}  // namespace

// A server that ends takes its socket along, also where another one of that name has begun meanwhile.
int Terminal::Next() {
  static int next = 0;
  return ++next;
}

Terminal::Terminal(const std::string& name, const std::vector<std::string>& environment)
    : server_("c4-" + name + "-" + std::to_string(getpid()) + "-" + std::to_string(Next())) {
  std::vector<std::string> words = {"-f", "/dev/null", "new-session", "-d",  "-x",
                                    "80", "-y",        "24",          "env", "-i"};
  words.insert(words.end(), environment.begin(), environment.end());
  words.insert(words.end(), {"TERM=screen", "PS1=" + std::string(kPrompt), "bash", "--norc", "--noprofile"});
  Tmux(words);
  EXPECT_TRUE(Eventually(Seconds(10), [this] { return Screen().starts_with("night$"); })) << Screen();
}

Terminal::~Terminal() {
  Tmux({"kill-server"});
}

std::string Terminal::Tmux(const std::vector<std::string>& words) const {
  std::vector<std::string> command = {"tmux", "-L", server_};
  command.insert(command.end(), words.begin(), words.end());
  Process tmux(command, {"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"}, scratch_.path() + "/tmux");
  EXPECT_TRUE(tmux.Wait(Seconds(10)));
  EXPECT_EQ(tmux.exit_code(), 0) << words.front() << ": " << tmux.Errors();
  return tmux.Output();
}

void Terminal::Type(const std::string& command) const {
  Tmux({"send-keys", "-l", command});
  Tmux({"send-keys", "Enter"});
}

void Terminal::Interrupt() const {
  Tmux({"send-keys", "C-c"});
}

std::string Terminal::Screen() const {
  std::string screen = Tmux({"capture-pane", "-p"});
  while (screen.ends_with("\n\n")) screen.pop_back();
  return screen;
}

std::string Terminal::Screen(const std::string& command, Seconds limit) const {
  Tmux({"send-keys", "C-l"});
  Tmux({"send-keys", "-l", command});
  const auto typed = [&] { return Screen().find(command) != std::string::npos; };
  EXPECT_TRUE(Eventually(Seconds(5), typed)) << Screen();
  Tmux({"send-keys", "Enter"});
  // The prompt stands alone in the last line.
  std::string screen;
  const auto ready = [&] {
    screen = Screen();
    return screen.ends_with("\nnight$\n");
  };
  EXPECT_TRUE(Eventually(limit, ready)) << "`" << command << "` has not ended:\n" << screen;
  return screen;
}

}  // namespace c4::service_test
