// rdma_ends MODE --listen PORT | --connect HOST:PORT [options]: the two ends of queue pairs
// (ccl/transport/verbs) over a real device, in two programs of which the one that connects sends. Prints what
// it saw; exits with 0 when all was right.
//
//   histories  --first SEED --count N        seeded histories with breaks at either end
//   stream     --messages N --bytes B        one long history; --at K --command C, --then L --command2 C2
//   bandwidth  --bytes B --seconds S --queue-pairs Q [--spin]
//   steer      --ports P,P,...               one queue pair, over each port in turn
//   once       --bytes B --window W --count N --queue-pairs Q   bare writes: once and in order?
//   faults                                   what is refused: keys, memory, ends, lengths
#include <cstdio>
#include <cstring>
#include <map>

#include "ccl/base/clock.h"
#include "tests/rdma/modes.h"

namespace c4::rdma_test {
namespace {

std::map<std::string, std::string> Parse(int count, char** words) {
  std::map<std::string, std::string> options;
  for (int i = 2; i < count; ++i) {
    const std::string word = words[i];
    if (word.rfind("--", 0) != 0) Die("what is " + word + "?");
    const bool has_value = i + 1 < count && strncmp(words[i + 1], "--", 2) != 0;
    options[word.substr(2)] = has_value ? words[++i] : "1";
  }
  return options;
}

int Run(int count, char** words) {
  if (count < 2) Die("usage: rdma_ends MODE --listen PORT | --connect HOST:PORT [options]");
  const std::string mode = words[1];
  Options options(Parse(count, words));
  setvbuf(stdout, nullptr, _IOLBF, 0);

  const verbs::Library* library = nullptr;
  if (const Result opened = verbs::ProcessLibrary(&library); !opened.ok()) Die(opened.message());
  Context context;
  context.settings = verbs::Settings::OfProcess();
  std::string why_none;
  const std::vector<verbs::UsablePort> ports = verbs::FindPorts(*library, context.settings, &why_none);
  if (ports.empty()) Die(why_none);
  context.port = ports[0];
  printf("port %s, GID %d %s, MTU %d\n", context.port.name().c_str(), context.port.gid.index,
         verbs::GidText(context.port.gid.gid).c_str(), verbs::MtuBytes(context.port.port.mtu));

  const std::string to = options.Text("connect", "");
  Oob oob = to.empty() ? Oob::Listen(static_cast<uint16_t>(options.Number("listen", 7000)))
                       : Oob::Connect(to.substr(0, to.find(':')),
                                      static_cast<uint16_t>(std::stoi(to.substr(to.find(':') + 1))));
  context.oob = &oob;
  const bool sends = !to.empty();
  if (mode == "histories") {
    Histories(context, options, sends);
  } else if (mode == "stream") {
    Stream(context, options, sends);
  } else if (mode == "bandwidth") {
    Bandwidth(context, options, sends);
  } else if (mode == "steer") {
    Steer(context, options, sends);
  } else if (mode == "once") {
    Once(context, options, sends);
  } else if (mode == "faults") {
    Faults(context, sends);
  } else {
    Die("there is no mode " + mode);
  }
  printf("OK\n");
  return 0;
}

}  // namespace
}  // namespace c4::rdma_test

int main(int count, char** words) {
  return c4::rdma_test::Run(count, words);
}
