#include "fabric/emulator/oracle.h"

#include <algorithm>
#include <map>
#include <netinet/in.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "fabric/emulator/command.h"

namespace c4::fabric {
namespace {

// One question to a router or host, and the device that it would send to.
struct Question {
  std::string ns;
  std::string input_device;  // empty: the packet is made there
  FiveTuple tuple;
  std::string answer;
};

// All questions to one namespace in one `ip -batch`. The protocol is a number: a minimal system has no
// /etc/protocols to look names up in.
absl::Status Ask(std::vector<Question>* questions) {
  std::map<std::string, std::vector<Question*>> by_namespace;
  for (Question& question : *questions) {
    if (!question.ns.empty()) by_namespace[question.ns].push_back(&question);
  }
  for (auto& [ns, asked] : by_namespace) {
    std::string text;
    for (const Question* question : asked) {
      const FiveTuple& tuple = question->tuple;
      absl::StrAppend(&text, "route get ", tuple.destination, " from ", tuple.source, " ",
                      question->input_device.empty() ? "" : absl::StrCat("iif ", question->input_device, " "),
                      "ipproto ", tuple.protocol == "udp" ? IPPROTO_UDP : IPPROTO_TCP, " sport ",
                      tuple.source_port, " dport ", tuple.destination_port, "\n");
    }
    const absl::StatusOr<std::string> output = RunCommand({"ip", "-oneline", "-batch", "-"}, text, ns);
    if (!output.ok()) return absl::UnavailableError(output.status().message());
    const std::vector<std::string> lines = absl::StrSplit(*output, '\n', absl::SkipEmpty());
    if (lines.size() != asked.size()) {
      return absl::InternalError(absl::StrCat("`ip route get` in ", ns, " answered ", lines.size(), " of ",
                                              asked.size(), " questions"));
    }
    for (size_t i = 0; i < asked.size(); ++i) asked[i]->answer = DeviceOfRoute(lines[i]);
  }
  return absl::OkStatus();
}

// "up3" with prefix "up" to 3; -1.
int NumberAfter(const std::string& device, std::string_view prefix) {
  int number = -1;
  if (!device.starts_with(prefix) || !absl::SimpleAtoi(device.substr(prefix.size()), &number)) return -1;
  return number;
}

}  // namespace

FiveTuple Reversed(const FiveTuple& tuple) {
  return {tuple.destination, tuple.destination_port, tuple.source, tuple.source_port, tuple.protocol};
}

std::string TupleText(const FiveTuple& tuple) {
  return absl::StrCat(tuple.source, ":", tuple.source_port, " -> ", tuple.destination, ":",
                      tuple.destination_port);
}

bool Takes(const Path& path, const Link& link) {
  return std::find(path.links.begin(), path.links.end(), link) != path.links.end();
}

std::string DeviceOfRoute(std::string_view line) {
  const size_t at = line.find(" dev ");
  if (at == std::string_view::npos) return "";
  line.remove_prefix(at + 5);
  return std::string(line.substr(0, line.find_first_of(" \\\n")));
}

absl::StatusOr<std::vector<Path>> PathsOf(const FabricSpec& spec, const std::vector<FiveTuple>& tuples,
                                          const std::vector<int>& source_leaves) {
  std::vector<Path> paths(tuples.size());
  std::vector<Question> questions(tuples.size());
  const auto no_route = [&](size_t i) {
    return absl::UnavailableError(absl::StrCat(questions[i].ns, " has no way for ", TupleText(tuples[i]),
                                               " (", questions[i].answer, ")"));
  };
  // `ip route get` hashes a made-up packet, a socket's route is hashed from its flow: policy 3 mixes the two
  // differently, so that nobody can be asked for what a host itself decides.
  if (spec.ports == Ports::kBonded && source_leaves.size() != tuples.size()) {
    return absl::UnimplementedError(
        absl::StrCat("hosts of fabric ", spec.name,
                     " choose between their ports by a hash that the kernel does not tell; "
                     "paths are known with --ports one and planes"));
  }
  // The kernel hashes packets of IPv6, and for a question, which has none, the flow: not the same.
  if (spec.ipv6) {
    return absl::UnimplementedError(
        absl::StrCat("the kernel does not tell the paths of an IPv6 fabric, as ", spec.name, " is"));
  }
  // The host chooses the port, by the source address.
  for (size_t i = 0; i < tuples.size(); ++i) {
    paths[i].source_host = HostOfAddress(spec, tuples[i].source);
    paths[i].destination_host = HostOfAddress(spec, tuples[i].destination);
    if (paths[i].source_host < 0 || paths[i].destination_host < 0) {
      return absl::NotFoundError(
          absl::StrCat(TupleText(tuples[i]), " does not join two hosts of fabric ", spec.name));
    }
    const int port = spec.ports == Ports::kBonded
                         ? source_leaves[i] - LeafOfHost(spec, paths[i].source_host, 0)
                         : PortOfAddress(spec, tuples[i].source);
    questions[i].answer = absl::StrCat("eth", port);
    questions[i].tuple = tuples[i];
  }
  // The leaf chooses the spine.
  for (size_t i = 0; i < tuples.size(); ++i) {
    Path& path = paths[i];
    if (path.source_host == path.destination_host) continue;  // never leaves the host
    const int port = NumberAfter(questions[i].answer, "eth");
    path.source_leaf = LeafOfHost(spec, path.source_host, port);
    path.links.push_back(HostLinkOf(spec, path.source_host, port));
    questions[i] = {LeafNamespace(spec, path.source_leaf),
                    absl::StrCat("h", SlotOfHost(spec, path.source_host)), tuples[i], ""};
  }
  if (absl::Status fault = Ask(&questions); !fault.ok()) return fault;
  // The spine chooses the leaf, where the destination hangs on two.
  for (size_t i = 0; i < tuples.size(); ++i) {
    Path& path = paths[i];
    if (path.source_leaf < 0) continue;
    path.spine = NumberAfter(questions[i].answer, "up");
    if (path.spine < 0) {
      if (NumberAfter(questions[i].answer, "h") < 0) return no_route(i);
      path.destination_leaf = path.source_leaf;
      questions[i].ns.clear();
      continue;
    }
    path.links.push_back(UplinkOf(path.source_leaf, path.spine));
    questions[i] = {SpineNamespace(spec, path.spine), absl::StrCat("dn", path.source_leaf), tuples[i], ""};
  }
  if (absl::Status fault = Ask(&questions); !fault.ok()) return fault;
  for (size_t i = 0; i < tuples.size(); ++i) {
    Path& path = paths[i];
    if (path.spine >= 0) {
      path.destination_leaf = NumberAfter(questions[i].answer, "dn");
      if (path.destination_leaf < 0) return no_route(i);
      path.links.push_back(UplinkOf(path.destination_leaf, path.spine));
    }
    if (path.destination_leaf < 0) continue;
    const int port = path.destination_leaf - LeafOfHost(spec, path.destination_host, 0);
    path.links.push_back(HostLinkOf(spec, path.destination_host, port));
  }
  return paths;
}

absl::StatusOr<Path> PathOf(const FabricSpec& spec, const FiveTuple& tuple) {
  absl::StatusOr<std::vector<Path>> paths = PathsOf(spec, {tuple});
  if (!paths.ok()) return paths.status();
  return paths->front();
}

}  // namespace c4::fabric
