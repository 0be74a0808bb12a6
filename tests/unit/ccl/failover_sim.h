// A connection in simulated time: both of its ends as they are, and the machines of its queue pairs' epochs
// as they are (transport/epochs.h), over streams and a fence channel that are made up. Streams deliver in
// order, late, in part, or no more, in either direction or both; control messages get lost, come twice, late
// and out of order. One history follows from its seed. One thread.
#pragma once

#include <deque>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ccl/transport/connection.h"
#include "ccl/transport/epochs.h"

namespace c4::sim {

inline constexpr uint64_t kMs = 1000000;
inline constexpr uint32_t kChunkBytes = 64;

inline uint64_t now_ns = 0;
inline uint64_t Now() {
  return now_ns;
}

class World;

// One epoch of a queue pair: what is on its way, and where it is cut.
struct Stream {
  struct Sent {
    Chunk chunk;
    std::string bytes;
    uint64_t half_ns;  // when its first half arrives, and
    uint64_t full_ns;  // the rest
  };
  struct Report {
    uint64_t received;
    uint64_t granted;
    uint64_t at_ns;
  };
  uint32_t epoch = 0;
  uint64_t greeted_ns = 0;  // its hello has gone out whole
  uint64_t arrives_ns = 0;  // the receiver reads the hello; UINT64_MAX: never
  bool arrived = false;
  uint64_t cut_forward_ns = UINT64_MAX;  // nothing arrives from then on
  uint64_t cut_back_ns = UINT64_MAX;
  uint64_t reset_ns = UINT64_MAX;  // both ends hear of its end
  uint64_t end_ns = UINT64_MAX;    // the sender gave it up; that arrives then
  bool closed = false;             // by the receiver
  uint64_t last_forward_ns = 0;
  uint64_t last_back_ns = 0;
  std::deque<Sent> forward;
  std::deque<Report> back;
};

class FakeSend final : public SendQueuePair, private SendStreams {
 public:
  FakeSend(World* world, size_t index) : world_(world), index_(index) {}
  void Post(const Chunk& chunk, const Buffer& from, const std::shared_ptr<SharedMessage>& shared,
            uint64_t now_ticks) override;
  uint64_t completed() const override { return completed_; }
  uint64_t granted() const override { return granted_; }
  Result Progress(bool* moved) override;
  QpState state() const override { return epochs_.state(); }
  bool drained() const override;
  // What was posted is still read from its buffers.
  bool reads() const { return !epochs_.drained() && !posted_.empty(); }
  uint32_t epoch() const override { return epoch_; }
  uint64_t heard_ns() const override {
    return state() == QpState::kLive || state() == QpState::kMoving ? heard_ns_ : 0;
  }
  void Lose() override { epochs_.Break(now_ns); }
  bool Fenced(uint64_t received) override;
  bool Acknowledged(uint64_t received) override;
  void Move();
  bool connected() const override { return true; }
  pollfd Poll() const override { return {-1, 0, 0}; }
  void SayGoodbye() override {}
  bool peer_left() const override { return false; }
  QueuePairRecorder& recorder() override { return recorder_; }
  uint32_t fences() const { return fences_; }
  uint32_t moves() const { return moves_; }
  // The stream in use is on the path that was asked for last.
  bool settled() const { return epochs_.stage() == SendEpochs::kLive && on_asked_path_; }

 private:
  void DialNext(uint32_t epoch, bool ask_port) override;
  void DiscardNext() override;
  void AdoptNext() override;
  void CloseCurrent() override;
  void DiscardCurrent() override;
  bool busy() const override { return !posted_.empty(); }

  World* world_;
  const size_t index_;
  SendEpochs epochs_{this};
  uint32_t epoch_ = 0;
  uint32_t next_epoch_ = 0;
  bool has_stream_ = false;
  uint64_t drained_ns_ = 0;
  std::deque<Chunk> posted_;
  uint64_t completed_ = 0;
  uint64_t granted_ = 0;
  uint64_t heard_ns_ = 0;
  uint64_t progress_ns_ = 0;
  uint32_t fences_ = 0;
  uint32_t moves_ = 0;
  uint32_t asked_paths_ = 0;  // Moves so far
  uint32_t next_path_ = 0;    // of these, the one that the next stream was dialled after
  bool on_asked_path_ = false;
  wire::QueuePairSlot slot_{};
  QueuePairRecorder recorder_{&slot_, 0};
};

class FakeReceive final : public ReceiveQueuePair, private ReceiveStreams {
 public:
  FakeReceive(World* world, size_t index) : world_(world), index_(index) {}
  void Grant(uint64_t messages) override { granted_ = messages; }
  Result Progress(ChunkSink* sink, bool* moved) override;
  bool idle() const override { return !half_; }
  bool open() const override { return open_; }
  bool ended() const override { return ended_; }
  uint32_t epoch() const override { return epochs_.epoch(); }
  uint64_t received() const override { return completed_; }
  Result Fence(uint32_t epoch, ChunkSink* sink, uint64_t* received, EpochAnswer* answer) override;
  pollfd Poll() const override { return {-1, 0, 0}; }
  void SayGoodbye() override {}
  bool peer_left() const override { return false; }
  QueuePairRecorder& recorder() override { return recorder_; }

 private:
  // Takes the streams whose hellos have come.
  void TakeStreams();
  // Takes in what has arrived by then.
  Result Take(ChunkSink* sink, uint64_t until_ns, bool* moved);
  Result Drain(ChunkSink* sink, bool* moved);
  void CloseCurrent() override;
  void AdoptNext() override;
  void DiscardNext() override {}

  World* world_;
  const size_t index_;
  // Epoch 0 has the connection made: its hello is the first that comes.
  ReceiveEpochs epochs_{0, this};
  bool open_ = true;
  bool ended_ = false;
  bool half_ = false;
  bool touched_ = false;
  uint64_t closed_ns_ = 0;   // nothing arrives from then on, and
  uint64_t drained_ns_ = 0;  // what did is taken in by then
  uint32_t fenced_to_ = 0;
  ChunkSink::Place place_;
  uint64_t completed_ = 0;
  uint64_t granted_ = 0;
  uint64_t said_received_ = 0;
  uint64_t said_granted_ = UINT64_MAX;
  uint64_t said_ns_ = 0;
  wire::QueuePairSlot slot_{};
  QueuePairRecorder recorder_{&slot_, 0};
};

// Both ends of the fence channel share the lines of the world.
class FakeSendFenceChannel final : public SendFenceChannel {
 public:
  explicit FakeSendFenceChannel(World* world) : world_(world) {}
  Result Progress(uint64_t) override { return Ok(); }
  void Say(const FenceCall& call) override;
  bool Hear(FenceAnswer* answer) override;
  bool TakeFresh() override { return false; }
  uint64_t alive_ns() const override { return now_ns; }
  uint64_t heard_ns() const override { return heard_ns_; }
  bool ended() const override { return false; }
  bool refused() const override { return false; }
  bool peer_left() const override { return false; }
  bool settled() const override { return true; }
  void Lose(const SocketAddress&) override {}
  void AppendPolls(std::vector<pollfd>*) const override {}
  void SayGoodbye() override {}

 private:
  World* world_;
  uint64_t heard_ns_ = 0;
};

class FakeReceiveFenceChannel final : public ReceiveFenceChannel {
 public:
  explicit FakeReceiveFenceChannel(World* world) : world_(world) {}
  Result Progress(uint64_t) override { return Ok(); }
  bool Hear(FenceCall* call) override;
  void Say(const FenceAnswer& answer) override;
  bool TakeFresh() override { return false; }
  uint64_t ended_ns() const override { return 0; }
  bool peer_left() const override { return false; }
  void AppendPolls(std::vector<pollfd>*) const override {}
  void SayGoodbye() override {}

 private:
  World* world_;
};

// What a history can be told to leave out, to see that the checks notice.
struct Sabotage {
  bool answers_without_closing = false;
  bool fences_before_it_has_drained = false;
};

class World {
 public:
  explicit World(unsigned seed, Sabotage sabotage = {});

  // Runs to the end; what was wrong, or "".
  std::string Run();
  uint32_t fences() const;
  uint32_t moves() const;
  uint64_t resent() const { return resent_; }

  // For the parts.
  uint64_t Random(uint64_t below) { return below == 0 ? 0 : random_() % below; }
  bool Chance(double p) { return static_cast<double>(random_() % 1000000) < p * 1e6; }
  Stream& stream(size_t queue_pair, uint32_t epoch) { return streams_[{queue_pair, epoch}]; }
  void MakeStream(size_t queue_pair, uint32_t epoch);
  // Whose hellos have come since the last call, in the order in which they came.
  std::vector<Stream*> Arrived(size_t queue_pair);
  // How long an end takes to close: nothing in half of the histories.
  uint64_t DrainNs() { return Random(drain_ns_); }
  bool Reads(uint32_t queue_pair) const { return fakes_[queue_pair]->reads(); }
  // Arrivals of one stream are in order; those of a bad network can be late.
  uint64_t After(uint64_t* last_ns);
  void WasPosted(size_t queue_pair, uint32_t epoch, const Chunk& chunk);
  void WasWritten(const Chunk& chunk);
  void Fault(const std::string& text) {
    if (fault_.empty()) fault_ = text;
  }
  template <typename T>
  void SayOver(std::multimap<uint64_t, T>* line, const T& message) {
    const int copies = Calm() ? 1 : Chance(loss_) ? 0 : Chance(0.1) ? 2 : 1;
    for (int i = 0; i < copies; ++i) line->insert({now_ns + Random(delay_ns_ * 3) + 1, message});
  }
  template <typename T>
  bool HearFrom(std::multimap<uint64_t, T>* line, T* message) {
    if (line->empty() || line->begin()->first > now_ns) return false;
    *message = line->begin()->second;
    line->erase(line->begin());
    return true;
  }
  // The network is in order from then on, so that the history comes to an end.
  bool Calm() const { return now_ns > calm_ns_; }

  std::multimap<uint64_t, FenceCall> calls;
  std::multimap<uint64_t, FenceAnswer> answers;
  const Sabotage sabotage;

 private:
  void Disturb();
  void PostSome();
  void CheckDone();

  std::mt19937_64 random_;
  const size_t queue_pairs_;
  uint64_t delay_ns_;
  uint64_t drain_ns_;
  double loss_;
  double deaths_;  // a millisecond
  double moves_;   // a millisecond
  uint64_t calm_ns_;
  std::map<std::pair<size_t, uint32_t>, Stream> streams_;
  std::vector<FakeSend*> fakes_;
  std::unique_ptr<SendConnection> sender_;
  std::unique_ptr<ReceiveConnection> receiver_;
  std::vector<std::string> sent_;
  std::vector<std::string> got_;
  size_t posted_ = 0;
  size_t expected_ = 0;
  uint64_t checked_ = 0;
  std::map<std::pair<uint64_t, uint32_t>, std::pair<size_t, uint32_t>> where_;  // chunk: its last stream
  uint64_t resent_ = 0;
  std::string fault_;
};

}  // namespace c4::sim
