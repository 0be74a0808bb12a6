#include "cli/launch/preflight_hub.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <netdb.h>
#include <poll.h>
#include <set>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "analysis/failslow/link_passes.h"
#include "c4d_master/validation/results.h"
#include "service/address.h"
#include "service/printable.h"

namespace c4::cli {
namespace {

constexpr size_t kMostMembers = 16384;
constexpr int kMostTesters = 64;  // of a process
constexpr size_t kLongestLine = tester::kLongestLine + 64;
constexpr absl::Duration kReadyLimit = absl::Seconds(30);
constexpr absl::Duration kAnswerLimit = absl::Seconds(3);
constexpr uint64_t kTransferBytes = uint64_t{1} << 40;  // the time ends it
constexpr uint32_t kStreams = 8;

std::string PeerAddress(int fd) {
  sockaddr_storage peer{};
  socklen_t bytes = sizeof peer;
  char host[NI_MAXHOST] = "";
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&peer), bytes, host, sizeof host, nullptr, 0, NI_NUMERICHOST) !=
          0) {
    return "";
  }
  std::string text = host;
  if (text.starts_with("::ffff:")) text.erase(0, 7);
  return text;
}

bool SendLine(int fd, const std::string& text) {
  const std::string line = text + "\n";
  return send(fd, line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
}

}  // namespace

PreflightHub::~PreflightHub() {
  for (const Member& member : members_) {
    if (member.fd >= 0) close(member.fd);
  }
  if (listener_ >= 0) close(listener_);
}

absl::Status PreflightHub::Listen() {
  const absl::StatusOr<service::HostPort> where = service::ParseHostPort(options_.rendezvous);
  if (!where.ok()) return where.status();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string port = absl::StrCat(where->port);
  if (getaddrinfo(where->host.c_str(), port.c_str(), &hints, &found) != 0 || found == nullptr) {
    return absl::UnavailableError(absl::StrCat("'", where->host, "' is no address of this machine"));
  }
  int error = 0;
  for (const addrinfo* at = found; at != nullptr && listener_ < 0; at = at->ai_next) {
    listener_ = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener_, at->ai_addr, at->ai_addrlen) == 0 && listen(listener_, 1024) == 0) break;
    error = errno;
    close(listener_);
    listener_ = -1;
  }
  freeaddrinfo(found);
  if (listener_ >= 0) {
    sockaddr_storage own{};
    socklen_t bytes = sizeof own;
    char service[NI_MAXSERV] = "0";
    getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &bytes);
    getnameinfo(reinterpret_cast<sockaddr*>(&own), bytes, nullptr, 0, service, sizeof service,
                NI_NUMERICSERV);
    address_ = service::JoinHostPort(where->host, static_cast<uint16_t>(atoi(service)));
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("rank 0 cannot listen on ", options_.rendezvous, ": ", strerror(error),
                   ": give --rendezvous an address of the machine of rank 0, and a port "
                   "that is free"));
}

template <typename IsOver>
void PreflightHub::Hear(absl::Duration limit, const IsOver& is_over) {
  const absl::Time end = absl::Now() + limit;
  std::vector<pollfd> entries;
  while (!is_over() && absl::Now() < end) {
    entries.assign(1, {members_.size() < kMostMembers ? listener_ : -1, POLLIN, 0});
    for (const Member& member : members_) entries.push_back({member.fd, POLLIN, 0});
    poll(entries.data(), entries.size(), static_cast<int>(absl::ToInt64Milliseconds(end - absl::Now())) + 1);
    for (size_t i = 1; i < entries.size(); ++i) {
      if (entries[i].revents != 0 && !Read(i - 1)) Leave(i - 1);
    }
    if (entries[0].revents != 0) Accept();
  }
}

void PreflightHub::Accept() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return;
  Member& member = members_.emplace_back();
  member.fd = fd;
  member.address = PeerAddress(fd);
}

bool PreflightHub::Read(size_t member) {
  char piece[4096];
  const ssize_t bytes = recv(members_[member].fd, piece, sizeof piece, MSG_DONTWAIT);
  if (bytes < 0) return errno == EAGAIN || errno == EINTR;
  if (bytes == 0) return false;
  std::string& line = members_[member].line;
  line.append(piece, static_cast<size_t>(bytes));
  for (size_t end = 0; (end = line.find('\n')) != std::string::npos; line.erase(0, end + 1)) {
    if (!Take(member, line.substr(0, end))) return false;
  }
  return line.size() <= kLongestLine;
}

// False: it is no member of ours.
bool PreflightHub::Take(size_t member, const std::string& line) {
  if (members_[member].rank < 0) return Join(member, line);
  const size_t blank = line.find(' ');
  int number = 0;
  if (blank == std::string::npos || !absl::SimpleAtoi(line.substr(0, blank), &number)) return false;
  const absl::StatusOr<tester::Answer> answer = tester::ParseAnswer(line.substr(blank + 1));
  const TesterKey key = {members_[member].rank, number};
  if (!answer.ok() || !testers_.contains(key)) return false;
  TakeAnswer(key, *answer);
  return true;
}

bool PreflightHub::Join(size_t place, const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  Member& member = members_[place];
  int rank = -1;
  if (words.size() != 4 || words[0] != "join" || !absl::SimpleAtoi(words[1], &rank) || rank < 0 ||
      rank >= options_.ranks || !absl::SimpleAtoi(words[2], &member.testers) || member.testers < 1 ||
      member.testers > kMostTesters || testers_.contains({rank, 0})) {
    return false;
  }
  member.rank = rank;
  member.host = service::Printable(words[3].substr(0, 255));
  for (int number = 0; number < member.testers; ++number) {
    Tester& tester = testers_[{rank, number}];
    tester.member = static_cast<int>(place);
  }
  return true;
}

void PreflightHub::TakeAnswer(const TesterKey& key, const tester::Answer& answer) {
  Tester& tester = testers_.at(key);
  v1::ValidatedDevice* const device =
      tester.device < 0 ? nullptr : validation_.mutable_devices(tester.device);
  if (const auto* ready = std::get_if<tester::Ready>(&answer)) {
    tester.port = ready->port;
    tester.stands = true;
    tester.name = service::Printable(ready->device);
  } else if (const auto* fault = std::get_if<tester::Fault>(&answer)) {
    if (tester.fault.empty()) tester.fault = service::Printable(fault->sentence);
    if (device != nullptr && !tester.tested) device->set_fault(tester.fault);
    tester.stands = tester.tested = true;
    tester.port = 0;
  } else if (const auto* figures = std::get_if<tester::DeviceFigures>(&answer)) {
    tester.tested = true;
    if (device == nullptr) return;
    device->set_fault(service::Printable(figures->fault));
    for (const auto& [test, gflops] : figures->gflops) {
      v1::DeviceFigure* const figure = device->add_figures();
      figure->set_test(service::Printable(test));
      figure->set_gflops(gflops);
    }
  } else if (const auto* moved = std::get_if<tester::TransferFigures>(&answer)) {
    const auto found = transfers_.find(moved->number);
    if (found == transfers_.end()) return;
    v1::ValidatedLink* const link = validation_.mutable_links(static_cast<int>(found->second));
    transfers_.erase(found);
    c4d::TakeTransfer(moved->fault, moved->stream_mib_s, link);
  }
}

void PreflightHub::Leave(size_t place) {
  Member& member = members_[place];
  close(member.fd);
  member.fd = -1;
  if (member.rank < 0) return;
  for (int number = 0; number < member.testers; ++number) {
    TakeAnswer({member.rank, number}, tester::Fault{"its process has left"});
  }
}

void PreflightHub::Order(const TesterKey& key, const tester::Order& order) {
  const Tester& tester = testers_.at(key);
  if (tester.member < 0) return;
  const int fd = members_[static_cast<size_t>(tester.member)].fd;
  if (fd >= 0) SendLine(fd, absl::StrCat(key.second, " ", tester::ToLine(order)));
}

void PreflightHub::TestDevices() {
  const auto ms = static_cast<uint32_t>(options_.device_s * 1000);
  for (auto& [key, tester] : testers_) {
    if (tester.tested || tester.device < 0) continue;
    if (tester.port != 0) Order(key, tester::DeviceOrder{ms});
  }
  const auto is_over = [this] {
    return std::all_of(testers_.begin(), testers_.end(), [](const auto& entry) {
      return entry.second.tested || entry.second.device < 0 || entry.second.port == 0;
    });
  };
  Hear(absl::Seconds(options_.device_s) * 4 + kAnswerLimit, is_over);
}

// Between machines, by their addresses: the first rank of each speaks for it.
void PreflightHub::PlanLinks() {
  std::vector<std::pair<TesterKey, std::string>> hosts;
  std::set<std::string> seen;
  for (const auto& [key, tester] : testers_) {
    if (tester.member < 0 || tester.port == 0) continue;
    const std::string& address = members_[static_cast<size_t>(tester.member)].address;
    if (!address.empty() && seen.insert(address).second) hosts.emplace_back(key, address);
  }
  const bool all_pairs = options_.all_pairs || hosts.size() <= kFewHosts;
  for (size_t a = 0; a < hosts.size(); ++a) {
    for (size_t b = 0; b < hosts.size(); ++b) {
      const bool next = (a + 1) % hosts.size() == b || (b + 1) % hosts.size() == a;
      if (a == b || !(all_pairs || next)) continue;
      links_.emplace_back(hosts[a].first, hosts[b].first);
      v1::ValidatedLink* const link = validation_.add_links();
      link->set_from_rank(hosts[a].first.first);
      link->set_to_rank(hosts[b].first.first);
      link->set_from(hosts[a].second);
      link->set_to(hosts[b].second);
      link->set_from_host(members_[static_cast<size_t>(testers_.at(hosts[a].first).member)].host);
      link->set_to_host(members_[static_cast<size_t>(testers_.at(hosts[b].first).member)].host);
      link->set_fault("its transfer did not end in time");
    }
  }
}

void PreflightHub::TestLinks() {
  std::map<std::string, uint32_t> numbers;
  std::vector<analysis::Link> links;
  for (const v1::ValidatedLink& link : validation_.links()) {
    const auto number = [&numbers](const std::string& address) {
      return numbers.try_emplace(address, static_cast<uint32_t>(numbers.size())).first->second;
    };
    links.push_back({number(link.from()), number(link.to())});
  }
  uint64_t next = 1;
  for (const std::vector<size_t>& pass : analysis::PlanLinkPasses(links).passes) {
    validation_.set_passes(validation_.passes() + 1);
    transfers_.clear();
    for (const size_t i : pass) {
      v1::ValidatedLink* const link = validation_.mutable_links(static_cast<int>(i));
      link->set_pass(validation_.passes());
      transfers_[next] = i;
      Order(links_[i].first,
            tester::TransferOrder{.number = next++,
                                  .from = link->from(),
                                  .to = service::JoinHostPort(
                                      link->to(), static_cast<uint16_t>(testers_.at(links_[i].second).port)),
                                  .bytes = kTransferBytes,
                                  .streams = kStreams,
                                  .ms = static_cast<uint32_t>(options_.transfer_s * 1000)});
    }
    Hear(absl::Seconds(options_.transfer_s) + kAnswerLimit, [this] { return transfers_.empty(); });
  }
}

v1::Validation PreflightHub::Run() {
  validation_.set_job("preflight");
  validation_.set_begun_unix_ns(absl::GetCurrentTimeNanos());
  validation_.set_processes(static_cast<uint32_t>(options_.ranks));
  const auto joined = [this] {
    return std::count_if(members_.begin(), members_.end(), [](const Member& m) { return m.rank >= 0; });
  };
  const auto all_stand = [this] {
    return std::all_of(testers_.begin(), testers_.end(),
                       [](const auto& entry) { return entry.second.stands; });
  };
  Hear(absl::Seconds(options_.join_s), [&] { return joined() >= options_.ranks; });
  const int64_t missing = options_.ranks - joined();
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (!testers_.contains({rank, 0})) testers_[{rank, 0}].stands = true;
  }
  Hear(kReadyLimit, all_stand);
  for (auto& [key, tester] : testers_) {
    if (options_.no_devices && tester.member >= 0 && tester.port != 0) continue;
    tester.device = validation_.devices_size();
    v1::ValidatedDevice* const device = validation_.add_devices();
    device->set_rank(key.first);
    if (tester.member >= 0) device->set_host(members_[static_cast<size_t>(tester.member)].host);
    device->set_device(tester.name);
    device->set_fault(!tester.fault.empty() ? tester.fault
                      : tester.member < 0   ? "it did not join"
                      : tester.port == 0    ? "its tester did not stand ready in time"
                                            : "its test did not end in time");
  }
  TestDevices();
  if (!options_.no_links) {
    PlanLinks();
    TestLinks();
  }
  c4d::FirstFigures first;
  c4d::Judge(&validation_, &first);
  validation_.set_state(missing > 0 ? v1::VALIDATION_STATE_GIVEN_UP : v1::VALIDATION_STATE_DONE);
  if (missing > 0)
    validation_.set_why(absl::StrCat(missing, " of ", options_.ranks, " ranks did not join in time"));
  validation_.set_ended_unix_ns(absl::GetCurrentTimeNanos());
  return validation_;
}

void PreflightHub::End(int exit_code) {
  for (const Member& member : members_) {
    if (member.fd >= 0) SendLine(member.fd, absl::StrCat("end ", exit_code));
  }
}

}  // namespace c4::cli
