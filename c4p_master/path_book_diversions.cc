// The book's part in experiments: a queue pair takes another way for a while, on the books as in truth.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "c4p_master/path_book.h"
#include "service/status.h"
#include "service/text.h"

namespace c4::c4p {
namespace {

using service::Concat;

std::string CableOf(std::string link) {
  if (const size_t mark = link.find_first_of("<>"); mark != std::string::npos) link[mark] = '-';
  return link;
}

bool Fits(const std::vector<std::string>& links, const Diversion& diversion) {
  for (const std::string& link : links) {
    const std::string cable = CableOf(link);
    if (std::find(diversion.avoid.begin(), diversion.avoid.end(), cable) != diversion.avoid.end())
      return false;
  }
  return diversion.through.empty() || std::find(links.begin(), links.end(), diversion.through) != links.end();
}

}  // namespace

std::optional<PairRef> PathBook::FindPair(const std::string& job, const service::IpTuple& tuple) const {
  for (const auto& [name, connection] : connections_) {
    if (connection.request.job() != job) continue;
    for (uint32_t i = 0; i < connection.pairs.size(); ++i) {
      if (connection.pairs[i].tuple == tuple) return PairRef{name, i};
    }
  }
  return std::nullopt;
}

absl::StatusOr<PathBook::Former> PathBook::Divert(const PairRef& ref, const Diversion& diversion,
                                                  int64_t now_ns) {
  const auto found = connections_.find(ref.connection);
  if (found == connections_.end() || ref.index >= found->second.pairs.size()) {
    return absl::NotFoundError("it is closed");
  }
  Connection& connection = found->second;
  QueuePair& pair = connection.pairs[ref.index];
  if (connection.session == 0) return absl::FailedPreconditionError("its agent is away");
  if (!connection.kept || adopting_.contains(ref.connection)) {
    return absl::FailedPreconditionError("its paths are still being learnt");
  }
  if (pair.use != v1::QUEUE_PAIR_USE_LIVE || !pair.tuple) {
    return absl::FailedPreconditionError("it is not in use at present");
  }
  if (pair.advised_port != 0 && pair.tuple->source_port != pair.advised_port) {
    return absl::FailedPreconditionError("it is on its way to another path already");
  }
  if (pair.place.way == kNoWay) return absl::FailedPreconditionError("the way that it takes is not known");
  if (pair.place.way == kDirect)
    return absl::FailedPreconditionError("between ports of one leaf there is one path");
  const Offer offer = OfferOf(connection, now_ns);
  size_t others = 0;
  double least = 0;
  const std::pair<const std::pair<PlaneId, Way>, std::vector<Port>>* best = nullptr;
  for (const auto& entry : offer) {
    const Place place = {entry.first.first, entry.first.second};
    if (entry.second.empty() || place == pair.place) continue;
    if ((place.plane != pair.place.plane) != diversion.other_plane) continue;
    const Port& port = entry.second.front();
    const std::vector<std::string> links = view_->NamesOf(
        connection.sources[port.end], connection.destinations[port.end], place.plane, place.way);
    if (!Fits(links, diversion)) continue;
    const std::optional<double> fill = allocator_.FillWith(connection.number, ref.index, place);
    if (!fill) continue;
    ++others;
    if (best != nullptr && *fill >= least) continue;
    best = &entry;
    least = *fill;
  }
  if (best == nullptr) {
    const std::string wanted = diversion.other_plane       ? "over another NIC"
                               : diversion.through.empty() ? "that avoids what is suspected"
                                                           : Concat("over ", diversion.through);
    return absl::UnavailableError(
        Concat("there is no other path ", wanted, " that is up and of which a free source port is known"));
  }
  if (least > diversion.most_fill) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("it would overload the network: of %d other %s the best would be promised %.2f times "
                        "what it carries (%.2f "
                        "is the most)",
                        others, others == 1 ? "path" : "paths", least, diversion.most_fill));
  }
  const Former former = {pair.end, pair.advised_port, pair.place};
  const Place to = {best->first.first, best->first.second};
  C4_RETURN_IF_NOT_OK(allocator_.Account(connection.number, ref.index, to));
  SetPort(&connection, ref.index, best->second.front().end, best->second.front().port);
  pair.place = to;
  return former;
}

void PathBook::Undo(const PairRef& ref, const Former& former) {
  const auto found = connections_.find(ref.connection);
  if (found == connections_.end() || ref.index >= found->second.pairs.size()) return;
  Connection& connection = found->second;
  SetPort(&connection, ref.index, former.end, former.port);
  connection.pairs[ref.index].place = former.place;
  (void)allocator_.Account(connection.number, ref.index, former.place);
}

absl::Status PathBook::Return(const PairRef& ref, Place diverted, Place former, int64_t now_ns) {
  const auto found = connections_.find(ref.connection);
  if (found == connections_.end() || ref.index >= found->second.pairs.size()) {
    return absl::NotFoundError("it is closed");
  }
  Connection& connection = found->second;
  QueuePair& pair = connection.pairs[ref.index];
  if (!(pair.place == diverted))
    return absl::FailedPreconditionError("it was moved for another reason since");
  if (connection.session == 0) return absl::FailedPreconditionError("its agent is away");
  if (!allocator_.FillWith(connection.number, ref.index, former)) {
    return absl::UnavailableError("the way that it had is down");
  }
  // Not the port that it had: a connection from there may still be dying.
  const Offer offer = OfferOf(connection, now_ns);
  const auto ports = offer.find({former.plane, former.way});
  if (ports == offer.end() || ports->second.empty()) {
    return absl::UnavailableError("no free source port leads the way that it had");
  }
  C4_RETURN_IF_NOT_OK(allocator_.Account(connection.number, ref.index, former));
  SetPort(&connection, ref.index, ports->second.back().end, ports->second.back().port);
  pair.place = former;
  return absl::OkStatus();
}

Advice PathBook::Announce(const std::string& name, int64_t now_ns) {
  Connection& connection = connections_.at(name);
  ++connection.epoch;
  Changed(connection);
  return {connection.session, AnswerFor(connection, now_ns)};
}

}  // namespace c4::c4p
