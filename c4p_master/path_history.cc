#include "c4p_master/path_history.h"

#include <utility>

namespace c4::c4p {

void PathHistory::Add(Event event) {
  events_.push_back(std::move(event));
  if (events_.size() <= kMost) return;
  events_.pop_front();
  ++forgotten_;
}

void PathHistory::Fill(const Event& event, int64_t now_ns, v1::PathEvent* to) {
  to->set_age_ns(now_ns - event.at_ns);
  to->set_kind(event.kind);
  to->set_cable(event.cable);
  to->set_job(event.job);
  to->set_connection(event.connection);
  to->set_queue_pair(event.queue_pair);
  for (const std::string& link : event.from) to->add_from_links(link);
  for (const std::string& link : event.to) to->add_to_links(link);
  to->set_why(event.why);
}

v1::ListPathHistoryReply PathHistory::List(const v1::ListPathHistoryRequest& request, int64_t now_ns) const {
  std::vector<const Event*> wanted;
  for (auto event = events_.rbegin(); event != events_.rend(); ++event) {
    if (request.most() > 0 && wanted.size() >= request.most()) break;
    if (!request.job().empty() && event->job != request.job()) continue;
    if (!request.connection().empty() && !event->connection.ends_with(request.connection())) continue;
    wanted.push_back(&*event);
  }
  v1::ListPathHistoryReply reply;
  for (auto event = wanted.rbegin(); event != wanted.rend(); ++event)
    Fill(**event, now_ns, reply.add_events());
  reply.set_forgotten(forgotten_);
  return reply;
}

}  // namespace c4::c4p
