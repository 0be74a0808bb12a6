#include "fabric/inject/flows.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "fabric/emulator/command.h"

namespace c4::fabric {
namespace {

using Ends = std::map<FiveTuple, SocketEnd>;

// "10.0.0.2:5000"
bool ParseEnd(const std::string& text, std::string* address, int* port) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), port)) return false;
  *address = text.substr(0, colon);
  return true;
}

uint64_t NumberAfter(std::string_view line, std::string_view name) {
  const size_t at = line.find(name);
  if (at == std::string_view::npos) return 0;
  line.remove_prefix(at + name.size());
  uint64_t value = 0;
  const std::string digits(line.substr(0, line.find_first_not_of("0123456789")));
  return absl::SimpleAtoi(digits, &value) ? value : 0;
}

absl::StatusOr<Ends> Look(const FabricSpec& spec, const std::set<int>& hosts) {
  Ends ends;
  for (const int host : hosts) {
    const absl::StatusOr<std::string> text =
        RunCommand({"ss", "-tniOHp", "state", "established"}, "", HostNamespace(spec, host));
    if (!text.ok()) return text.status();
    for (SocketEnd& end : ParseSs(*text)) {
      const FiveTuple tuple = end.tuple;
      ends.emplace(tuple, std::move(end));
    }
  }
  return ends;
}

int RankOf(const JobView& job, const SocketEnd& end) {
  for (const pid_t pid : end.pids) {
    const int rank = RankOfProcess(job, pid);
    if (rank >= 0) return rank;
  }
  return -1;
}

bool IsData(const FabricSpec& spec, const SocketEnd& end, uint64_t least_bytes) {
  return end.sent_bytes >= least_bytes && end.sent_bytes >= end.received_bytes &&
         HostOfAddress(spec, end.tuple.source) >= 0 && HostOfAddress(spec, end.tuple.destination) >= 0;
}

int RankOfPeer(const JobView& job, const Ends& ends, const FiveTuple& tuple) {
  const auto peer = ends.find(Reversed(tuple));
  return peer != ends.end() ? RankOf(job, peer->second) : -1;
}

// The hosts are looked at one after the other. A connection that is opened or closed meanwhile, as when its
// path changes, or that its listener has not accepted yet, shows one end with a rank.
bool HasHalfSeen(const FabricSpec& spec, const JobView& job, const Ends& ends, uint64_t least_bytes) {
  return std::any_of(ends.begin(), ends.end(), [&](const auto& entry) {
    const auto& [tuple, end] = entry;
    return IsData(spec, end, least_bytes) && (RankOf(job, end) < 0) != (RankOfPeer(job, ends, tuple) < 0);
  });
}

}  // namespace

std::vector<SocketEnd> ParseSs(std::string_view text) {
  std::vector<SocketEnd> ends;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(absl::string_view(text.data(), text.size()), '\n'))) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    SocketEnd end;
    // Recv-Q Send-Q LOCAL PEER ...
    if (words.size() < 4 || !absl::SimpleAtoi(words[1], &end.queued_bytes)) continue;
    if (!ParseEnd(words[2], &end.tuple.source, &end.tuple.source_port) ||
        !ParseEnd(words[3], &end.tuple.destination, &end.tuple.destination_port)) {
      continue;
    }
    end.sent_bytes = NumberAfter(line, " bytes_acked:");
    end.received_bytes = NumberAfter(line, " bytes_received:");
    for (size_t at = 0; (at = line.find("pid=", at)) != std::string::npos; ++at) {
      end.pids.push_back(static_cast<pid_t>(NumberAfter(std::string_view(line).substr(at), "pid=")));
    }
    ends.push_back(std::move(end));
  }
  return ends;
}

absl::StatusOr<std::vector<Flow>> FlowsOf(const FabricSpec& spec, const JobView& job, int window_ms,
                                          uint64_t least_bytes) {
  std::set<int> hosts;
  for (const JobView::Rank& rank : job.ranks) hosts.insert(rank.host);
  const absl::StatusOr<Ends> first = Look(spec, hosts);
  if (!first.ok()) return first.status();
  std::this_thread::sleep_for(std::chrono::milliseconds(window_ms));
  absl::StatusOr<Ends> last = Look(spec, hosts);
  constexpr int kLooks = 5;
  for (int look = 1; last.ok() && look < kLooks && HasHalfSeen(spec, job, *last, least_bytes); ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    last = Look(spec, hosts);
  }
  if (!last.ok()) return last.status();

  std::vector<Flow> flows;
  for (const auto& [tuple, end] : *last) {
    if (!IsData(spec, end, least_bytes)) continue;
    Flow flow;
    flow.tuple = tuple;
    flow.from_rank = RankOf(job, end);
    flow.to_rank = RankOfPeer(job, *last, tuple);
    if (flow.from_rank < 0 || flow.to_rank < 0) continue;  // another job's, or opened or closed just now
    flow.sent_bytes = end.sent_bytes;
    flow.queued_bytes = end.queued_bytes;
    const auto before = first->find(tuple);
    flow.moved_bytes = end.sent_bytes - (before != first->end() ? before->second.sent_bytes : 0);
    flows.push_back(std::move(flow));
  }
  std::vector<FiveTuple> tuples;
  for (const Flow& flow : flows) {
    tuples.push_back(flow.tuple);
    tuples.push_back(Reversed(flow.tuple));
  }
  const absl::StatusOr<std::vector<Path>> paths = PathsOf(spec, tuples);
  if (!paths.ok()) return paths.status();
  for (size_t i = 0; i < flows.size(); ++i) {
    flows[i].data = (*paths)[2 * i];
    flows[i].acks = (*paths)[2 * i + 1];
  }
  return flows;
}

}  // namespace c4::fabric
