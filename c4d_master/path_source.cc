#include "c4d_master/path_source.h"

#include <algorithm>
#include <chrono>
#include <grpcpp/grpcpp.h>
#include <pthread.h>

#include "c4/v1/c4p.grpc.pb.h"
#include "c4d_master/tuple_text.h"
#include "service/channel.h"
#include "service/clock.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using std::chrono::milliseconds;

// What an answer may hold at most; more is no path.
constexpr int kMaxLinks = 64;
constexpr size_t kMaxLinkBytes = 256;

int64_t NowMs() {
  return service::SystemClock().MonotonicNs() / 1'000'000;
}

std::string TupleOf(const std::string& source, const std::string& destination) {
  return service::Concat(source, " ", destination);
}

bool FillFrom(const std::string& text, v1::FiveTuple* tuple) {
  const std::string_view view = text;
  const size_t space = view.find(' ');
  return FillTuple(view.substr(0, space), view.substr(space + 1), tuple);
}

std::shared_ptr<const LinkPath> PathOf(const v1::ResolvedPath& resolved) {
  if (!resolved.known() || resolved.links().empty() || resolved.links_size() > kMaxLinks) return nullptr;
  for (const std::string& link : resolved.links()) {
    if (link.empty() || link.size() > kMaxLinkBytes) return nullptr;
  }
  return std::make_shared<const LinkPath>(resolved.links().begin(), resolved.links().end());
}

}  // namespace

struct GrpcPathSource::Connection {
  service::MasterAddress master;
  std::unique_ptr<v1::C4p::Stub> stub;
  bool reported = false;  // that it does not answer
};

GrpcPathSource::GrpcPathSource(Options options) : options_(std::move(options)), thread_([this] { Run(); }) {}

GrpcPathSource::~GrpcPathSource() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (call_ != nullptr) call_->TryCancel();
  }
  wake_.notify_all();
  thread_.join();
}

std::shared_ptr<const LinkPath> GrpcPathSource::Find(const std::string& source,
                                                     const std::string& destination) {
  if (source.empty() || destination.empty()) return nullptr;
  const int64_t now_ms = NowMs();
  const std::lock_guard lock(mutex_);
  const Tuple tuple = TupleOf(source, destination);
  auto it = entries_.find(tuple);
  if (it == entries_.end()) {
    if (entries_.size() >= options_.most_tuples) {
      if (left_out_++ == 0) {
        service::LogWarning(
            "the paths of ", options_.most_tuples,
            " connections are kept, which are the most: those of more are not known, and links are "
            "told by the others alone");
      }
      return nullptr;
    }
    it = entries_.emplace(tuple, Entry{}).first;
    Schedule(tuple, &it->second, now_ms);
  }
  it->second.wanted_ms = now_ms;
  return it->second.path;
}

size_t GrpcPathSource::known() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(entries_.begin(), entries_.end(),
                                           [](const auto& entry) { return entry.second.path != nullptr; }));
}

uint64_t GrpcPathSource::left_out() const {
  const std::lock_guard lock(mutex_);
  return left_out_;
}

size_t GrpcPathSource::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

void GrpcPathSource::Schedule(const Tuple& tuple, Entry* entry, int64_t at_ms) {
  schedule_.erase({entry->ask_next_ms, tuple});
  entry->ask_next_ms = at_ms;
  schedule_.insert({at_ms, tuple});
}

std::vector<GrpcPathSource::Tuple> GrpcPathSource::Due(int64_t now_ms) const {
  std::vector<Tuple> due;
  for (const auto& [at_ms, tuple] : schedule_) {
    if (at_ms > now_ms || due.size() == options_.batch) break;
    due.push_back(tuple);
  }
  return due;
}

void GrpcPathSource::Forget(int64_t now_ms) {
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (now_ms - it->second.wanted_ms > options_.forget_after_ms) {
      schedule_.erase({it->second.ask_next_ms, it->first});
      it = entries_.erase(it);
    } else {
      ++it;
    }
  }
}

absl::Status GrpcPathSource::Ask(const std::vector<Tuple>& tuples, Connection* connection) {
  v1::ResolvePathsRequest request;
  for (const Tuple& tuple : tuples) {
    v1::FiveTuple five;
    if (FillFrom(tuple, &five)) *request.add_tuples() = std::move(five);
  }
  v1::ResolvePathsReply reply;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + milliseconds(options_.call_limit_ms));
  options_.credentials.AddToken(&context, connection->master);
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return absl::CancelledError("ending");
    call_ = &context;
  }
  const bool asks = !request.tuples().empty();
  const grpc::Status status =
      asks ? connection->stub->ResolvePaths(&context, request, &reply) : grpc::Status::OK;
  std::unordered_map<Tuple, std::shared_ptr<const LinkPath>> paths;
  for (const v1::ResolvedPath& resolved : reply.paths()) {
    paths[TupleOf(SourceText(resolved.tuple()), DestinationText(resolved.tuple()))] = PathOf(resolved);
  }
  const int64_t now_ms = NowMs();
  const std::lock_guard lock(mutex_);
  call_ = nullptr;
  if (!status.ok()) return absl::UnavailableError(status.error_message());
  // A new master may have learnt other paths.
  if (asks && master_epoch_ != 0 && reply.master_epoch() != master_epoch_) {
    for (auto& [tuple, entry] : entries_) Schedule(tuple, &entry, std::min(entry.ask_next_ms, now_ms));
  }
  if (asks) master_epoch_ = reply.master_epoch();
  for (const Tuple& tuple : tuples) {
    const auto entry = entries_.find(tuple);
    if (entry == entries_.end()) continue;
    const auto found = paths.find(tuple);
    const bool known = found != paths.end() && found->second != nullptr;
    // What C4P no longer knows may still be true; what it says anew is.
    if (known) entry->second.path = found->second;
    Schedule(tuple, &entry->second, now_ms + (known ? options_.known_for_ms : options_.ask_again_ms));
  }
  return absl::OkStatus();
}

void GrpcPathSource::Run() {
  pthread_setname_np(pthread_self(), "c4d-paths");
  Connection connection;
  int64_t not_before_ms = 0;
  int64_t forgotten_ms = NowMs();
  bool was_there = false;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const int64_t now_ms = NowMs();
    if (now_ms - forgotten_ms > options_.forget_after_ms / 4) {
      forgotten_ms = now_ms;
      Forget(now_ms);
    }
    const std::vector<Tuple> due = now_ms < not_before_ms ? std::vector<Tuple>() : Due(now_ms);
    if (due.empty()) {
      wake_.wait_for(lock, milliseconds(options_.look_every_ms), [this] { return stopping_; });
      continue;
    }
    lock.unlock();
    absl::Status status;
    const absl::StatusOr<service::MasterAddress> master = options_.address();
    if (!master.ok()) {
      status = master.status();  // there is none: nothing to complain of
      connection = {};
    } else {
      const std::string& address = master->address;
      if (address != connection.master.address) {
        connection = {
            *master,
            v1::C4p::NewStub(service::MakeChannel(address, options_.credentials, service::Role::kPathMaster)),
            false};
      }
      connection.master = *master;
      status = Ask(due, &connection);
      if (status.ok() && !std::exchange(was_there, true)) {
        service::LogInfo("C4P at ", address, " tells the paths of connections: links can be named");
      }
      if (!status.ok() && !absl::IsCancelled(status) && !std::exchange(connection.reported, true)) {
        service::LogWarning("C4P at ", address, " does not answer (", status.message(),
                            "): connections are named where a link could be, until it does");
      }
    }
    lock.lock();
    if (!status.ok()) not_before_ms = NowMs() + options_.retry_ms;
  }
}

}  // namespace c4::c4d
