// A double of libibverbs: one RoCE device whose queue pairs reach those of the same process. What is posted
// is carried at once, or as soon as the peer has posted a receive; keys, ranges and states are checked as a
// device checks them. What is written into memory of a "GPU" is not to be seen there before something was
// read from it, as on a bus that promises no more.
#include "tests/double/fake_ibverbs.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "tests/double/fake_ibverbs_extended.h"

namespace {

using namespace c4::verbs::abi;

struct FakeRegion : MemoryRegion {
  char* memory = nullptr;  // of the device's own; what its addresses stand for
  int access = 0;
  bool of_gpu = false;
  size_t mapped = 0;  // of a dma-buf
  struct Unseen {
    size_t at;
    std::vector<char> data;
  };
  std::vector<Unseen> unseen;

  void Flush() {
    for (const Unseen& write : unseen) memcpy(memory + write.at, write.data.data(), write.data.size());
    unseen.clear();
  }
};

struct FakeQueue : CompletionQueue {
  std::deque<Completion> completions;
  std::deque<Completion> reads;  // that complete after the next poll: reads take a way to memory and back
  bool armed = false;
};

struct Request {
  SendRequest request;
  Piece piece;
  std::vector<char> copied;  // of inline data
};

struct FakePair : FakeExtendedPair {
  uint32_t peer = 0;
  QpCapacity capacity{};
  std::deque<Request> sends;
  std::deque<std::pair<uint64_t, Piece>> receives;

  FakeQueue* queue() const { return static_cast<FakeQueue*>(send_queue); }
};

// Never destroyed: the library may be used until the process ends.
struct World {
  std::mutex mutex;
  uint32_t next_key = 100;
  uint32_t next_number = 17;
  uint64_t flushes = 0;
  std::map<uint32_t, FakeRegion*> regions;  // by key
  std::map<uint32_t, FakePair*> pairs;
  Device device{};
};
World& TheWorld() {
  static auto* const world = new World;
  return *world;
}

void Complete(FakeQueue* queue, const Completion& completion) {
  queue->completions.push_back(completion);
  if (!queue->armed) return;
  queue->armed = false;
  const uint64_t one = 1;
  (void)!write(queue->channel->fd, &one, sizeof one);
}

void Complete(FakePair* pair, uint64_t id, int status, const Completion& rest = {}) {
  Completion completion = rest;
  completion.id = id;
  completion.status = status;
  completion.qp_number = pair->number;
  Complete(pair->queue(), completion);
}

void FailPair(FakePair* pair) {
  pair->state = kError;
  for (; !pair->sends.empty(); pair->sends.pop_front())
    Complete(pair, pair->sends.front().request.id, kFlushed);
  for (; !pair->receives.empty(); pair->receives.pop_front())
    Complete(pair, pair->receives.front().first, kFlushed);
}

// The region of that key that has the whole range, for such use.
FakeRegion* Find(uint32_t key, uint64_t address, size_t bytes, int access) {
  const auto found = TheWorld().regions.find(key);
  if (found == TheWorld().regions.end()) return nullptr;
  FakeRegion* const region = found->second;
  const auto from = reinterpret_cast<uint64_t>(region->address);
  const bool inside = address >= from && bytes <= region->bytes && address - from <= region->bytes - bytes;
  return inside && (region->access & access) == access ? region : nullptr;
}

char* At(FakeRegion* region, uint64_t address) {
  return region->memory + (address - reinterpret_cast<uint64_t>(region->address));
}

void Store(FakeRegion* region, uint64_t address, const char* data, size_t bytes) {
  const size_t at = address - reinterpret_cast<uint64_t>(region->address);
  if (region->of_gpu) {
    region->unseen.push_back({at, std::vector<char>(data, data + bytes)});
  } else {
    memcpy(region->memory + at, data, bytes);
  }
}

// What the request sends; null: it may not be read.
const char* DataOf(const Request& request) {
  static const char nothing = 0;
  if (request.request.piece_count == 0 || request.piece.bytes == 0) return &nothing;
  if ((request.request.flags & kInline) != 0) return request.copied.data();
  FakeRegion* const region = Find(request.piece.local_key, request.piece.address, request.piece.bytes, 0);
  if (region == nullptr) return nullptr;
  region->Flush();
  return At(region, request.piece.address);
}

enum class Carried { kYes, kLater, kFailed };

Carried Fail(FakePair* pair, int status) {
  Complete(pair, pair->sends.front().request.id, status);
  pair->sends.pop_front();
  FailPair(pair);
  return Carried::kFailed;
}

Carried CarryRead(FakePair* pair, const Request& request) {
  const SendRequest& asked = request.request;
  FakeRegion* const from = Find(asked.remote_key, asked.remote_address, request.piece.bytes, kRemoteRead);
  if (from == nullptr) return Fail(pair, kRemoteAccess);
  FakeRegion* const to =
      Find(request.piece.local_key, request.piece.address, request.piece.bytes, kLocalWrite);
  if (to == nullptr) return Fail(pair, kLocalProtection);
  from->Flush();
  TheWorld().flushes += from->of_gpu ? 1 : 0;
  Store(to, request.piece.address, At(from, asked.remote_address), request.piece.bytes);
  return Carried::kYes;
}

Carried CarryOne(FakePair* pair) {
  const Request& request = pair->sends.front();
  const SendRequest& asked = request.request;
  const auto found = TheWorld().pairs.find(pair->peer);
  if (found == TheWorld().pairs.end() || found->second->state == kError) return Fail(pair, kRetryExceeded);
  FakePair* const peer = found->second;
  const size_t bytes = asked.piece_count == 0 ? 0 : request.piece.bytes;
  if (asked.opcode == kOpRead) {
    if (const Carried read = CarryRead(pair, request); read != Carried::kYes) return read;
  } else {
    const char* const data = DataOf(request);
    if (data == nullptr) return Fail(pair, kLocalProtection);
    const bool takes_receive = asked.opcode != kOpWrite;
    if (takes_receive && peer->receives.empty()) return Carried::kLater;
    Completion arrived{};
    arrived.bytes = static_cast<uint32_t>(bytes);
    if (asked.opcode == kOpSend) {
      const Piece& to = peer->receives.front().second;
      FakeRegion* const region = Find(to.local_key, to.address, bytes, kLocalWrite);
      if (region == nullptr || bytes > to.bytes) return Fail(pair, kRemoteInvalidRequest);
      Store(region, to.address, data, bytes);
      arrived.opcode = kWcReceive;
    } else {
      if (bytes != 0) {
        FakeRegion* const region = Find(asked.remote_key, asked.remote_address, bytes, kRemoteWrite);
        if (region == nullptr) return Fail(pair, kRemoteAccess);
        Store(region, asked.remote_address, data, bytes);
      }
      arrived.opcode = kWcReceiveWithImmediate;
      arrived.immediate = asked.immediate;
    }
    if (takes_receive) {
      const uint64_t id = peer->receives.front().first;
      peer->receives.pop_front();
      Complete(peer, id, kSuccess, arrived);
    }
  }
  Completion done{};
  done.id = asked.id;
  done.qp_number = pair->number;
  if (asked.opcode == kOpRead) {
    pair->queue()->reads.push_back(done);
  } else {
    Complete(pair->queue(), done);
  }
  pair->sends.pop_front();
  return Carried::kYes;
}

void Carry(FakePair* pair) {
  while (pair->state == kReadyToSend && !pair->sends.empty() && CarryOne(pair) == Carried::kYes) {
  }
}

}  // namespace

int FakePostSend(QueuePair* queue_pair, SendRequest* request, SendRequest** failed) {
  const std::lock_guard<std::mutex> lock(TheWorld().mutex);
  auto* const pair = static_cast<FakePair*>(queue_pair);
  for (; request != nullptr; request = request->next) {
    *failed = request;
    if (pair->state == kError) {
      Complete(pair, request->id, kFlushed);
      continue;
    }
    if (pair->state < kReadyToSend || request->piece_count > 1) return EINVAL;
    if (pair->sends.size() == pair->capacity.send_requests) return ENOMEM;
    Request kept{*request, {}, {}};
    if (request->piece_count == 1) kept.piece = *request->pieces;
    if ((request->flags & kInline) != 0) {
      if (kept.piece.bytes > pair->capacity.inline_bytes) return EINVAL;
      const auto* const data =
          reinterpret_cast<const char*>(kept.piece.address);  // NOLINT(performance-no-int-to-ptr)
      kept.copied.assign(data, data + kept.piece.bytes);
    }
    pair->sends.push_back(std::move(kept));
    Carry(pair);
  }
  return 0;
}

namespace {

int PostReceive(QueuePair* queue_pair, ReceiveRequest* request, ReceiveRequest** failed) {
  const std::lock_guard<std::mutex> lock(TheWorld().mutex);
  auto* const pair = static_cast<FakePair*>(queue_pair);
  for (; request != nullptr; request = request->next) {
    *failed = request;
    if (pair->state == kError) {
      Complete(pair, request->id, kFlushed);
      continue;
    }
    if (pair->receives.size() == pair->capacity.receive_requests) return ENOMEM;
    pair->receives.emplace_back(request->id, *request->pieces);
  }
  const auto peer = TheWorld().pairs.find(pair->peer);
  if (peer != TheWorld().pairs.end()) Carry(peer->second);
  return 0;
}

int PollCompletions(CompletionQueue* queue, int count, Completion* completions) {
  const std::lock_guard<std::mutex> lock(TheWorld().mutex);
  auto* const own = static_cast<FakeQueue*>(queue);
  int taken = 0;
  for (; taken < count && !own->completions.empty(); own->completions.pop_front()) {
    completions[taken++] = own->completions.front();
  }
  for (; !own->reads.empty(); own->reads.pop_front()) Complete(own, own->reads.front());
  return taken;
}

int RequestNotification(CompletionQueue* queue, int /*solicited_only*/) {
  const std::lock_guard<std::mutex> lock(TheWorld().mutex);
  static_cast<FakeQueue*>(queue)->armed = true;
  return 0;
}

MemoryRegion* Register(std::unique_ptr<FakeRegion> region, ProtectionDomain* domain, void* address,
                       size_t bytes, int access) {
  const std::lock_guard<std::mutex> lock(TheWorld().mutex);
  World& world = TheWorld();
  region->context = domain->context;
  region->domain = domain;
  region->address = address;
  region->bytes = bytes;
  region->access = access;
  region->local_key = region->remote_key = region->handle = world.next_key++;
  world.regions[region->local_key] = region.get();
  return region.release();
}

}  // namespace

FakeExtendedPair* FakeNewPair(Context* context, const QpCapacity& capacity, CompletionQueue* sends,
                              CompletionQueue* receives) {
  const std::lock_guard<std::mutex> lock(TheWorld().mutex);
  auto* const pair = new FakePair{};
  pair->context = context;
  pair->send_queue = sends;
  pair->receive_queue = receives;
  pair->capacity = capacity;
  pair->number = TheWorld().next_number++;
  pair->state = kReset;
  TheWorld().pairs[pair->number] = pair;
  return pair;
}

extern "C" {

FakeGpuMemory fake_ib_gpu_memory(size_t bytes) {
  FakeGpuMemory memory{};
  memory.dma_buf = memfd_create("gpu", MFD_CLOEXEC);
  if (ftruncate(memory.dma_buf, static_cast<off_t>(bytes)) != 0) abort();
  memory.address = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, memory.dma_buf, 0);
  memory.seen = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.dma_buf, 0);
  if (memory.address == MAP_FAILED || memory.seen == MAP_FAILED) abort();
  return memory;
}

void fake_ib_free_gpu_memory(FakeGpuMemory memory, size_t bytes) {
  munmap(memory.address, bytes);
  munmap(memory.seen, bytes);
  close(memory.dma_buf);
}

uint64_t fake_ib_flushes() {
  const std::lock_guard<std::mutex> lock(TheWorld().mutex);
  return TheWorld().flushes;
}

Device** ibv_get_device_list(int* count) {
  Device& device = TheWorld().device;
  strcpy(device.name, "fake0");
  if (const char* path = getenv("FAKE_IB_SYSFS"); path != nullptr) {
    strncpy(device.ibdev_path, path, sizeof device.ibdev_path - 1);
  }
  *count = 1;
  auto** const list = new Device*[2];
  list[0] = &device;
  list[1] = nullptr;
  return list;
}

void ibv_free_device_list(Device** list) {
  delete[] list;
}

Context* ibv_open_device(Device* device) {
  auto* const extended = new ExtendedContext{};
  extended->bytes = sizeof *extended;
  extended->create_qp = FakeCreateExtended;
  Context* const context = &extended->context;
  context->abi_compat = reinterpret_cast<void*>(UINTPTR_MAX);
  context->device = device;
  context->async_fd = eventfd(0, EFD_CLOEXEC);
  context->operations.poll_completions = PollCompletions;
  context->operations.request_notification = RequestNotification;
  context->operations.post_send = FakePostSend;
  context->operations.post_receive = PostReceive;
  return context;
}

int ibv_close_device(Context* context) {
  close(context->async_fd);
  delete reinterpret_cast<ExtendedContext*>(reinterpret_cast<char*>(context) -
                                            offsetof(ExtendedContext, context));
  return 0;
}

int ibv_get_async_event(Context* /*context*/, AsyncEvent* /*event*/) {
  errno = EAGAIN;
  return -1;
}

void ibv_ack_async_event(AsyncEvent* /*event*/) {}

ProtectionDomain* ibv_alloc_pd(Context* context) {
  return new ProtectionDomain{context, 1};
}

int ibv_dealloc_pd(ProtectionDomain* domain) {
  delete domain;
  return 0;
}

MemoryRegion* ibv_reg_mr(ProtectionDomain* domain, void* address, size_t bytes, int access) {
  // The kernel pins what the processor may write to.
  if (bytes == 0 || madvise(address, bytes, MADV_POPULATE_WRITE) != 0) {
    errno = EFAULT;
    return nullptr;
  }
  auto region = std::make_unique<FakeRegion>();
  region->memory = static_cast<char*>(address);
  return Register(std::move(region), domain, address, bytes, access);
}

MemoryRegion* ibv_reg_dmabuf_mr(ProtectionDomain* domain, uint64_t offset, size_t bytes, uint64_t iova,
                                int fd, int access) {
  if (fd < 0 || lseek(fd, 0, SEEK_END) < static_cast<off_t>(offset + bytes)) {
    errno = fd < 0 ? EBADF : EINVAL;
    return nullptr;
  }
  auto region = std::make_unique<FakeRegion>();
  region->mapped = offset + bytes;
  region->of_gpu = true;
  region->memory =
      static_cast<char*>(mmap(nullptr, region->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  if (region->memory == MAP_FAILED) return nullptr;
  region->memory += offset;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the GPU's
  return Register(std::move(region), domain, reinterpret_cast<void*>(iova), bytes, access);
}

int ibv_dereg_mr(MemoryRegion* region) {
  const std::lock_guard<std::mutex> lock(TheWorld().mutex);
  auto* const own = static_cast<FakeRegion*>(region);
  TheWorld().regions.erase(own->local_key);
  if (own->mapped != 0) munmap(own->memory - (own->mapped - own->bytes), own->mapped);
  delete own;
  return 0;
}

CompletionChannel* ibv_create_comp_channel(Context* context) {
  return new CompletionChannel{context, eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE), 0};
}

int ibv_destroy_comp_channel(CompletionChannel* channel) {
  close(channel->fd);
  delete channel;
  return 0;
}

CompletionQueue* ibv_create_cq(Context* context, int entries, void* user, CompletionChannel* channel,
                               int /*vector*/) {
  auto* const queue = new FakeQueue;
  queue->context = context;
  queue->channel = channel;
  queue->user = user;
  queue->entries = entries;
  return queue;
}

int ibv_destroy_cq(CompletionQueue* queue) {
  delete static_cast<FakeQueue*>(queue);
  return 0;
}

// A channel has one queue here, whose owner asks for it.
int ibv_get_cq_event(CompletionChannel* channel, CompletionQueue** queue, void** user) {
  uint64_t events = 0;
  *queue = nullptr;
  *user = nullptr;
  return read(channel->fd, &events, sizeof events) == sizeof events ? 0 : -1;
}

void ibv_ack_cq_events(CompletionQueue* /*queue*/, unsigned /*count*/) {}

QueuePair* ibv_create_qp(ProtectionDomain* domain, QpInit* init) {
  QueuePair* const pair = FakeNewPair(domain->context, init->capacity, init->send_queue, init->receive_queue);
  pair->domain = domain;
  return pair;
}

int ibv_destroy_qp(QueuePair* queue_pair) {
  const std::lock_guard<std::mutex> lock(TheWorld().mutex);
  TheWorld().pairs.erase(queue_pair->number);
  delete static_cast<FakePair*>(queue_pair);
  return 0;
}

int ibv_modify_qp(QueuePair* queue_pair, QpAttributes* attributes, int mask) {
  const std::lock_guard<std::mutex> lock(TheWorld().mutex);
  auto* const pair = static_cast<FakePair*>(queue_pair);
  if ((mask & kMaskAddress) != 0 && attributes->address.route.flow_label != 0 &&
      getenv("FAKE_IB_REFUSES_LABELS") != nullptr) {
    return EINVAL;
  }
  if ((mask & kMaskPeerQpNumber) != 0) pair->peer = attributes->peer_number;
  if ((mask & kMaskState) == 0) return 0;
  if (pair->state == kError && attributes->state != kError) return EINVAL;
  if (attributes->state == kError) {
    FailPair(pair);
  } else {
    pair->state = attributes->state;
    Carry(pair);
  }
  return 0;
}

int ibv_query_qp(QueuePair* queue_pair, QpAttributes* attributes, int /*mask*/, QpInit* /*init*/) {
  const std::lock_guard<std::mutex> lock(TheWorld().mutex);
  attributes->state = queue_pair->state;
  return 0;
}
}
