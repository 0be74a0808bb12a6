#include "page/fleet.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "service/text.h"
#include "service/verdict_json.h"
#include "service/version.h"

namespace c4::page {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kOpenEveryNs = 900'000'000;
constexpr int64_t kStatusEveryNs = 3 * kSecondNs;
constexpr int64_t kAllEveryNs = 10 * kSecondNs;
constexpr int64_t kSilentForNs = 5 * kSecondNs;
constexpr int64_t kEndedEveryNs = 600 * kSecondNs;

bool IsOpenVerdict(const v1::Verdict& verdict) {
  return verdict.state() != v1::VERDICT_STATE_CLEARED;
}

// The earlier, the more urgent.
auto Urgency(const v1::Verdict& verdict) {
  const int state = verdict.state() == v1::VERDICT_STATE_CONFIRMED   ? 0
                    : verdict.state() == v1::VERDICT_STATE_SUSPECTED ? 1
                                                                     : 2;
  return std::make_tuple(state, -verdict.since_unix_ns(), verdict.id());
}

// Names of what is to blame that outlives its job: a node, a NIC, a cable.
std::vector<std::pair<v1::CulpritKind, std::string>> LastingNames(const v1::Culprit& culprit) {
  std::vector<std::pair<v1::CulpritKind, std::string>> names;
  switch (culprit.kind()) {
    case v1::CULPRIT_KIND_RANK:
    case v1::CULPRIT_KIND_NODE:
      if (!culprit.host().empty()) names.emplace_back(v1::CULPRIT_KIND_NODE, culprit.host());
      break;
    case v1::CULPRIT_KIND_NIC:
      if (!culprit.nic().empty()) {
        names.emplace_back(v1::CULPRIT_KIND_NIC, service::Concat(culprit.nic(), " of ", culprit.host()));
      }
      break;
    case v1::CULPRIT_KIND_LINK:
      if (!culprit.cable().empty()) names.emplace_back(v1::CULPRIT_KIND_LINK, culprit.cable());
      break;
    default:
      break;
  }
  return names;
}

}  // namespace

std::vector<v1::PageOffender> OffendersOf(const std::map<std::string, v1::ListVerdictsReply>& by_job) {
  std::map<std::pair<v1::CulpritKind, std::string>, v1::PageOffender> found;
  for (const auto& [id, reply] : by_job) {
    for (const v1::Verdict& verdict : reply.verdicts()) {
      // What was only ever suspected is nobody's record.
      if (verdict.confirmed_unix_ns() == 0) continue;
      for (const auto& name : LastingNames(verdict.culprit())) {
        v1::PageOffender& offender = found[name];
        offender.set_kind(name.first);
        offender.set_name(name.second);
        offender.set_verdicts(offender.verdicts() + 1);
        const auto& ids = offender.job_ids();
        if (std::find(ids.begin(), ids.end(), id) == ids.end()) offender.add_job_ids(id);
        offender.set_newest_unix_ns(std::max(offender.newest_unix_ns(), verdict.since_unix_ns()));
      }
    }
  }
  std::vector<v1::PageOffender> offenders;
  for (auto& [name, offender] : found) {
    if (offender.verdicts() > 1) offenders.push_back(std::move(offender));
  }
  std::stable_sort(offenders.begin(), offenders.end(),
                   [](const auto& a, const auto& b) { return a.verdicts() > b.verdicts(); });
  if (offenders.size() > kMostOffenders) offenders.resize(kMostOffenders);
  return offenders;
}

v1::PageVerdict DescribeVerdict(const std::string& job_id, const v1::Verdict& verdict) {
  v1::PageVerdict described;
  described.set_job_id(job_id);
  *described.mutable_verdict() = verdict;
  described.set_sentence(service::VerdictHead(verdict));
  described.set_waiting(service::WaitingText(verdict));
  return described;
}

v1::PageVerdicts DescribeVerdicts(const std::string& job_id, const v1::ListVerdictsReply& reply,
                                  int64_t unix_ns, int most) {
  v1::PageVerdicts page;
  page.set_job(reply.job());
  page.set_master_epoch(reply.master_epoch());
  page.set_unix_ns(unix_ns);
  if (reply.has_agents()) page.set_agents(reply.agents());
  page.set_processes_unwatched(reply.processes_unwatched());
  page.set_unwatched_why(reply.unwatched_why());
  std::vector<const v1::Verdict*> order;
  for (const v1::Verdict& verdict : reply.verdicts()) order.push_back(&verdict);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return Urgency(*a) < Urgency(*b); });
  for (const v1::Verdict* verdict : order) {
    if (page.verdicts_size() >= most) {
      page.set_left_out(page.left_out() + 1);
    } else {
      *page.add_verdicts() = DescribeVerdict(job_id, *verdict);
    }
  }
  return page;
}

Fleet::Fleet(FleetSource* source) : source_(source) {
  view_.fleet = std::make_shared<v1::PageFleet>();
}

void Fleet::AskOpen(Known* known, const Moment& now) {
  v1::PageJob& job = known->job;
  absl::StatusOr<v1::ListVerdictsReply> open = source_->Verdicts({.id = job.id()}, false);
  known->open_ns = now.monotonic_ns;
  if (!open.ok()) {
    job.set_trouble(std::string(open.status().message()));
    if (job.state() == v1::PAGE_JOB_STATE_RUNNING) job.set_state(v1::PAGE_JOB_STATE_SILENT);
    known->again_ns = now.monotonic_ns + kSilentForNs;
    return;
  }
  known->open = *std::move(open);
  job.clear_trouble();
  if (job.state() == v1::PAGE_JOB_STATE_SILENT) job.set_state(v1::PAGE_JOB_STATE_RUNNING);
  job.set_heard_unix_ns(now.unix_ns);
  uint32_t confirmed = 0, suspected = 0;
  std::string digest;
  for (const v1::Verdict& verdict : known->open.verdicts()) {
    if (verdict.state() == v1::VERDICT_STATE_CONFIRMED) ++confirmed;
    if (verdict.state() == v1::VERDICT_STATE_SUSPECTED) ++suspected;
    digest +=
        service::Concat(verdict.id(), " ", static_cast<int>(verdict.state()), " ", verdict.evidence_size(),
                        " ", verdict.waiting_size(), " ", verdict.interventions_size(), "\n");
  }
  job.set_confirmed(confirmed);
  job.set_suspected(suspected);
  if (digest != known->digest) {
    known->digest = digest;
    job.set_revision(job.revision() + 1);
    known->all_ns = 0;  // what is cleared changed as well
  }
}

void Fleet::AskRest(Known* known, const Moment& now) {
  v1::PageJob& job = known->job;
  const bool over = job.state() == v1::PAGE_JOB_STATE_ENDED || job.state() == v1::PAGE_JOB_STATE_RECORDED;
  const int64_t all_every_ns = over ? kEndedEveryNs : kAllEveryNs;
  if (known->all_ns == 0 || now.monotonic_ns - known->all_ns >= all_every_ns) {
    absl::StatusOr<v1::ListVerdictsReply> all = source_->Verdicts({.id = job.id()}, true);
    known->all_ns = now.monotonic_ns;
    if (all.ok()) {
      known->all = *std::move(all);
      double lost_s = 0;
      for (const v1::Verdict& verdict : known->all.verdicts()) lost_s += verdict.fail_slow().lost_rank_s();
      job.set_lost_rank_seconds(lost_s);
    }
  }
  if (job.state() == v1::PAGE_JOB_STATE_ENDED) return;  // its ranks stand in its record
  if (known->status_ns != 0 && now.monotonic_ns - known->status_ns < (over ? kEndedEveryNs : kStatusEveryNs))
    return;
  const absl::StatusOr<v1::GetStatusReply> status = source_->Status({.id = job.id()});
  known->status_ns = now.monotonic_ns;
  if (!status.ok()) return;
  std::set<std::string> hosts;
  for (const v1::RankStatus& rank : status->ranks()) hosts.insert(rank.process().host());
  for (const v1::AgentStatus& agent : status->agents()) hosts.insert(agent.host());
  job.set_ranks(static_cast<uint32_t>(status->ranks_size()));
  job.set_hosts(static_cast<uint32_t>(hosts.size()));
}

void Fleet::Refresh(const Moment& now) {
  std::vector<std::string> notes;
  const std::vector<v1::PageJob> jobs = source_->Jobs(&notes);
  std::set<std::string> there;
  for (const v1::PageJob& job : jobs) {
    there.insert(job.id());
    Known& known = known_[job.id()];
    // A master that was started again knows another history, and a job that ended has none any more.
    if (known.job.id().empty() || known.job.master_epoch() != job.master_epoch() ||
        (job.state() == v1::PAGE_JOB_STATE_ENDED) != (known.job.state() == v1::PAGE_JOB_STATE_ENDED)) {
      const uint64_t revision = known.job.revision();
      known = Known();
      known.job = job;
      known.job.set_revision(revision + 1);
    }
    if (now.monotonic_ns < known.again_ns) continue;
    const bool over = job.state() == v1::PAGE_JOB_STATE_ENDED || job.state() == v1::PAGE_JOB_STATE_RECORDED;
    if (known.open_ns == 0 || (!over && now.monotonic_ns - known.open_ns >= kOpenEveryNs))
      AskOpen(&known, now);
    if (known.job.trouble().empty() || over) AskRest(&known, now);
  }
  std::erase_if(known_, [&](const auto& entry) { return !there.contains(entry.first); });

  auto fleet = std::make_shared<v1::PageFleet>(Tell(now, notes));
  v1::PageFleet timeless = *fleet;
  timeless.clear_unix_ns();
  for (v1::PageJob& job : *timeless.mutable_jobs()) job.clear_heard_unix_ns();
  std::string told = timeless.SerializeAsString();
  const std::lock_guard lock(mutex_);
  if (told != told_ || view_.number == 0) {
    ++view_.number;
    told_ = std::move(told);
  }
  view_.fleet = std::move(fleet);
}

v1::PageFleet Fleet::Tell(const Moment& now, const std::vector<std::string>& notes) {
  v1::PageFleet fleet;
  fleet.set_unix_ns(now.unix_ns);
  fleet.set_version(std::string(service::Version()));
  fleet.set_path_master(source_->HasPathMaster());
  fleet.set_server(source_->Server());
  fleet.set_most_recording_bytes(most_recording_bytes_);
  for (const std::string& note : notes) fleet.add_notes(note);
  std::vector<const v1::PageJob*> jobs;
  std::vector<std::pair<const v1::Verdict*, std::string>> open;
  std::map<std::string, v1::ListVerdictsReply> all;
  for (const auto& [id, known] : known_) {
    jobs.push_back(&known.job);
    all[id] = known.all;
    // What was open when a job ended is history, and the open ones of a silent master are not sure any more.
    if (known.job.state() == v1::PAGE_JOB_STATE_ENDED) continue;
    for (const v1::Verdict& verdict : known.open.verdicts()) {
      if (IsOpenVerdict(verdict)) open.emplace_back(&verdict, id);
    }
  }
  const auto order = [](const v1::PageJob& job) {
    const bool ended = job.state() == v1::PAGE_JOB_STATE_ENDED;
    const int trouble = ended ? 3 : job.confirmed() > 0 ? 0 : job.suspected() > 0 ? 1 : 2;
    return std::make_tuple(trouble, -job.began_unix_ns(), job.id());
  };
  std::sort(jobs.begin(), jobs.end(), [&](const auto* a, const auto* b) { return order(*a) < order(*b); });
  for (const v1::PageJob* job : jobs) *fleet.add_jobs() = *job;
  std::sort(open.begin(), open.end(),
            [](const auto& a, const auto& b) { return Urgency(*a.first) < Urgency(*b.first); });
  for (const auto& [verdict, id] : open) {
    if (fleet.open_size() >= kMostOpen) {
      fleet.set_open_left_out(fleet.open_left_out() + 1);
    } else {
      *fleet.add_open() = DescribeVerdict(id, *verdict);
    }
  }
  for (v1::PageOffender& offender : OffendersOf(all)) *fleet.add_offenders() = std::move(offender);
  return fleet;
}

Fleet::View Fleet::Look() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

v1::PageFleet Fleet::OfOneJob(const v1::PageFleet& fleet, const std::string& job) {
  v1::PageFleet result;
  result.set_unix_ns(fleet.unix_ns());
  result.set_version(fleet.version());
  result.set_server(fleet.server());
  std::set<std::string> ids;
  for (const v1::PageJob& entry : fleet.jobs()) {
    if (entry.job() != job) continue;
    *result.add_jobs() = entry;
    ids.insert(entry.id());
  }
  for (const v1::PageVerdict& verdict : fleet.open()) {
    if (ids.contains(verdict.job_id())) *result.add_open() = verdict;
  }
  return result;
}

}  // namespace c4::page
