#include "ccl/plugins/net/own_net.h"

#include <cerrno>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/base/kernel.h"
#include "ccl/base/log.h"

namespace c4::net {
namespace {

ncclResult_t Say(const Result& result) {
  if (!result.ok()) C4_WARN("%s", result.message().c_str());
  return result.code();
}

ncclResult_t Inherited() {
  C4_WARN("a forked process uses a network connection of its parent's: it has to make its own communicators");
  return ncclInvalidUsage;
}

// Whether it may be used says whoever carries the messages. Some callers try kinds that the properties do not
// offer, and go on without.
ncclResult_t RegisterFor(void* comm, void* data, size_t bytes, int kind, uint64_t offset, int fd,
                         void** memory) {
  *memory = nullptr;
  const auto* const user = static_cast<const Comm*>(comm);
  if (user->inherited()) return Inherited();
  const MemoryKind of = kind == abi::kHostPointer ? MemoryKind::kHost : MemoryKind::kCuda;
  std::unique_ptr<Registration> made;
  const Result registered = user->backend()->Register({data, of, -1, nullptr}, bytes, fd, offset, &made);
  if (!registered.ok()) C4_INFO("%s", registered.message().c_str());
  *memory = made.release();
  return registered.code();
}

Buffer BufferOf(void* data, void* memory) {
  return {data, static_cast<const Registration*>(memory)};
}

Result RandomNumber(uint64_t* number) {
  do {
    if (!FillRandom(number, sizeof *number)) {
      return Fail(ncclSystemError, "the system gives no random numbers: %s", ErrnoText(errno).c_str());
    }
  } while (*number == 0);
  return Ok();
}

SendComm* Sender(void* comm) {
  return static_cast<SendComm*>(static_cast<Comm*>(comm));
}
ReceiveComm* Receiver(void* comm) {
  return static_cast<ReceiveComm*>(static_cast<Comm*>(comm));
}

}  // namespace

const DeviceList& OwnNet::devices() {
  std::call_once(looked_, [this] { devices_ = std::make_unique<DeviceList>(sources_); });
  return *devices_;
}

// Asked of what connections would be made of, before there are any.
DeviceMemoryWays OwnNet::device_memory() {
  std::call_once(asked_, [this] {
    Backends backends = Backends::Make(false);
    Contact nobody;
    backends.Listen(&nobody);
    device_memory_ = backends.device_memory();
  });
  return device_memory_;
}

ncclResult_t OwnNet::Init(const InitCall& /*call*/, void** context) {
  *context = this;
  (void)devices();
  return ncclSuccess;
}

ncclResult_t OwnNet::Finalize(void* /*context*/) {
  return ncclSuccess;  // what there is belongs to comms, and ends with the last of them
}

ncclResult_t OwnNet::Devices(int* count) {
  *count = devices().count();
  return ncclSuccess;
}

ncclResult_t OwnNet::GetProperties(int device, DeviceProperties* properties) {
  if (devices().Properties(device, properties)) {
    const DeviceMemoryWays ways = device_memory();
    if (ways.by_address) properties->pointer_support |= abi::kCudaPointer;
    if (ways.by_dma_buf) properties->pointer_support |= abi::kDmaBufPointer;
    return ncclSuccess;
  }
  return Say(Fail(ncclInvalidArgument, "there is no network device %d", device));
}

ncclResult_t OwnNet::MakeVirtual(int* device, const Members& members) {
  (void)devices();
  return Say(devices_->Merge(members, device));
}

ncclResult_t OwnNet::SetAttributes(void* /*context*/, const abi::Attributes11& /*attributes*/) {
  return ncclSuccess;  // hints of how many peers there will be, which change nothing here
}

Result OwnNet::Enter() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (service_ == nullptr) {
    auto made = std::make_unique<Service>([this](uint64_t now_ns) { Reap(now_ns); });
    C4_RETURN_IF_ERROR(made->Start());
    service_ = std::move(made);
  }
  ++users_;
  return Ok();
}

void OwnNet::Exit() {
  GiveIdentityBack();
  std::unique_ptr<Service> ended;
  std::map<int, std::shared_ptr<Gate>> closed;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--users_ > 0) return;
    ended = std::move(service_);
    closed.swap(gates_);
  }
  ended->Stop();  // waits for its thread, which may want the lock
}

Result OwnNet::Open(int device, ListenerInfo* info, ListenComm* listen) {
  const std::vector<SocketAddress> addresses = devices().Addresses(device);
  if (addresses.empty()) return Fail(ncclInvalidArgument, "there is no network device %d", device);
  C4_RETURN_IF_ERROR(RandomNumber(&info->number));
  const std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<Gate>& gate = gates_[device];
  if (gate == nullptr) {
    std::unique_ptr<Gate> opened;
    C4_RETURN_IF_ERROR(Gate::Open(addresses, &service_->backends(), &opened));
    gate = std::move(opened);
    service_->Add(gate);
  }
  gate->Expect(info->number);
  info->takes = service_->takes();
  info->addresses = gate->addresses();
  *listen = {Forks(), info->number, device, gate};
  return Ok();
}

ncclResult_t OwnNet::Listen(void* /*context*/, int device, void* handle, void** listen) {
  *listen = nullptr;
  if (const Result entered = Enter(); !entered.ok()) return Say(entered);
  const Identity identity = TakeIdentity();
  ListenerInfo info;
  info.rank = identity.rank;
  info.rank_count = identity.rank_count;
  auto made = std::make_unique<ListenComm>();
  if (const Result opened = Open(device, &info, made.get()); !opened.ok()) {
    Exit();
    return Say(opened);
  }
  WriteHandle(info, handle);
  *listen = made.release();
  return ncclSuccess;
}

Result OwnNet::Begin(int device, const void* handle, std::shared_ptr<SendComm>* comm) {
  const std::vector<SocketAddress> own = devices().Addresses(device);
  if (own.empty()) return Fail(ncclInvalidArgument, "there is no network device %d", device);
  ListenerInfo listener;
  C4_RETURN_IF_ERROR(ReadHandle(handle, &listener));
  C4_RETURN_IF_ERROR(Enter());
  const Identity identity = TakeIdentity();
  const std::lock_guard<std::mutex> lock(mutex_);
  *comm = std::make_shared<SendComm>(identity, next_channel_++, listener, service_->backends(), own,
                                     devices().count() > 1, service_->selector(), service_->wake_fd());
  service_->Add(*comm);
  return Ok();
}

ncclResult_t OwnNet::Connect(void* /*context*/, int device, abi::CommConfig* /*config*/, void* handle,
                             void** comm, abi::DeviceHandle** /*offload*/) {
  *comm = nullptr;
  std::shared_ptr<SendComm> pending;
  if (const uint64_t number = PendingOf(handle); number != 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = pending_.find(number);
    if (found != pending_.end()) pending = found->second;
  }
  if (pending == nullptr) {
    if (const Result begun = Begin(device, handle, &pending); !begun.ok()) return Say(begun);
    const std::lock_guard<std::mutex> lock(mutex_);
    SetPending(handle, next_pending_);
    pending_[next_pending_++] = pending;
  }
  bool ready = false;
  const ncclResult_t result = pending->Connect(&ready);
  if (result == ncclSuccess && !ready) return ncclSuccess;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    pending_.erase(PendingOf(handle));
  }
  SetPending(handle, 0);
  if (result == ncclSuccess) {
    *comm = static_cast<Comm*>(pending.get());
  } else {
    CloseComm(pending.get());
  }
  return result;
}

ncclResult_t OwnNet::Accept(void* listen, void** comm, abi::DeviceHandle** /*offload*/) {
  *comm = nullptr;
  auto* const from = static_cast<ListenComm*>(listen);
  if (from->forks != Forks()) return Inherited();
  if (const Result entered = Enter(); !entered.ok()) return Say(entered);
  const Identity identity = TakeIdentity();
  std::shared_ptr<ReceiveComm> made;
  Result attached;
  const Result taken = from->gate->Take(
      from->number, [&](const ConnectionKey& key, Backend* backend, std::vector<Accepted> queue_pairs) {
        made = std::make_shared<ReceiveComm>(identity, from->gate, key);
        attached = made->Attach(backend, std::move(queue_pairs));
        if (!attached.ok()) made.reset();
        return made.get();
      });
  if (made == nullptr) {
    Exit();
    return Say(taken.ok() ? attached : taken);
  }
  *comm = static_cast<Comm*>(made.get());
  const std::lock_guard<std::mutex> lock(mutex_);
  service_->Add(std::move(made));
  return ncclSuccess;
}

ncclResult_t OwnNet::Register(void* comm, void* data, size_t bytes, int kind, void** memory) {
  return RegisterFor(comm, data, bytes, kind, 0, -1, memory);
}

ncclResult_t OwnNet::RegisterDmaBuf(void* comm, void* data, size_t bytes, int kind, uint64_t offset, int fd,
                                    void** memory) {
  return RegisterFor(comm, data, bytes, kind, offset, fd, memory);
}

ncclResult_t OwnNet::Deregister(void* /*comm*/, void* memory) {
  delete static_cast<Registration*>(memory);
  return ncclSuccess;
}

ncclResult_t OwnNet::DeviceMemory(void* /*comm*/, void* /*memory*/, void** /*device_memory*/) {
  return ncclInvalidUsage;  // for devices that offload, which none of ours does
}

ncclResult_t OwnNet::Send(void* comm, void* data, size_t bytes, int tag, void* memory, void* /*profiled*/,
                          void** request) {
  *request = nullptr;
  if (Sender(comm)->inherited()) return Inherited();
  return Sender(comm)->Send(BufferOf(data, memory), bytes, tag, request);
}

// A request that enters as kOptionalCompletion is completed like any other.
ncclResult_t OwnNet::Receive(void* comm, int count, void** data, const size_t* bytes, int* tags,
                             void** memory, void** /*profiled*/, void** request) {
  *request = nullptr;
  if (Receiver(comm)->inherited()) return Inherited();
  if (count < 1 || count > kMostReceives) {
    return Say(Fail(ncclInvalidArgument, "a receive of %d messages: 1 to %d", count, kMostReceives));
  }
  Buffer to[kMostReceives];
  for (int i = 0; i < count; ++i) to[i] = BufferOf(data[i], memory == nullptr ? nullptr : memory[i]);
  return Receiver(comm)->Receive(count, to, bytes, tags, request);
}

// Host memory is there when the message is, and so is nothing.
ncclResult_t OwnNet::Flush(void* comm, int count, void** data, int* bytes, void** memory, void** request) {
  *request = nullptr;
  if (Receiver(comm)->inherited()) return Inherited();
  if (count < 0 || count > kMostReceives) {
    return Say(Fail(ncclInvalidArgument, "a flush of %d messages: up to %d", count, kMostReceives));
  }
  Buffer written[kMostReceives];
  int wanted = 0;
  for (int i = 0; i < count && memory != nullptr; ++i) {
    if (bytes[i] > 0) written[wanted++] = BufferOf(data[i], memory[i]);
  }
  return Receiver(comm)->Flush(wanted, written, request);
}

ncclResult_t OwnNet::Test(void* request, int* done, int* bytes) {
  auto* const under_way = static_cast<Request*>(request);
  if (under_way->comm->inherited()) return Inherited();
  return under_way->comm->Test(under_way, done, bytes);
}

ncclResult_t OwnNet::Consumed(void* /*comm*/, int /*count*/, void* /*request*/) {
  return ncclSuccess;
}

void OwnNet::CloseComm(Comm* comm) {
  std::shared_ptr<Comm> held;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    held = service_->Remove(comm);
  }
  if (held == nullptr) return;
  held->Close();
  Exit();
}

ncclResult_t OwnNet::CloseSend(void* comm) {
  if (comm != nullptr && !Sender(comm)->inherited()) CloseComm(Sender(comm));
  return ncclSuccess;
}

ncclResult_t OwnNet::CloseReceive(void* comm) {
  if (comm == nullptr || Receiver(comm)->inherited()) return ncclSuccess;
  Receiver(comm)->LeaveGate();
  CloseComm(Receiver(comm));
  return ncclSuccess;
}

ncclResult_t OwnNet::CloseListen(void* listen) {
  auto* const from = static_cast<ListenComm*>(listen);
  if (from == nullptr || from->forks != Forks()) return ncclSuccess;
  const std::unique_ptr<ListenComm> owned(from);
  owned->gate->StopExpecting(owned->number);
  Exit();
  return ncclSuccess;
}

// Connections that somebody began to make and forgot.
void OwnNet::Reap(uint64_t now_ns) {
  std::vector<std::shared_ptr<Comm>> forgotten;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = pending_.begin(); it != pending_.end();) {
      if (!it->second->abandoned(now_ns)) {
        ++it;
        continue;
      }
      forgotten.push_back(it->second);
      if (service_ != nullptr) (void)service_->Remove(it->second.get());
      --users_;  // the thread ends with the next comm that is closed: it cannot wait for itself
      it = pending_.erase(it);
    }
  }
  for (const auto& comm : forgotten) {
    comm->Close();
    GiveIdentityBack();
  }
}

}  // namespace c4::net
