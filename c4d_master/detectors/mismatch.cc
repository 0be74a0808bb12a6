#include <algorithm>
#include <map>
#include <utility>

#include "c4d_master/detectors/crash.h"
#include "c4d_master/detectors/hang_evidence.h"
#include "c4d_master/detectors/queue_pair_ends.h"
#include "c4d_master/operation_call.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using service::Concat;

struct Called {
  uint64_t number = 0;  // of the operation
  const Member* member = nullptr;
  const OperationInfo* info = nullptr;
};

// What the members say of the operations that they called or began last, by operation: each of them at most
// once of one. Only operations that somebody has yet to finish: what everybody has finished was no mismatch.
std::vector<Called> OpenCalls(const Communicator& communicator) {
  std::vector<uint64_t> open;
  std::vector<Called> calls;
  for (const Member& member : communicator.members) {
    const Membership& state = *member.state;
    const bool called = state.called.count > 0 && state.last_called.function != 0;
    if (called) calls.push_back({state.called.count - 1, &member, &state.last_called});
    const bool told = called && state.started.count == state.called.count;
    if (!told && state.started.count > 0 && state.last_started.function != 0) {
      calls.push_back({state.started.count - 1, &member, &state.last_started});
    }
    if (state.called.count > state.finished.count) open.push_back(state.called.count - 1);
    if (state.started.count > state.finished.count) open.push_back(state.started.count - 1);
  }
  std::sort(open.begin(), open.end());
  std::erase_if(
      calls, [&](const Called& call) { return !std::binary_search(open.begin(), open.end(), call.number); });
  std::stable_sort(calls.begin(), calls.end(),
                   [](const Called& a, const Called& b) { return a.number < b.number; });
  return calls;
}

Finding Describe(const JobSnapshot& snapshot, const Communicator& communicator, uint64_t number,
                 const std::map<Call, std::vector<Called>>& groups) {
  Finding finding;
  finding.syndrome = Syndrome::kMismatch;
  finding.communicator_id = communicator.id;
  finding.operation = number;
  finding.communicators.push_back(communicator.id);
  finding.since_at_ns = communicator.last_step_at_ns;
  finding.confidence = 0.99;
  finding.confirmed_by = "mismatch";
  for (const auto& [call, members] : groups) {
    std::vector<uint32_t> processes;
    for (const Called& called : members) processes.push_back(called.member->process);
    finding.evidence.push_back(
        {"call", Concat(service::RankListText(RanksOf(snapshot, processes)), " called ",
                        OperationText(*members.front().info), " as operation ", number, " of communicator ",
                        service::CommunicatorText(communicator.id))});
  }
  finding.suggested_action =
      "compare what these ranks pass to this call: function, count, data type, reduction and root have to be "
      "the same on all ranks of the communicator; then restart the job";
  return finding;
}

// More than half of those that have called, and at least two.
bool MostAgree(const std::map<Call, std::vector<Called>>& groups, size_t seen) {
  return std::any_of(groups.begin(), groups.end(), [&](const auto& group) {
    return group.second.size() >= 2 && 2 * group.second.size() > seen;
  });
}

// The only one of the calls that has gone well in this communicator before; nullptr when that does not tell.
const Call* UsualCall(const Communicator& communicator, const std::map<Call, std::vector<Called>>& groups) {
  if (communicator.usual_calls == nullptr) return nullptr;
  const Call* usual = nullptr;
  for (const auto& [call, members] : groups) {
    const bool known =
        std::any_of(communicator.usual_calls->begin(), communicator.usual_calls->end(),
                    [&call = call](const OperationInfo& info) { return CallOf(info) == call; });
    if (!known) continue;
    if (usual != nullptr) return nullptr;
    usual = &call;
  }
  return usual;
}

void DetectIn(const JobSnapshot& snapshot, const Communicator& communicator, std::vector<Finding>* findings) {
  if (!communicator.calls_may_differ) return;
  const std::vector<Called> calls = OpenCalls(communicator);
  for (auto first = calls.begin(); first != calls.end();) {
    const uint64_t number = first->number;
    const auto last =
        std::find_if(first, calls.end(), [&](const Called& call) { return call.number != number; });
    const auto begin = std::exchange(first, last);
    const Call one = CallOf(*begin->info);
    if (std::all_of(begin, last, [&](const Called& call) { return CallOf(*call.info) == one; })) continue;
    std::map<Call, std::vector<Called>> groups;
    for (auto call = begin; call != last; ++call) groups[CallOf(*call->info)].push_back(*call);
    const auto seen = static_cast<size_t>(last - begin);
    const auto largest = std::max_element(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
      return a.second.size() < b.second.size();
    });
    const Finding base = Describe(snapshot, communicator, number, groups);
    const Call* right = MostAgree(groups, seen) ? &largest->first : UsualCall(communicator, groups);
    if (right == nullptr) {
      // Who is right cannot be told; those who have yet to call may tell.
      Finding finding = base;
      finding.kind = CulpritKind::kAmbiguous;
      for (const auto& [call, members] : groups) {
        for (const Called& called : members) {
          finding.candidates.push_back(snapshot.processes[called.member->process].process->rank);
        }
      }
      std::sort(finding.candidates.begin(), finding.candidates.end());
      if (seen < communicator.members.size()) finding.confirmed_by.clear();
      findings->push_back(std::move(finding));
      return;
    }
    std::vector<uint32_t> majority;
    for (const Called& called : groups.at(*right)) majority.push_back(called.member->process);
    for (const auto& [call, members] : groups) {
      if (call == *right) continue;
      for (const Called& called : members) {
        Finding finding = base;
        FillProcess(snapshot.processes[called.member->process], &finding);
        finding.waiting = RanksOf(snapshot, majority);
        findings->push_back(std::move(finding));
      }
    }
    return;
  }
}

}  // namespace

std::vector<Finding> DetectMismatches(const JobSnapshot& snapshot) {
  std::vector<Finding> findings;
  for (const Communicator& communicator : snapshot.communicators) DetectIn(snapshot, communicator, &findings);
  if (!findings.empty()) return findings;
  for (const Communicator& communicator : snapshot.former) DetectIn(snapshot, communicator, &findings);
  return findings;
}

}  // namespace c4::c4d
