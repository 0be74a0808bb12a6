#include "ccl/plugins/net/gate.h"

#include "ccl/base/fork.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
#include "ccl/plugins/net/handle.h"
#include "ccl/plugins/net/receive_comm.h"

namespace c4::net {
namespace {

constexpr int kBacklog = 1024;

}  // namespace

Result Gate::Open(const std::vector<SocketAddress>& addresses, const Backends* backends,
                  std::unique_ptr<Gate>* gate) {
  CloseStreamsInChildren();
  SocketAddress at = addresses.front();
  if (addresses.size() > 1) {
    C4_RETURN_IF_ERROR(ParseAddress(at.storage.ss_family == AF_INET6 ? "[::]:0" : "0.0.0.0:0", &at));
  }
  Fd listener;
  C4_RETURN_IF_ERROR(ListenWithin(KnobText(Knob::C4_LISTEN_PORTS), &at, kBacklog, &listener));
  std::vector<SocketAddress> reached = addresses;
  for (SocketAddress& address : reached) address.set_port(at.port());
  gate->reset(new Gate(std::move(listener), std::move(reached), backends));
  return Ok();
}

void Gate::Expect(uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++expected_[number];
  acceptor_.Expect(number, StreamKeyOf(number));
}

void Gate::StopExpecting(uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  acceptor_.DropWaiting(number);
  Drop(number);
}

void Gate::Drop(uint64_t number) {
  const auto found = expected_.find(number);
  if (found == expected_.end() || --found->second > 0) return;
  expected_.erase(found);
  acceptor_.Forget(number);
}

Result Gate::Take(uint64_t number, const Make& make) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bool moved = false;
  C4_RETURN_IF_ERROR(acceptor_.Progress(&moved));
  ConnectionKey key;
  std::vector<Accepted> queue_pairs;
  if (!acceptor_.TakeExpected(number, &key, &queue_pairs)) return Ok();
  Backend* const backend = backends_->Of(queue_pairs.front().hello);
  ReceiveComm* const made = make(key, backend, std::move(queue_pairs));
  if (made == nullptr) {
    acceptor_.ForgetTaken(key);
    return Ok();
  }
  comms_[key] = made;
  ++expected_[number];
  HandOn();
  return Ok();
}

void Gate::Leave(const ConnectionKey& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  comms_.erase(key);
  acceptor_.ForgetTaken(key);
  Drop(key.communicator_id);
}

void Gate::HandOn() {
  ConnectionKey key;
  for (Accepted late; acceptor_.TakeLate(&key, &late); late = Accepted()) {
    const auto found = comms_.find(key);
    if (found != comms_.end()) found->second->TakeLate(std::move(late));
  }
}

void Gate::Look() {
  const std::lock_guard<std::mutex> lock(mutex_);
  bool moved = false;
  const Result result = acceptor_.Progress(&moved);
  if (!result.ok() && !std::exchange(warned_, true)) C4_WARN("%s", result.message().c_str());
  HandOn();
}

void Gate::AppendPolls(std::vector<pollfd>* polls) {
  const std::lock_guard<std::mutex> lock(mutex_);
  acceptor_.AppendPolls(polls);
}

}  // namespace c4::net
