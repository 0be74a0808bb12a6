// Bandwidth and steering (main.cc): queue pairs that carry the same buffer again and again, without a look at
// what comes.
#include <algorithm>
#include <cstdio>
#include <poll.h>
#include <vector>

#include "ccl/base/clock.h"
#include "tests/rdma/modes.h"

namespace c4::rdma_test {
namespace {

constexpr uint64_t kAhead = 4;
constexpr uint64_t kChunksAMessage = 32;

class Counter final : public verbs::Arrivals {
 public:
  explicit Counter(uint64_t chunks_a_message) : chunks_a_message_(chunks_a_message) {}
  Result Arrived(const Chunk& chunk) override {
    if (arrived_.size() <= chunk.message) arrived_.resize(chunk.message + 1);
    if (++arrived_[chunk.message] == chunks_a_message_) {
      while (oldest_ < arrived_.size() && arrived_[oldest_] == chunks_a_message_) ++oldest_;
    }
    return Ok();
  }
  uint64_t oldest() const { return oldest_; }

 private:
  const uint64_t chunks_a_message_;
  std::vector<uint64_t> arrived_;
  uint64_t oldest_ = 0;
};

template <typename End>
void DieIfFailed(const End& end) {
  if (!end.failed()) return;
  Die("the queue pair failed with status " + std::to_string(end.status()) + ": " +
      verbs::StatusText(end.status()));
}

template <typename End>
void Wait(const Context& context, const std::vector<std::unique_ptr<End>>& ends, bool spin) {
  if (spin) return;
  std::vector<pollfd> entries = {{context.oob->fd(), POLLIN, 0}};
  for (const auto& end : ends) {
    DieUnless(end->queue_pair().Arm());
    entries.push_back({end->queue_pair().fd(), POLLIN, 0});
  }
  // What came before it was armed is found in the next round, a millisecond later at most.
  poll(entries.data(), entries.size(), 1);
}

template <typename End>
std::vector<std::unique_ptr<End>> MakeEnds(const Context& context, size_t count, uint32_t chunk_bytes) {
  std::vector<std::unique_ptr<End>> ends(count);
  for (size_t i = 0; i < count; ++i) {
    DieUnless(End::Create(context.port, context.settings, chunk_bytes, &ends[i]));
  }
  return ends;
}

template <typename End>
void Join(const Context& context, const std::vector<std::unique_ptr<End>>& ends) {
  for (const auto& end : ends) context.oob->Say({Word::kEnd, 0, 0, end->queue_pair().end()});
  for (const auto& end : ends) DieUnless(end->queue_pair().Connect(context.oob->Wait(Word::kEnd).end));
  context.oob->Say({Word::kGo, 0, 0, {}});
  (void)context.oob->Wait(Word::kGo);
}

void Receive(const Context& context, size_t queue_pairs, uint32_t chunk_bytes, bool spin) {
  const uint64_t message_bytes = kChunksAMessage * chunk_bytes;
  std::vector<char> buffer(message_bytes);
  verbs::RegistrationUse key;
  DieUnless(context.port.device->memory().Acquire(buffer.data(), buffer.size(), false, &key));
  auto ends = MakeEnds<verbs::ReceiveEnd>(context, queue_pairs, chunk_bytes);
  Join(context, ends);
  Counter counter(kChunksAMessage);
  uint64_t granted = 0;
  for (;;) {
    for (; granted < counter.oldest() + kAhead; ++granted) {
      for (auto& end : ends) {
        end->Describe({reinterpret_cast<uint64_t>(buffer.data()), message_bytes, key.remote_key(), 0});
      }
    }
    bool moved = false;
    for (auto& end : ends) {
      DieUnless(end->Progress(&counter, &moved));
      end->Forget(counter.oldest());
      DieIfFailed(*end);
    }
    Message message;
    if (!moved && context.oob->Hear(&message)) return;
    if (!moved) Wait(context, ends, spin);
  }
}

// Until `stop` says so; bytes a second over the whole time.
template <typename Stop>
double Send(const Context& context, std::vector<std::unique_ptr<verbs::SendEnd>>* ends, uint32_t chunk_bytes,
            bool spin, uint64_t* next, const Stop& stop) {
  std::vector<char> buffer(chunk_bytes, 'x');
  verbs::RegistrationUse key;
  DieUnless(context.port.device->memory().Acquire(buffer.data(), buffer.size(), false, &key));
  const auto completed = [&] {
    uint64_t sum = 0;
    for (const auto& end : *ends) sum += end->completed();
    return sum;
  };
  const uint64_t begin_ns = MonotonicNs();
  const uint64_t before = completed();
  bool stopped = false;
  do {
    bool moved = false;
    for (auto& end : *ends) {
      DieUnless(end->Progress(&moved));
      DieIfFailed(*end);
      while (!stopped && *next / kChunksAMessage < end->described() &&
             end->posted() < end->completed() + 32) {
        const uint64_t message = *next / kChunksAMessage;
        DieUnless(end->Post({message, kChunksAMessage * chunk_bytes,
                             static_cast<uint32_t>(*next % kChunksAMessage), chunk_bytes},
                            buffer.data(), key.local_key()));
        ++*next;
        moved = true;
      }
    }
    stopped = stop(completed() - before, MonotonicNs() - begin_ns);
    if (!moved) Wait(context, *ends, spin);
  } while (!stopped || completed() < *next);
  return static_cast<double>((completed() - before) * chunk_bytes) * 1e9 /
         static_cast<double>(MonotonicNs() - begin_ns);
}

}  // namespace

void Bandwidth(const Context& context, const Options& options, bool sends) {
  const auto chunk_bytes = static_cast<uint32_t>(options.Number("bytes", 65536));
  const size_t queue_pairs = options.Number("queue-pairs", 1);
  const bool spin = options.Number("spin", 0) != 0;
  if (!sends) return Receive(context, queue_pairs, chunk_bytes, spin);
  auto ends = MakeEnds<verbs::SendEnd>(context, queue_pairs, chunk_bytes);
  Join(context, ends);
  const uint64_t chunks = options.Number("chunks", 500);
  uint64_t next = 0;
  const double bytes_a_second =
      Send(context, &ends, chunk_bytes, spin, &next, [&](uint64_t sent, uint64_t) { return sent >= chunks; });
  printf("bandwidth %.2f MiB/s, %zu queue pairs, chunks of %u bytes\n", bytes_a_second / 1048576, queue_pairs,
         chunk_bytes);
  context.oob->Say({Word::kDone, 0, 0, {}});
}

void Steer(const Context& context, const Options& options, bool sends) {
  if (!sends) return Receive(context, 1, 1024, false);
  std::vector<uint16_t> ports;
  std::string text = options.Text("ports", "");
  while (!text.empty()) {
    const size_t comma = text.find(',');
    ports.push_back(static_cast<uint16_t>(std::stoi(text.substr(0, comma))));
    text = comma == std::string::npos ? "" : text.substr(comma + 1);
  }
  if (ports.empty()) Die("--ports names none");
  auto ends = MakeEnds<verbs::SendEnd>(context, 1, 1024);
  DieUnless(ends[0]->queue_pair().WishPort(ports[0]));
  Join(context, ends);
  uint64_t next = 0;
  for (size_t i = 0; i < ports.size(); ++i) {
    if (i != 0) DieUnless(ends[0]->Steer(ports[i]));
    // Enough that the other ports' packets are few beside them.
    (void)Send(context, &ends, 1024, false, &next, [](uint64_t sent, uint64_t) { return sent >= 64; });
    printf("steered to %u %s\n", ports[i], verbs::SteeringText(ends[0]->queue_pair().steering()));
  }
  context.oob->Say({Word::kDone, 0, 0, {}});
}

}  // namespace c4::rdma_test
