// What of the book outlives a master, and how the next one goes on from it.
#include <algorithm>
#include <utility>

#include "c4p_master/path_book.h"
#include "c4p_master/tuple_messages.h"
#include "service/status.h"
#include "service/text.h"

namespace c4::c4p {

stored::Connection PathBook::Stored(const Connection& connection) const {
  stored::Connection to;
  *to.mutable_request() = connection.request;
  to.set_epoch(connection.epoch);
  for (const QueuePair& pair : connection.pairs) {
    stored::QueuePair* const one = to.add_queue_pairs();
    one->set_end(pair.end);
    one->set_advised_port(pair.advised_port);
    one->set_fences(pair.fences);
    if (pair.tuple) c4p::SetTuple(*pair.tuple, one->mutable_tuple());
  }
  return to;
}

absl::Status PathBook::Restore(const stored::Connection& from, int64_t now_ns) {
  Connection read;
  C4_RETURN_IF_NOT_OK(Read(from.request(), &read));
  const std::string& name = read.request.connection();
  if (from.queue_pairs_size() != static_cast<int>(read.request.queue_pairs())) {
    return absl::InvalidArgumentError(service::Concat("connection ", name, " has ", from.queue_pairs_size(),
                                                      " queue pairs of ", read.request.queue_pairs()));
  }
  const auto [at, added] = connections_.try_emplace(name, std::move(read));
  if (!added) return absl::InvalidArgumentError(service::Concat("connection ", name, " is there twice"));
  Connection& connection = at->second;
  Register(&connection);
  connection.pairs.resize(connection.request.queue_pairs());
  connection.epoch = from.epoch();
  connection.renewed_ns = connection.taken_over_ns = now_ns;
  connection.why = "as a master before this one has left it";
  SetComplete(&connection, false);
  adopting_.insert(name);
  for (size_t i = 0; i < connection.pairs.size(); ++i) {
    const stored::QueuePair& pair = from.queue_pairs(static_cast<int>(i));
    const std::optional<service::IpTuple> tuple =
        pair.has_tuple() ? TupleOf(pair.tuple()) : std::optional<service::IpTuple>();
    if (pair.end() >= connection.sources.size() || pair.advised_port() > UINT16_MAX ||
        pair.has_tuple() != tuple.has_value()) {
      return absl::InvalidArgumentError(
          service::Concat("queue pair ", i, " of connection ", name, " is none"));
    }
    const bool ours = options_.ports.Of(ProtocolOf(connection.request)).Holds(pair.advised_port());
    SetPort(&connection, i, pair.end(), ours ? pair.advised_port() : 0);
    if (tuple) SetTuple(&connection.pairs[i], tuple);
    connection.pairs[i].fences = pair.fences();
  }
  return absl::OkStatus();
}

void PathBook::AdoptRestored(int64_t now_ns) {
  const std::set<std::string> names = adopting_;  // some will not be any more
  for (const std::string& name : names) (void)Adopt(&connections_.at(name), now_ns);
}

std::optional<service::IpTuple> PathBook::TupleToAdopt(const Connection& connection,
                                                       const QueuePair& pair) const {
  if (pair.advised_port == 0) return pair.tuple;
  return WithPort(GroupOfEnd(connection, pair.end), static_cast<uint16_t>(pair.advised_port));
}

std::optional<Advice> PathBook::Missed(const v1::PathUse& use, int64_t now_ns) const {
  const auto found = connections_.find(use.connection());
  if (found == connections_.end() || found->second.epoch <= use.epoch()) return std::nullopt;
  const Connection& connection = found->second;
  const bool any = std::any_of(connection.pairs.begin(), connection.pairs.end(),
                               [](const QueuePair& pair) { return pair.advised_port != 0; });
  if (!any || connection.session == 0) return std::nullopt;
  return Advice{connection.session, AnswerFor(connection, now_ns)};
}

void PathBook::FallBehind(Connection* connection, uint64_t epoch, int64_t now_ns) {
  connection->epoch = epoch;
  Changed(*connection);
  if (std::exchange(connection->kept, false)) (void)allocator_.Release(connection->number);
  for (size_t i = 0; i < connection->pairs.size(); ++i) {
    SetPort(connection, i, connection->pairs[i].end, 0);
    connection->pairs[i].place = Place();
  }
  connection->taken_over_ns = now_ns;
  connection->why = "taken over as it was";
  SetComplete(connection, false);
  adopting_.insert(connection->request.connection());
}

}  // namespace c4::c4p
