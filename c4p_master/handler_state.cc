// What the handler writes down, so that a master after it goes on where it was: agents' NICs, connections,
// learnt paths, switches and what is wrong with their links (state/path_state.proto).
#include <set>
#include <utility>

#include "c4p_master/c4p_handler.h"
#include "c4p_master/state/records.h"
#include "c4p_master/tuple_messages.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::c4p {

absl::Status C4pHandler::Restore(const StateRecords& records, int64_t now_ns) {
  keeper_.Loaded(records);
  stored::Master master;
  master.set_epoch(options_.master_epoch);
  keeper_.Put(std::string(kMasterKey), master);
  absl::StatusOr<Topology> switches = SwitchesOf(records);
  if (!switches.ok()) return switches.status();
  const auto each = [&](std::string_view keys, auto&& message, const auto& take) -> absl::Status {
    for (auto at = records.lower_bound(std::string(keys)); at != records.end() && at->first.starts_with(keys);
         ++at) {
      C4_RETURN_IF_NOT_OK(Unseal(at->first, at->second, &message));
      C4_RETURN_IF_NOT_OK(take(at->first));
    }
    return absl::OkStatus();
  };
  stored::Drain drain;
  C4_RETURN_IF_NOT_OK(each(kDrainKeys, drain, [&](const std::string& key) {
    const absl::Status status = holds_.Drain(drain.target(), drain.why());
    return status.ok() ? status
                       : absl::DataLossError(service::Concat("record ", key, ": ", status.message()));
  }));
  leaving_ = !holds_.drains().empty();
  view_.Restore(*std::move(switches));
  stored::Host host;
  C4_RETURN_IF_NOT_OK(each(kHostKeys, host, [&](const std::string&) {
    view_.SetNics(host.hello());
    absent_hosts_[host.hello().host()] = now_ns;
    return absl::OkStatus();
  }));
  // Old news: good enough to keep what is in use where it is, and to be probed again before anything else.
  stored::Paths paths;
  std::vector<service::IpTuple> known;
  C4_RETURN_IF_NOT_OK(each(kPathsKeys, paths, [&](const std::string&) {
    for (const PathObservation& seen : ObservationsOf(paths)) {
      view_.Add(seen, now_ns);
      catalogue_.Record(seen, now_ns);
      catalogue_.probed().Doubt(seen.tuple);
      known.push_back(seen.tuple);
    }
    return absl::OkStatus();
  }));
  view_.BeginRound();
  (void)view_.Refresh(now_ns);
  for (const service::IpTuple& tuple : known) {
    if (options_.ports.Of(tuple.protocol).Holds(tuple.source_port)) LearnPort(tuple, now_ns);
  }
  for (const LinkChange& dead : view_.DeadLinks()) WatchDeadLink(dead, now_ns);
  stored::Connection connection;
  C4_RETURN_IF_NOT_OK(each(kConnectionKeys, connection, [&](const std::string& key) {
    const absl::Status status = book_.Restore(connection, now_ns);
    return status.ok() ? status
                       : absl::DataLossError(service::Concat("record ", key, ": ", status.message()));
  }));
  book_.AdoptRestored(now_ns);
  (void)catalogue_.TakeChanged();
  (void)book_.TakeChanged();
  if (!records.empty()) {
    service::LogInfo("going on from what was written down: ", book_.connections().size(), " connections of ",
                     absent_hosts_.size(), " hosts, ", known.size(), " paths, ", dead_links_.size(),
                     " links that carry nothing");
  }
  return absl::OkStatus();  // the first tick writes down what is new
}

void C4pHandler::Say(SessionId session, v1::C4pToAgent message) {
  outgoing_.emplace_back(session, std::move(message));
}

void C4pHandler::Deliver() {
  for (const std::string& name : book_.TakeChanged()) {
    const std::string key = Key(kConnectionKeys, name);
    if (const auto found = book_.connections().find(name); found == book_.connections().end()) {
      keeper_.Remove(key);
    } else if (keeper_.keeps()) {
      keeper_.Put(key, book_.Stored(found->second));
    }
  }
  keeper_.Commit([this, messages = std::exchange(outgoing_, {})] {
    for (const auto& [id, message] : messages) {
      const auto session = sessions_.find(id);
      if (session != sessions_.end()) session->second.send(message);
    }
  });
}

void C4pHandler::KeepHost(const v1::AgentHello& hello) {
  absent_hosts_.erase(hello.host());
  stored::Host host;
  *host.mutable_hello() = hello;
  // Of one agent's life, and no business of the next.
  host.mutable_hello()->clear_agent_epoch();
  keeper_.Put(Key(kHostKeys, hello.host()), host);
}

// What takes time, once a second.
void C4pHandler::KeepNetwork(int64_t now_ns) {
  for (const FlowGroup& group : catalogue_.TakeChanged()) {
    const std::map<uint16_t, HopPath>* const ways = catalogue_.WaysOf(group);
    if (ways == nullptr || ways->empty()) {
      keeper_.Remove(PathsKey(group));
    } else if (keeper_.keeps()) {
      keeper_.Put(PathsKey(group), StoredPaths(group, *ways));
    }
  }
  // Hosts that were restored and have not come: the next master need not expect them.
  for (auto at = absent_hosts_.begin(); at != absent_hosts_.end();) {
    const bool gone = now_ns - at->second > 10 * options_.expiry_ns;
    if (gone) keeper_.Remove(Key(kHostKeys, at->first));
    at = gone ? absent_hosts_.erase(at) : std::next(at);
  }
  if (!keeper_.keeps() || kept_view_ns_ == refreshed_ns_) return;
  kept_view_ns_ = refreshed_ns_;
  const StateRecords switches = StoredSwitches(view_.topology());
  for (const auto& [key, record] : switches) keeper_.PutRecord(key, record);
  keeper_.RemoveAllBut(kLeafKeys, switches);
  keeper_.RemoveAllBut(kSpineKeys, switches);
}

}  // namespace c4::c4p
