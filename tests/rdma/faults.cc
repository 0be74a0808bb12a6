// What is refused (main.cc): wrong keys, memory that is not there, ends that cannot be, messages that are too
// long. The sender breaks the rules; the receiver has to stay whole.
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <sys/mman.h>

#include "ccl/transport/verbs/flusher.h"
#include "ccl/transport/verbs/ports.h"
#include "tests/rdma/modes.h"

namespace c4::rdma_test {
namespace {

constexpr uint32_t kChunkBytes = 4096;

class Nothing final : public verbs::Arrivals {
 public:
  Result Arrived(const Chunk&) override {
    ++arrived;
    return Ok();
  }
  int arrived = 0;
};

void Expect(bool right, const char* what) {
  if (!right) Die(what);
  printf("right: %s\n", what);
}

// Whether it became true before a second had passed.
template <typename Progress, typename Until>
bool WaitUntil(const Progress& progress, const Until& until) {
  for (int i = 0; i < 1000 && !until(); ++i) {
    progress();
    poll(nullptr, 0, 1);
  }
  return until();
}

void EndsThatCannotBe(const Context& context) {
  const auto refused = [&](const char* what, auto change, const char* because) {
    std::unique_ptr<verbs::RcQueuePair> pair;
    DieUnless(verbs::RcQueuePair::Create(context.port, context.settings, {}, &pair));
    verbs::End end = pair->end();
    change(&end);
    const Result result = pair->Connect(end);
    if (!result.ok()) printf("  %s\n", result.message().c_str());
    Expect(!result.ok() && result.message().find(because) != std::string::npos, what);
  };
  refused(
      "a queue pair number out of range", [](verbs::End* end) { end->number = 1u << 24; },
      "impossible number");
  refused(
      "a packet number out of range", [](verbs::End* end) { end->first_psn = 1u << 24; }, "packet number");
  refused(
      "another link layer", [](verbs::End* end) { end->link_layer = 1; }, "another kind of network");
  refused(
      "an impossible MTU", [](verbs::End* end) { end->mtu = 9; }, "MTU");
  refused(
      "no GID", [](verbs::End* end) { memset(end->gid, 0, sizeof end->gid); }, "no GID");
  std::unique_ptr<verbs::RcQueuePair> pair;
  DieUnless(verbs::RcQueuePair::Create(context.port, context.settings, {}, &pair));
  Expect(!pair->WishPort(80).ok(), "a source port below 49152");
}

void MemoryThatIsNotThere(const Context& context) {
  void* const gone = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(gone, 65536);
  verbs::RegistrationUse key;
  const Result result = context.port.device->memory().Acquire(gone, 65536, false, &key);
  printf("  %s\n", result.message().c_str());
  Expect(!result.ok() && result.message().find("mapped") != std::string::npos,
         "registration of unmapped memory");
}

// Of memory that is registered as a GPU's would be: the device reads it, over a queue pair to itself.
void Flushes(const Context& context) {
  std::unique_ptr<verbs::Ports> ports;
  DieUnless(verbs::Ports::Find(&ports));
  std::vector<char> data(8192);
  verbs::DeviceMemory memory(MemoryKind::kHost, -1);
  DieUnless(memory.Acquire(*ports, data.data(), data.size(), -1, 0));
  verbs::ReadFlusher flusher(context.settings);
  DieUnless(flusher.Use(ports->all().front()));
  constexpr uint64_t kMany = 150;  // more than are under way at a time
  for (uint64_t i = 0; i < kMany; ++i) DieUnless(flusher.Begin(Buffer(data.data() + i, &memory)));
  Expect(WaitUntil([&] { DieUnless(flusher.Progress()); }, [&] { return flusher.done() == kMany; }),
         "every flush ends");
}

std::unique_ptr<verbs::SendEnd> Joined(const Context& context) {
  std::unique_ptr<verbs::SendEnd> end;
  DieUnless(verbs::SendEnd::Create(context.port, context.settings, kChunkBytes, &end));
  context.oob->Say({Word::kEnd, 0, 0, end->queue_pair().end()});
  DieUnless(end->queue_pair().Connect(context.oob->Wait(Word::kEnd).end));
  context.oob->Say({Word::kGo, 0, 0, {}});
  (void)context.oob->Wait(Word::kGo);
  return end;
}

void Send(const Context& context) {
  EndsThatCannotBe(context);
  MemoryThatIsNotThere(context);
  Flushes(context);
  std::vector<char> data(4 * kChunkBytes, 'x');
  verbs::RegistrationUse key;
  DieUnless(context.port.device->memory().Acquire(data.data(), data.size(), false, &key));
  bool moved = false;
  {
    auto end = Joined(context);
    Expect(WaitUntil([&] { DieUnless(end->Progress(&moved)); }, [&] { return end->described() == 1; }),
           "the receive was described");
    Expect(!end->Post({0, 3 * kChunkBytes, 0, kChunkBytes}, data.data(), key.local_key()).ok(),
           "a message longer than its receive");
    // Past the rules of our own code: a key that the peer did not give.
    bool posted = false;
    verbs::RcQueuePair::Write write;
    write.data = data.data();
    write.bytes = kChunkBytes;
    write.local_key = key.local_key();
    write.remote_address = end->DescriptorOf(0).address;
    write.remote_key = end->DescriptorOf(0).key ^ 0x5555;
    DieUnless(end->queue_pair().PostWrite(write, &posted));
    Expect(WaitUntil([&] { (void)end->Progress(&moved); }, [&] { return end->failed(); }) &&
               end->status() == verbs::abi::kRemoteAccess,
           "a wrong key: the peer's refusal is said");
  }
  context.oob->Say({Word::kDone, 0, 0, {}});
  (void)context.oob->Wait(Word::kDone);
  {
    auto end = Joined(context);
    Expect(WaitUntil([&] { DieUnless(end->Progress(&moved)); }, [&] { return end->described() == 1; }),
           "the receive was described again");
    // To the right place, as a chunk that the message does not have.
    bool posted = false;
    verbs::RcQueuePair::Write write;
    write.data = data.data();
    write.bytes = 100;
    write.local_key = key.local_key();
    write.remote_address = end->DescriptorOf(0).address;
    write.remote_key = end->DescriptorOf(0).key;
    write.immediate = verbs::ImmediateOf(0, 7);
    DieUnless(end->queue_pair().PostWrite(write, &posted));
    context.oob->Say({Word::kDone, 0, 0, {}});
    (void)context.oob->Wait(Word::kDone);
  }
}

void Receive(const Context& context) {
  std::vector<char> data(2 * kChunkBytes, '.');
  const std::vector<char> untouched = data;
  verbs::RegistrationUse key;
  DieUnless(context.port.device->memory().Acquire(data.data(), data.size(), false, &key));
  for (int round = 0; round < 2; ++round) {
    std::unique_ptr<verbs::ReceiveEnd> end;
    DieUnless(verbs::ReceiveEnd::Create(context.port, context.settings, kChunkBytes, &end));
    end->Describe({reinterpret_cast<uint64_t>(data.data()), data.size(), key.remote_key(), 0});
    const Message from = context.oob->Wait(Word::kEnd);
    context.oob->Say({Word::kEnd, 0, 0, end->queue_pair().end()});
    DieUnless(end->queue_pair().Connect(from.end));
    (void)context.oob->Wait(Word::kGo);
    context.oob->Say({Word::kGo, 0, 0, {}});
    Nothing arrivals;
    bool moved = false;
    bool done = false;
    Result result;
    for (int i = 0; i < 3000 && !(done && (round == 0 || !result.ok())); ++i) {
      if (result.ok()) result = end->Progress(&arrivals, &moved);
      Message message;
      if (!done) done = context.oob->Hear(&message) && message.word == Word::kDone;
      poll(nullptr, 0, 1);
    }
    Expect(done && arrivals.arrived == 0, "nothing arrived that breaks the rules");
    if (round == 0) {
      Expect(data == untouched, "a wrong key: nothing is written");
    } else {
      printf("  %s\n", result.message().c_str());
      Expect(!result.ok() && result.message().find("chunk") != std::string::npos,
             "a chunk that its message does not have");
    }
    context.oob->Say({Word::kDone, 0, 0, {}});
  }
}

}  // namespace

void Faults(const Context& context, bool sends) {
  if (sends) {
    Send(context);
  } else {
    Receive(context);
  }
}

}  // namespace c4::rdma_test
