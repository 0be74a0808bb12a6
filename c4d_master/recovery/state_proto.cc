#include "c4d_master/recovery/state_proto.h"

#include "c4/v1/c4d.pb.h"

namespace c4::c4d::recovery {
namespace {

// Enumerators of the model have the numbers of the message's.
static_assert(static_cast<int>(NodeState::kGone) == v1::RECOVERY_NODE_STATE_GONE);
static_assert(static_cast<int>(Phase::kDropped) == v1::RECOVERY_PHASE_DROPPED);
static_assert(kLostNode == v1::SYNDROME_LOST_NODE);
static_assert(static_cast<int>(Hold::kBusy) == v1::RECOVERY_HOLD_BUSY);
static_assert(static_cast<int>(Command::Kind::kGiveBack) == v1::RECOVERY_COMMAND_KIND_GIVE_BACK);

void Fill(const std::string& name, const Node& node, v1::RecoveryNode* message) {
  message->set_name(name);
  message->set_state(static_cast<v1::RecoveryNodeState>(node.state));
  message->set_in_use(node.in_use);
  message->set_automated(node.automated);
  message->set_held(node.held);
  message->set_wanted_back(node.wanted_back);
  message->set_checked(node.checked);
  message->set_incident(node.incident);
  message->set_last_command(node.last_command);
  message->set_since_unix_ns(node.since_ns);
  message->set_immune_until_unix_ns(node.immune_until_ns);
  for (const auto& item : node.strikes_ns) message->add_strikes_unix_ns(item);
  message->set_why(node.why);
}

Node NodeOf(const v1::RecoveryNode& message) {
  Node node;
  node.state = static_cast<NodeState>(message.state());
  node.in_use = message.in_use();
  node.automated = message.automated();
  node.held = message.held();
  node.wanted_back = message.wanted_back();
  node.checked = message.checked();
  node.incident = message.incident();
  node.last_command = message.last_command();
  node.since_ns = message.since_unix_ns();
  node.immune_until_ns = message.immune_until_unix_ns();
  node.strikes_ns.assign(message.strikes_unix_ns().begin(), message.strikes_unix_ns().end());
  node.why = message.why();
  return node;
}

void Fill(const Command& command, v1::RecoveryCommand* message) {
  message->set_id(command.id);
  message->set_kind(static_cast<v1::RecoveryCommandKind>(command.kind));
  message->set_incident(command.incident);
  message->set_node(command.node);
  for (const auto& item : command.exclude) message->add_exclude(item);
  message->set_from(command.from);
  message->set_to(command.to);
  message->set_reason(command.reason);
  message->set_attempt(command.attempt);
  message->set_deadline_unix_ns(command.deadline_ns);
  for (const Command::Replacement& replacement : command.replace) {
    v1::RecoveryReplacement* item = message->add_replace();
    item->set_node(replacement.node);
    item->set_backup(replacement.backup);
  }
}

Command CommandOf(const v1::RecoveryCommand& message) {
  Command command;
  command.id = message.id();
  command.kind = static_cast<Command::Kind>(message.kind());
  command.incident = message.incident();
  command.node = message.node();
  command.exclude.assign(message.exclude().begin(), message.exclude().end());
  command.from = message.from();
  command.to = message.to();
  command.reason = message.reason();
  command.attempt = message.attempt();
  command.deadline_ns = message.deadline_unix_ns();
  for (const v1::RecoveryReplacement& item : message.replace()) {
    command.replace.push_back({item.node(), item.backup()});
  }
  return command;
}

Incident IncidentOf(const v1::RecoveryIncident& message) {
  Incident incident;
  incident.id = message.id();
  incident.verdicts.assign(message.verdicts().begin(), message.verdicts().end());
  incident.syndrome = message.syndrome();
  incident.open.assign(message.open().begin(), message.open().end());
  incident.phase = static_cast<Phase>(message.phase());
  incident.hold = static_cast<Hold>(message.hold());
  incident.approved = message.approved();
  incident.by = message.by();
  incident.reason = message.reason();
  incident.from = message.from();
  incident.round = message.round();
  incident.deadline_ns = message.deadline_unix_ns();
  incident.last_seen_ns = message.last_seen_unix_ns();
  incident.onset_ns = message.onset_unix_ns();
  incident.confirmed_ns = message.confirmed_unix_ns();
  incident.admitted_ns = message.admitted_unix_ns();
  incident.isolated_ns = message.isolated_unix_ns();
  incident.restarted_ns = message.restarted_unix_ns();
  incident.running_ns = message.running_unix_ns();
  incident.ended_ns = message.ended_unix_ns();
  incident.checkpoint_ns = message.checkpoint_unix_ns();
  for (const v1::RecoveryIncidentNode& item : message.nodes()) {
    incident.nodes.push_back({item.name(), item.isolate(), item.done(), item.backup()});
  }
  return incident;
}

}  // namespace

v1::RecoveryIncident ToProto(const Incident& incident) {
  v1::RecoveryIncident message;
  message.set_id(incident.id);
  for (const auto& item : incident.verdicts) message.add_verdicts(item);
  message.set_syndrome(incident.syndrome);
  for (const auto& item : incident.open) message.add_open(item);
  message.set_phase(static_cast<v1::RecoveryPhase>(incident.phase));
  message.set_hold(static_cast<v1::RecoveryHold>(incident.hold));
  message.set_approved(incident.approved);
  message.set_by(incident.by);
  message.set_reason(incident.reason);
  message.set_from(incident.from);
  message.set_round(incident.round);
  message.set_deadline_unix_ns(incident.deadline_ns);
  message.set_last_seen_unix_ns(incident.last_seen_ns);
  message.set_onset_unix_ns(incident.onset_ns);
  message.set_confirmed_unix_ns(incident.confirmed_ns);
  message.set_admitted_unix_ns(incident.admitted_ns);
  message.set_isolated_unix_ns(incident.isolated_ns);
  message.set_restarted_unix_ns(incident.restarted_ns);
  message.set_running_unix_ns(incident.running_ns);
  message.set_ended_unix_ns(incident.ended_ns);
  message.set_checkpoint_unix_ns(incident.checkpoint_ns);
  for (const IncidentNode& node : incident.nodes) {
    v1::RecoveryIncidentNode* item = message.add_nodes();
    item->set_name(node.name);
    item->set_isolate(node.isolate);
    item->set_done(node.done);
    item->set_backup(node.backup);
  }
  return message;
}

v1::RecoveryState ToProto(const State& state) {
  v1::RecoveryState message;
  message.set_next_incident(state.next_incident);
  message.set_next_command(state.next_command);
  message.set_incarnation(state.incarnation);
  message.set_highest_asked(state.highest_asked);
  message.set_restarted_unix_ns(state.restarted_ns);
  for (const auto& item : state.handled) message.add_handled(item);
  for (const auto& item : state.isolations_ns) message.add_isolations_unix_ns(item);
  for (const auto& item : state.restarts_ns) message.add_restarts_unix_ns(item);
  for (const auto& [name, node] : state.nodes) Fill(name, node, message.add_nodes());
  for (const Incident& incident : state.incidents) *message.add_incidents() = ToProto(incident);
  if (state.in_flight.has_value()) Fill(*state.in_flight, message.mutable_in_flight());
  return message;
}

State FromProto(const v1::RecoveryState& message) {
  State state;
  state.next_incident = message.next_incident();
  state.next_command = message.next_command();
  state.incarnation = message.incarnation();
  state.highest_asked = message.highest_asked();
  state.restarted_ns = message.restarted_unix_ns();
  state.handled.assign(message.handled().begin(), message.handled().end());
  state.isolations_ns.assign(message.isolations_unix_ns().begin(), message.isolations_unix_ns().end());
  state.restarts_ns.assign(message.restarts_unix_ns().begin(), message.restarts_unix_ns().end());
  for (const v1::RecoveryNode& node : message.nodes()) state.nodes[node.name()] = NodeOf(node);
  for (const v1::RecoveryIncident& incident : message.incidents())
    state.incidents.push_back(IncidentOf(incident));
  if (message.has_in_flight()) state.in_flight = CommandOf(message.in_flight());
  return state;
}

}  // namespace c4::c4d::recovery
