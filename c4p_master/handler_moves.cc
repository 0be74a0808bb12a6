// Moves that C4D asks for to see whom slowness follows (C4p.MovePaths, C4p.EndMoves). The books say the same
// as the network: a move is one on the accounts, too, and what nobody ends in time is taken back.
#include <algorithm>
#include <set>

#include "absl/strings/str_join.h"
#include "c4p_master/c4p_handler.h"
#include "c4p_master/tuple_messages.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::c4p {
namespace {

using service::Concat;

constexpr size_t kMostText = 512;  // of a name or sentence from outside

std::string CheckedText(const std::string& text) {
  return service::ToUtf8(text.substr(0, kMostText));
}

absl::Status CheckMoves(const v1::MovePathsRequest& request, const MoveLimits& limits) {
  if (request.job().empty() || request.experiment().empty()) {
    return absl::InvalidArgumentError("name the job and the experiment that queue pairs are to be moved for");
  }
  if (request.moves().empty()) return absl::InvalidArgumentError("name the queue pairs that are to be moved");
  if (request.hold_ns() <= 0 || request.hold_ns() > limits.most_hold_ns) {
    return absl::InvalidArgumentError(Concat("they are to be held for ", request.hold_ns(),
                                             " ns: give some, at most ", limits.most_hold_ns));
  }
  return absl::OkStatus();
}

}  // namespace

void C4pHandler::FillMoved(const PairRef& ref, v1::PathMoved* to) const {
  const PathBook::Connection& connection = book_.connections().at(ref.connection);
  const PathBook::QueuePair& pair = connection.pairs[ref.index];
  v1::FiveTuple* const tuple = to->mutable_tuple();
  tuple->set_protocol(connection.request.protocol());
  tuple->set_source(service::IpText(connection.sources[pair.end]));
  tuple->set_source_port(pair.advised_port);
  tuple->set_destination(service::IpText(connection.destinations[pair.end]));
  tuple->set_destination_port(connection.request.destination_port());
  for (std::string& link : view_.NamesOf(connection.sources[pair.end], connection.destinations[pair.end],
                                         pair.place.plane, pair.place.way)) {
    to->add_links(std::move(link));
  }
  to->set_moved(true);
}

void C4pHandler::NoteMove(const std::string& job, const std::string& experiment, std::string text,
                          int64_t now_ns) {
  service::LogInfo("experiment ", experiment, " of job ", job, ": ", text);
  history_.Add(
      {now_ns, v1::PATH_EVENT_KIND_EXPERIMENT, "", job, "", 0, {}, {}, Concat(experiment, ": ", text)});
  moves_.Note(job, experiment, std::move(text), now_ns);
}

absl::StatusOr<v1::MovePathsReply> C4pHandler::MovePaths(const v1::MovePathsRequest& asked, int64_t now_ns) {
  v1::MovePathsRequest request = asked;
  request.set_experiment(CheckedText(asked.experiment()));
  request.set_why(CheckedText(asked.why()));
  if (const absl::Status fault = CheckMoves(request, moves_.limits()); !fault.ok()) return fault;
  v1::MovePathsReply reply;
  reply.set_master_epoch(options_.master_epoch);
  const auto refuse = [&](std::string why) {
    metrics_.moves_refused.Add();
    NoteMove(request.job(), request.experiment(), Concat("refused: ", why), now_ns);
    reply.clear_moves();
    reply.set_refused(std::move(why));
    return reply;
  };
  const absl::Status admitted =
      moves_.Admit(request.job(), request.experiment(), static_cast<size_t>(request.moves_size()), now_ns);
  if (!admitted.ok()) return refuse(std::string(admitted.message()));
  struct Done {
    PairRef pair;
    PathBook::Former former;
    int at = 0;
    std::string before;
  };
  std::vector<Done> done;
  for (int i = 0; i < request.moves_size(); ++i) {
    const v1::PathMove& move = request.moves(i);
    v1::PathMoved* const moved = reply.add_moves();
    const std::optional<service::IpTuple> tuple = TupleOf(move.tuple());
    const std::optional<PairRef> pair = tuple ? book_.FindPair(request.job(), *tuple) : std::nullopt;
    absl::StatusOr<PathBook::Former> former =
        absl::NotFoundError(Concat("no queue pair of job ", request.job(), " sends from ",
                                   move.tuple().source(), " port ", move.tuple().source_port()));
    std::string before;
    if (pair) {
      const PathBook::Connection& connection = book_.connections().at(pair->connection);
      before = absl::StrJoin(book_.LinksOf(connection, connection.pairs[pair->index], now_ns), " ");
      former = book_.Divert(*pair,
                            {.avoid = {move.avoid().begin(), move.avoid().end()},
                             .through = move.through(),
                             .other_plane = move.other_plane(),
                             .most_fill = moves_.limits().most_fill},
                            now_ns);
    }
    if (former.ok()) {
      done.push_back({*pair, *former, i, std::move(before)});
      continue;
    }
    moved->set_why(std::string(former.status().message()));
    if (move.optional()) continue;
    for (auto undo = done.rbegin(); undo != done.rend(); ++undo) book_.Undo(undo->pair, undo->former);
    return refuse(pair ? Concat("queue pair ", pair->index, " of ", pair->connection, ": ", moved->why())
                       : moved->why());
  }
  std::set<std::string> connections;
  for (const Done& one : done) {
    const PathBook::Connection& connection = book_.connections().at(one.pair.connection);
    v1::PathMoved* const moved = reply.mutable_moves(one.at);
    FillMoved(one.pair, moved);
    moved->set_number(
        moves_.Hold({request.job(), request.experiment(), request.why(), one.pair, one.former.place,
                     connection.pairs[one.pair.index].place, now_ns + request.hold_ns()}));
    connections.insert(one.pair.connection);
    metrics_.moves.Add();
    NoteMove(request.job(), request.experiment(),
             Concat("queue pair ", one.pair.index, " of ", one.pair.connection, " moved from ", one.before,
                    " to ", absl::StrJoin(moved->links(), " "), " (", request.why(), ")"),
             now_ns);
  }
  Announce(connections, now_ns);
  Deliver();
  return reply;
}

void C4pHandler::Announce(const std::set<std::string>& connections, int64_t now_ns) {
  std::vector<Advice> advice;
  for (const std::string& name : connections) advice.push_back(book_.Announce(name, now_ns));
  SendAdvice(advice, "", now_ns);
}

absl::StatusOr<v1::EndMovesReply> C4pHandler::EndMoves(const v1::EndMovesRequest& asked, int64_t now_ns) {
  if (asked.job().empty() || asked.experiment().empty()) {
    return absl::InvalidArgumentError("name the job and the experiment that is over");
  }
  v1::EndMovesReply reply;
  reply.set_master_epoch(options_.master_epoch);
  std::map<uint64_t, MoveLedger::Held> released =
      moves_.Release(asked.job(), CheckedText(asked.experiment()));
  for (const uint64_t number : asked.keep()) {
    const auto kept = released.find(number);
    if (kept == released.end()) continue;
    NoteMove(asked.job(), kept->second.experiment,
             Concat("queue pair ", kept->second.pair.index, " of ", kept->second.pair.connection,
                    " stays on its new way"),
             now_ns);
    released.erase(kept);
  }
  TakeBack(released, "", &reply, now_ns);
  Deliver();
  return reply;
}

void C4pHandler::TakeBack(const std::map<uint64_t, MoveLedger::Held>& released, const std::string& why,
                          v1::EndMovesReply* reply, int64_t now_ns) {
  std::set<std::string> connections;
  // One that was moved twice goes back the way that it came.
  for (auto at = released.rbegin(); at != released.rend(); ++at) {
    const auto& [number, held] = *at;
    v1::PathMoved* const moved = reply->add_moves();
    moved->set_number(number);
    const absl::Status status = book_.Return(held.pair, held.to, held.from, now_ns);
    std::string text = Concat("queue pair ", held.pair.index, " of ", held.pair.connection);
    if (status.ok()) {
      FillMoved(held.pair, moved);
      connections.insert(held.pair.connection);
      metrics_.moves_back.Add();
      text += Concat(" moved back to ", absl::StrJoin(moved->links(), " "));
    } else {
      moved->set_why(std::string(status.message()));
      text += Concat(" is not moved back: ", moved->why());
    }
    NoteMove(held.job, held.experiment, Concat(text, why), now_ns);
  }
  Announce(connections, now_ns);
}

void C4pHandler::TendMoves(int64_t now_ns) {
  const std::map<uint64_t, MoveLedger::Held> expired = moves_.ReleaseExpired(now_ns);
  if (expired.empty()) return;
  v1::EndMovesReply unread;
  TakeBack(expired, "; nobody ended the experiment in time", &unread, now_ns);
}

void C4pHandler::FillMoves(const std::string& job, int64_t now_ns, v1::ListPathsReply* reply) const {
  for (const MoveLedger::Entry& entry : moves_.entries()) {
    if (!job.empty() && entry.job != job) continue;
    v1::MoveEntry* const to = reply->add_moves();
    to->set_age_ns(now_ns - entry.at_ns);
    to->set_job(entry.job);
    to->set_experiment(entry.experiment);
    to->set_text(entry.text);
  }
}

}  // namespace c4::c4p
