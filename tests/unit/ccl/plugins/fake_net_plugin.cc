// A network plugin of somebody else's, of the version that FAKE_NET_VERSION says: messages go through memory
// of this process. It says "call again" before everything that may be called again, and has none of the
// optional calls. One thread.
#include <algorithm>
#include <cstring>
#include <deque>
#include <type_traits>
#include <vector>

#include "ccl/plugins/net/abi.h"

namespace c4::net::test {
namespace {

using namespace abi;  // NOLINT(google-build-using-namespace)

struct Message {
  int tag;
  std::vector<char> data;
};
struct Pipe {
  std::deque<Message> messages;
  int connects = 0;
  int accepts = 0;
  bool again = true;
};
struct Request {
  Pipe* pipe = nullptr;  // null: done
  std::vector<void*> data;
  std::vector<int> tags;
  std::vector<size_t> bytes;
};

#if FAKE_NET_VERSION == 6
using Properties = Properties6;
using Table = Net6;
#elif FAKE_NET_VERSION == 7
using Properties = Properties7;
using Table = Net7;
#elif FAKE_NET_VERSION == 8
using Properties = Properties8;
using Table = Net8;
#elif FAKE_NET_VERSION == 9
using Properties = Properties9;
using Table = Net9;
#elif FAKE_NET_VERSION == 10
using Properties = Properties9;
using Table = Net10;
#elif FAKE_NET_VERSION == 11
using Properties = Properties11;
using Table = Net11;
#else
using Properties = Properties12;
using Table = Net12;
#endif

ncclResult_t FakeDevices(int* count) {
  *count = 3;
  return ncclSuccess;
}
template <typename P>
ncclResult_t FakeGetProperties(int device, P* properties) {
  static char name[] = "fake0";
  *properties = P{};
  properties->name = name;
  properties->guid = 100 + static_cast<uint64_t>(device);
  properties->pointer_support = kHostPointer | kCudaPointer;
  properties->speed = 400000;
  properties->max_comms = 17;
  properties->max_recvs = 8;
  if constexpr (requires { properties->max_p2p_bytes; }) {
    properties->members = {1, {device}};
    properties->max_p2p_bytes = size_t{1} << 40;
  }
  return ncclSuccess;
}
ncclResult_t FakeListen(void* handle, void** listen) {
  auto* const pipe = new Pipe;
  memset(handle, 0, kHandleBytes);
  memcpy(handle, &pipe, sizeof(void*));
  *listen = pipe;
  return ncclSuccess;
}
ncclResult_t FakeConnect(void* handle, void** comm) {
  Pipe* pipe = nullptr;
  memcpy(&pipe, handle, sizeof(void*));
  *comm = pipe->connects++ == 0 ? nullptr : pipe;
  return ncclSuccess;
}
ncclResult_t FakeAccept(void* listen, void** comm) {
  auto* const pipe = static_cast<Pipe*>(listen);
  *comm = pipe->accepts++ == 0 ? nullptr : pipe;
  return ncclSuccess;
}
// The handle of memory shows whose comm it was registered with.
ncclResult_t FakeRegister(void* comm, void** memory) {
  *memory = comm;
  return ncclSuccess;
}
ncclResult_t FakeDeregister(void* comm, void* memory) {
  return comm == memory ? ncclSuccess : ncclInternalError;
}
ncclResult_t FakeSend(void* comm, const void* data, size_t bytes, int tag, void** request) {
  auto* const pipe = static_cast<Pipe*>(comm);
  pipe->again = !pipe->again;
  *request = nullptr;
  if (!pipe->again) return ncclSuccess;
  const auto* const from = static_cast<const char*>(data);
  pipe->messages.push_back({tag, std::vector<char>(from, from + bytes)});
  *request = new Request{nullptr, {}, {}, {bytes}};
  return ncclSuccess;
}
template <typename Size>
ncclResult_t FakeReceive(void* comm, int count, void** data, const Size* bytes, const int* tags,
                         void** request) {
  auto* const made =
      new Request{static_cast<Pipe*>(comm), std::vector<void*>(data, data + count), {tags, tags + count}, {}};
  (void)bytes;
  made->bytes.resize(static_cast<size_t>(count));
  *request = made;
  return ncclSuccess;
}
ncclResult_t FakeFlush(void*, int, void**, int*, void**, void** request) {
  *request = new Request{nullptr, {}, {}, {}};
  return ncclSuccess;
}
ncclResult_t FakeTest(void* request, int* done, int* bytes) {
  auto* const made = static_cast<Request*>(request);
  *done = 0;
  for (size_t i = 0; made->pipe != nullptr && i < made->tags.size(); ++i) {
    if (made->data[i] == nullptr) continue;
    auto& messages = made->pipe->messages;
    const auto found = std::find_if(messages.begin(), messages.end(),
                                    [&](const Message& message) { return message.tag == made->tags[i]; });
    if (found == messages.end()) return ncclSuccess;
    std::copy(found->data.begin(), found->data.end(), static_cast<char*>(made->data[i]));
    made->bytes[i] = found->data.size();
    made->data[i] = nullptr;
    messages.erase(found);
  }
  for (size_t i = 0; bytes != nullptr && i < made->bytes.size(); ++i)
    bytes[i] = static_cast<int>(made->bytes[i]);
  *done = 1;
  delete made;
  return ncclSuccess;
}
ncclResult_t FakeCloseListen(void* listen) {
  delete static_cast<Pipe*>(listen);
  return ncclSuccess;
}

template <typename Call>
inline constexpr bool kIsWide = std::is_same_v<Call, Register>;

template <typename T>
constexpr T MakeTable() {
  T table{};
  table.name = "Fake";
  if constexpr (std::is_same_v<decltype(table.init), Init11>) {
    table.init = [](void** context, uint64_t, CommConfig*, Logger, ProfilerCallback) {
      *context = context;
      return ncclSuccess;
    };
    table.finalize = [](void* context) { return context == nullptr ? ncclInternalError : ncclSuccess; };
  } else if constexpr (std::is_same_v<decltype(table.init), Init10>) {
    table.init = [](Logger, ProfilerCallback) { return ncclSuccess; };
  } else {
    table.init = [](Logger) { return ncclSuccess; };
  }
  table.devices = FakeDevices;
  table.get_properties = FakeGetProperties<Properties>;
  if constexpr (std::is_same_v<decltype(table.listen), Listen11>) {
    table.listen = [](void*, int, void* handle, void** listen) { return FakeListen(handle, listen); };
  } else {
    table.listen = [](int, void* handle, void** listen) { return FakeListen(handle, listen); };
  }
  if constexpr (std::is_same_v<decltype(table.connect), Connect11>) {
    table.connect = [](void*, int, void* handle, void** comm, DeviceHandle**) {
      return FakeConnect(handle, comm);
    };
  } else if constexpr (std::is_same_v<decltype(table.connect), Connect10>) {
    table.connect = [](int, CommConfig* config, void* handle, void** comm, DeviceHandle**) {
      return config == nullptr ? ncclInternalError : FakeConnect(handle, comm);
    };
  } else if constexpr (std::is_same_v<decltype(table.connect), Connect7>) {
    table.connect = [](int, void* handle, void** comm, DeviceHandle**) { return FakeConnect(handle, comm); };
  } else {
    table.connect = [](int, void* handle, void** comm) { return FakeConnect(handle, comm); };
  }
  if constexpr (std::is_same_v<decltype(table.accept), Accept7>) {
    table.accept = [](void* listen, void** comm, DeviceHandle**) { return FakeAccept(listen, comm); };
  } else {
    table.accept = FakeAccept;
  }
  if constexpr (kIsWide<decltype(table.register_memory)>) {
    table.register_memory = [](void* comm, void*, size_t, int, void** memory) {
      return FakeRegister(comm, memory);
    };
  } else {
    table.register_memory = [](void* comm, void*, int, int, void** memory) {
      return FakeRegister(comm, memory);
    };
  }
  table.deregister = FakeDeregister;
  if constexpr (std::is_same_v<decltype(table.send), Send10>) {
    table.send = [](void* comm, void* data, size_t bytes, int tag, void*, void*, void** request) {
      return FakeSend(comm, data, bytes, tag, request);
    };
    table.receive = [](void* comm, int count, void** data, size_t* bytes, int* tags, void**, void** profiled,
                       void** request) {
      return profiled == nullptr ? ncclInternalError : FakeReceive(comm, count, data, bytes, tags, request);
    };
  } else if constexpr (std::is_same_v<decltype(table.send), Send9>) {
    table.send = [](void* comm, void* data, size_t bytes, int tag, void*, void** request) {
      return FakeSend(comm, data, bytes, tag, request);
    };
    table.receive = [](void* comm, int count, void** data, size_t* bytes, int* tags, void**, void** request) {
      return FakeReceive(comm, count, data, bytes, tags, request);
    };
  } else {
    table.send = [](void* comm, void* data, int bytes, int tag, void*, void** request) {
      return FakeSend(comm, data, static_cast<size_t>(bytes), tag, request);
    };
    table.receive = [](void* comm, int count, void** data, int* bytes, int* tags, void**, void** request) {
      return FakeReceive(comm, count, data, bytes, tags, request);
    };
  }
  table.flush = FakeFlush;
  table.test = FakeTest;
  table.close_send = table.close_receive = [](void*) { return ncclSuccess; };
  table.close_listen = FakeCloseListen;
  return table;
}

}  // namespace
}  // namespace c4::net::test

#define FAKE_JOIN_AGAIN(a, b) a##b
#define FAKE_JOIN(a, b) FAKE_JOIN_AGAIN(a, b)
extern "C" __attribute__((visibility("default")))
c4::net::test::Table FAKE_JOIN(ncclNetPlugin_v, FAKE_NET_VERSION);
c4::net::test::Table FAKE_JOIN(ncclNetPlugin_v,
                               FAKE_NET_VERSION) = c4::net::test::MakeTable<c4::net::test::Table>();

// As network plugins of clouds have one. Nobody calls it here.
extern "C" __attribute__((visibility("default"))) const char* const ncclTunerPlugin_v4[8] = {"Fake"};
