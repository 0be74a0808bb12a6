#include "c4a/path_relay.h"

#include <algorithm>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <pthread.h>

#include "c4/v1/c4p.grpc.pb.h"
#include "c4a/path_messages.h"
#include "service/channel.h"
#include "service/clock.h"
#include "service/grpc_server.h"
#include "service/log.h"
#include "service/text.h"
#include "service/version.h"

namespace c4::agent {
namespace {

using service::Concat;

// Of messages that wait for a master that does not read.
constexpr size_t kLongestOutbox = 65536;
// Results go out in reports of so many, so that the master learns while the rest is under way.
constexpr int kReportResults = 64;

}  // namespace

PathRelay::PathRelay(PathRelayOptions options)
    : options_(std::move(options)),
      prober_(options_.prober,
              [this](uint64_t order, const ProbeResult& result, bool last) { Probed(order, result, last); }) {
}

absl::Status PathRelay::Start() {
  C4_RETURN_IF_NOT_OK(prober_.Start());
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

PathRelay::~PathRelay() {
  {
    const absl::MutexLock lock(&mutex_);
    stop_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  wake_.Notify();
  if (thread_.joinable()) thread_.join();
  prober_.Stop();
}

bool PathRelay::connected() const {
  const absl::MutexLock lock(&mutex_);
  return InSession() && welcome_;
}

size_t PathRelay::connections() const {
  const absl::MutexLock lock(&mutex_);
  return connections_.size();
}

void PathRelay::Ask(ControlClientId client, const ControlPeer& peer, const wire::ControlPathAsk& ask) {
  bool alone = false;
  {
    const absl::MutexLock lock(&mutex_);
    const Key key{client, ask.connection};
    Connection& connection = connections_[key];
    connection.request =
        RequestOf(Concat(options_.host, "/", peer.pid, "/", client, ".", ask.connection), ask);
    by_name_[connection.request.connection()] = key;
    alone = !InSession() || !welcome_;
    if (InSession()) {
      v1::AgentToC4p message;
      *message.mutable_request() = connection.request;
      Push(std::move(message));
    }
  }
  if (!alone) return;
  wire::ControlPathAnswer nobody{};
  nobody.connection = ask.connection;
  options_.answer(client, nobody);
}

void PathRelay::Use(ControlClientId client, const ControlPeer&, const wire::ControlPathUse& use) {
  const absl::MutexLock lock(&mutex_);
  const auto found = connections_.find({client, use.connection});
  if (found == connections_.end()) return;  // one that was never asked about
  found->second.use = UseOf(found->second.request, use);
  if (InSession()) {
    v1::AgentToC4p message;
    *message.mutable_use() = found->second.use;
    Push(std::move(message));
  }
  if (use.queue_pairs > 0) return;
  by_name_.erase(found->second.request.connection());
  connections_.erase(found);
}

void PathRelay::Gone(ControlClientId client) {
  const absl::MutexLock lock(&mutex_);
  for (auto at = connections_.lower_bound({client, 0}); at != connections_.end() && at->first.first == client;
       at = connections_.erase(at)) {
    by_name_.erase(at->second.request.connection());
    if (!InSession()) continue;
    v1::AgentToC4p message;
    message.mutable_use()->set_connection(at->second.request.connection());
    Push(std::move(message));
  }
}

void PathRelay::Push(v1::AgentToC4p message) {
  if (outbox_.size() < kLongestOutbox) {
    outbox_.push_back(std::move(message));
    wake_.Notify();
    return;
  }
  // A master that reads so slowly is told everything anew, over another session.
  broken_ = true;
  context_->TryCancel();
  wake_.Notify();
}

void PathRelay::SayAll() {
  outbox_.clear();
  orders_.clear();
  report_.Clear();
  refused_.clear();
  told_order_ = false;
  v1::AgentToC4p message;
  v1::AgentHello* const hello = message.mutable_hello();
  hello->set_host(options_.host);
  hello->set_agent_epoch(options_.agent_epoch);
  hello->set_version(std::string(service::Version()));
  hello->set_probes_per_second(options_.prober.per_second);
  for (v1::NicInfo& nic : options_.nics()) *hello->add_nics() = std::move(nic);
  outbox_.push_back(std::move(message));
  for (const auto& [key, connection] : connections_) {
    message.Clear();
    if (connection.use.queue_pairs_size() > 0) {
      *message.mutable_use() = connection.use;
      *message.mutable_use()->mutable_request() = connection.request;
    } else {
      *message.mutable_request() = connection.request;
    }
    outbox_.push_back(message);
  }
}

void PathRelay::Run() {
  pthread_setname_np(pthread_self(), "c4-paths");
  const absl::Duration longest_pause =
      options_.places > 1 ? std::min(options_.longest_pause, options_.longest_pause_of_several)
                          : options_.longest_pause;
  absl::Duration pause = options_.first_pause;
  size_t in_vain = 0;
  absl::Status trouble;  // of those that were asked since the last pause: what is worth most to whoever reads
  for (;;) {
    bool was_welcome = false;
    const absl::StatusOr<service::MasterAddress> master = options_.find_master();
    const absl::Status ended = master.ok() ? Serve(*master) : master.status();
    {
      const absl::MutexLock lock(&mutex_);
      was_welcome = std::exchange(welcome_, false);
      if (was_welcome) epochs_.Lives(service::SystemClock().MonotonicNs());
      if (stop_) return;
    }
    if (was_welcome) told_.clear();
    in_vain = was_welcome ? 0 : in_vain + 1;
    if (trouble.ok() || absl::IsUnavailable(trouble)) trouble = ended;  // who stands by does not listen
    if (in_vain % options_.places != 0) continue;                       // there is another to ask
    Tell(std::exchange(trouble, absl::OkStatus()));
    pause = was_welcome ? options_.first_pause : std::min(pause * 2, longest_pause);
    // What else it is woken for concerns sessions.
    const auto until = service::Wakeup::Clock::now() + absl::ToChronoNanoseconds(pause);
    while (wake_.WaitUntil(until)) {
      const absl::MutexLock lock(&mutex_);
      if (stop_) return;
    }
  }
}

absl::Status PathRelay::Serve(const service::MasterAddress& master) {
  const std::string& address = master.address;
  const auto stub =
      v1::C4p::NewStub(service::MakeChannel(address, options_.credentials, service::Role::kPathMaster));
  grpc::ClientContext context;
  options_.credentials.AddToken(&context, master);
  {
    const absl::MutexLock lock(&mutex_);
    if (stop_) return absl::CancelledError("the agent ends");
    context_ = &context;
    broken_ = false;
    SayAll();
  }
  const auto stream = stub->Session(&context);
  std::thread reading([&] {
    pthread_setname_np(pthread_self(), "c4-paths-in");
    Read([&](v1::C4pToAgent* message) { return stream->Read(message); });
  });
  uint64_t sequence = 0;
  const auto lease_interval = absl::ToChronoNanoseconds(options_.lease_interval);
  auto next_lease = service::Wakeup::Clock::now() + lease_interval;
  for (;;) {
    v1::AgentToC4p message;
    bool idle = false;
    {
      const absl::MutexLock lock(&mutex_);
      if (stop_ || broken_) break;
      if (!outbox_.empty()) {
        message = std::move(outbox_.front());
        outbox_.pop_front();
      } else if (const auto now = service::Wakeup::Clock::now(); now >= next_lease) {
        next_lease = now + lease_interval;
        v1::PathLease* const lease = message.mutable_lease();
        for (const auto& [name, key] : by_name_) lease->add_connections(name);
      } else {
        idle = true;
      }
    }
    if (idle) {
      wake_.WaitUntil(next_lease);
      continue;
    }
    message.set_sequence(++sequence);
    if (!stream->Write(message)) break;
  }
  context.TryCancel();
  reading.join();
  prober_.Cancel();  // nobody waits for its results any more
  const absl::Status status = options_.credentials.Explain(service::FromGrpcStatus(stream->Finish()));
  const absl::MutexLock lock(&mutex_);
  context_ = nullptr;
  if (!refused_.empty()) {
    return service::Annotate(absl::FailedPreconditionError(refused_), address);
  }
  return service::Annotate(status.ok() ? absl::UnavailableError("the master ended the session") : status,
                           address);
}

void PathRelay::Read(const std::function<bool(v1::C4pToAgent*)>& next) {
  v1::C4pToAgent message;
  while (next(&message)) Heed(message);
  {
    const absl::MutexLock lock(&mutex_);
    broken_ = true;
  }
  wake_.Notify();
}

void PathRelay::Refuse(const std::string& why) {
  refused_ = why;
  broken_ = true;
  context_->TryCancel();
  wake_.Notify();
}

void PathRelay::Welcome(uint64_t epoch) {
  const absl::MutexLock lock(&mutex_);
  if (!InSession()) return;
  if (const absl::Status believed = epochs_.Heard(epoch, service::SystemClock().MonotonicNs());
      !believed.ok()) {
    return Refuse(std::string(believed.message()));
  }
  welcome_ = true;
  service::LogInfo("in session with the path master, epoch ", epoch);
}

void PathRelay::Heed(const v1::C4pToAgent& message) {
  if (message.message_case() != v1::C4pToAgent::kWelcome &&
      message.message_case() != v1::C4pToAgent::kRefused) {
    // Of whom it is not known that it leads, or known that it does not.
    const absl::MutexLock lock(&mutex_);
    if (!welcome_ || !refused_.empty()) return;
  }
  switch (message.message_case()) {
    case v1::C4pToAgent::kWelcome:
      return Welcome(message.welcome().master_epoch());
    case v1::C4pToAgent::kAnswer: {
      Key key;
      {
        const absl::MutexLock lock(&mutex_);
        const auto found = by_name_.find(message.answer().connection());
        if (found == by_name_.end()) return;  // closed in the meantime
        key = found->second;
      }
      options_.answer(key.first, AnswerOf(key.second, message.answer()));
      return;
    }
    case v1::C4pToAgent::kProbe:
      Probe(message.probe());
      return;
    case v1::C4pToAgent::kRefused: {
      const absl::MutexLock lock(&mutex_);
      if (!welcome_ && InSession()) {
        // Nothing else of a session counts without its hello. Where the host's former session is not known to
        // be dead yet, the next one is let in.
        return Refuse(Concat("it refuses: ", message.refused()));
      }
      if (refused_.empty()) service::LogWarning("the path master refuses: ", message.refused());
      return;
    }
    case v1::C4pToAgent::MESSAGE_NOT_SET:
      return;  // of a later version
  }
}

void PathRelay::Probe(const v1::ProbeOrder& order) {
  absl::StatusOr<ProbeOrder> read = OrderOf(order);
  absl::Status status = read.status();
  uint64_t number = 0;
  if (read.ok()) {
    {
      const absl::MutexLock lock(&mutex_);
      read->order = number = next_order_++;
      orders_[number] = order.order();
    }
    status = prober_.Submit(*std::move(read));
  }
  if (status.ok()) return;
  const absl::MutexLock lock(&mutex_);
  orders_.erase(number);
  if (!std::exchange(told_order_, true)) {
    service::LogWarning("an order of the path master cannot be carried out: ", status.message(),
                        "; more of this session are only counted");
  }
  v1::AgentToC4p message;
  message.mutable_probes()->set_order(order.order());
  message.mutable_probes()->set_last(true);
  if (InSession()) Push(std::move(message));
}

void PathRelay::Probed(uint64_t order, const ProbeResult& result, bool last) {
  const absl::MutexLock lock(&mutex_);
  const auto found = orders_.find(order);
  if (found == orders_.end()) return;  // of a session that is over
  if (report_.order() != found->second && report_.results_size() > 0) Report();
  report_.set_order(found->second);
  *report_.add_results() = ResultOf(result);
  report_.set_last(last);
  if (last) orders_.erase(found);
  if (last || report_.results_size() >= kReportResults) Report();
}

void PathRelay::Report() {
  v1::AgentToC4p message;
  message.mutable_probes()->Swap(&report_);
  report_.Clear();
  if (InSession()) Push(std::move(message));
}

void PathRelay::Tell(const absl::Status& why) {
  const std::string line = Concat("away ", static_cast<int>(why.code()));
  if (told_ == line) return;
  told_ = line;
  if (absl::IsNotFound(why)) {
    service::LogInfo("no path master: ", why.message(), "; connections take the kernel's ports");
  } else {
    service::LogWarning("no way to the path master: ", why.message(),
                        "; connections take the kernel's ports meanwhile");
  }
}

}  // namespace c4::agent
