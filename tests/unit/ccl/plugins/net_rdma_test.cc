// The network plugin over RDMA with memory of GPUs, on a double of libibverbs whose GPU memory the processor
// cannot touch, and in which nothing that was written is to be seen before a flush.
#include <algorithm>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <vector>

#include "tests/double/fake_ibverbs.h"
#include "tests/unit/ccl/plugins/nccl_core.h"

namespace c4::net::test {
namespace {

constexpr size_t kRoom = 600000;
constexpr int kTag = 3;

template <typename Function>
Function* OfDouble(const char* name) {
  void* const library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(library, nullptr) << "the double is not what was opened";
  return reinterpret_cast<Function*>(dlsym(library, name));
}

class NetRdma : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(core_->Init(&context_), ncclSuccess);
    abi::Properties12 properties;
    ASSERT_EQ(core_->Properties(0, &properties), ncclSuccess);
    support_ = properties.pointer_support;
    ASSERT_NO_FATAL_FAILURE(ends_.Connect(core_.get(), context_));
  }
  void TearDown() override {
    ends_.Close(core_.get());
    EXPECT_EQ(core_->Finalize(context_), ncclSuccess);
    for (const FakeGpuMemory& memory : gpu_) {
      OfDouble<decltype(fake_ib_free_gpu_memory)>("fake_ib_free_gpu_memory")(memory, kRoom);
    }
  }

  // Memory of one kind, registered with an end of the connection.
  struct Place {
    void* comm = nullptr;
    void* address = nullptr;
    char* seen = nullptr;
    void* handle = nullptr;
  };
  Place Make(void* comm, bool of_gpu) {
    Place place;
    place.comm = comm;
    if (!of_gpu) {
      host_.emplace_back(kRoom);
      place.address = place.seen = host_.back().data();
      EXPECT_EQ(net_.register_memory(comm, place.address, kRoom, abi::kHostPointer, &place.handle),
                ncclSuccess);
      return place;
    }
    gpu_.push_back(OfDouble<decltype(fake_ib_gpu_memory)>("fake_ib_gpu_memory")(kRoom));
    place.address = gpu_.back().address;
    place.seen = static_cast<char*>(gpu_.back().seen);
    EXPECT_EQ(net_.register_dma_buf(comm, place.address, kRoom, abi::kCudaPointer, 0, gpu_.back().dma_buf,
                                    &place.handle),
              ncclSuccess);
    return place;
  }
  void Drop(const Place& place) { EXPECT_EQ(net_.deregister(place.comm, place.handle), ncclSuccess); }
  static uint64_t Flushes() { return OfDouble<decltype(fake_ib_flushes)>("fake_ib_flushes")(); }

  void Carry(const Place& from, const Place& to, size_t bytes) {
    void* data = to.address;
    void* handle = to.handle;
    size_t room = kRoom;
    int tag = kTag;
    void* received = nullptr;
    ASSERT_EQ(net_.receive(ends_.receive, 1, &data, &room, &tag, &handle, nullptr, &received), ncclSuccess);
    void* sent = nullptr;
    while (sent == nullptr) {
      ASSERT_EQ(net_.send(ends_.send, from.address, bytes, tag, from.handle, nullptr, &sent), ncclSuccess);
    }
    ASSERT_NO_FATAL_FAILURE(Complete(core_.get(), {sent, received}));
  }
  void Flush(const Place& place, size_t bytes) {
    void* data = place.address;
    void* handle = place.handle;
    auto count = static_cast<int>(bytes);
    void* request = nullptr;
    ASSERT_EQ(net_.flush(ends_.receive, 1, &data, &count, &handle, &request), ncclSuccess);
    if (request == nullptr) return;
    ASSERT_NO_FATAL_FAILURE(Complete(core_.get(), {request}));
  }

  const std::unique_ptr<Core> core_ = CoreOf(12);
  abi::Net12& net_ = ncclNetPlugin_v12;
  void* context_ = nullptr;
  int support_ = 0;
  Ends ends_;
  std::deque<std::vector<char>> host_;
  std::vector<FakeGpuMemory> gpu_;
};

TEST_F(NetRdma, OffersTheWayThatAProbeFound) {
  EXPECT_EQ(support_, abi::kHostPointer | abi::kDmaBufPointer);
}

// Every pair of kinds: sizes that go inline where they may, and several chunks.
TEST_F(NetRdma, CarriesBetweenHostAndGpu) {
  for (const bool from_gpu : {false, true}) {
    for (const bool to_gpu : {false, true}) {
      const Place from = Make(ends_.send, from_gpu);
      const Place to = Make(ends_.receive, to_gpu);
      for (const size_t bytes : {size_t{1}, size_t{8}, size_t{0}, size_t{4096}, size_t{131073}, kRoom}) {
        SCOPED_TRACE(testing::Message() << from_gpu << to_gpu << " " << bytes);
        for (size_t i = 0; i < bytes; ++i) from.seen[i] = static_cast<char>(i * 7 + bytes);
        memset(to.seen, '~', kRoom);
        ASSERT_NO_FATAL_FAILURE(Carry(from, to, bytes));
        if (to_gpu && bytes != 0) {
          EXPECT_EQ(to.seen[0], '~') << "the double shows what was not flushed";
        }
        ASSERT_NO_FATAL_FAILURE(Flush(to, bytes));
        EXPECT_EQ(memcmp(to.seen, from.seen, bytes), 0);
        EXPECT_TRUE(std::all_of(to.seen + bytes, to.seen + kRoom, [](char c) { return c == '~'; }));
      }
      Drop(from);
      Drop(to);
    }
  }
}

TEST_F(NetRdma, FlushesOnlyWhatAGpuHasToSee) {
  const Place host = Make(ends_.receive, false);
  const Place from = Make(ends_.send, false);
  const Place gpu = Make(ends_.receive, true);
  ASSERT_NO_FATAL_FAILURE(Carry(from, gpu, 100));
  const uint64_t before = Flushes();
  ASSERT_NO_FATAL_FAILURE(Flush(host, 100));
  ASSERT_NO_FATAL_FAILURE(Flush(gpu, 0));
  EXPECT_EQ(Flushes(), before);
  ASSERT_NO_FATAL_FAILURE(Flush(gpu, 100));
  EXPECT_EQ(Flushes(), before + 1);
  for (const Place& place : {host, from, gpu}) Drop(place);
}

// As many as NCCL may have under way, called for before any of them ended.
TEST_F(NetRdma, ManyFlushesAtATime) {
  const Place from = Make(ends_.send, true);
  const Place to = Make(ends_.receive, true);
  ASSERT_NO_FATAL_FAILURE(Carry(from, to, 5000));
  const uint64_t before = Flushes();
  std::vector<void*> requests;
  for (int i = 0; i < 200; ++i) {
    void* data = to.address;
    void* handle = to.handle;
    int bytes = 5000;
    void* request = nullptr;
    ASSERT_EQ(net_.flush(ends_.receive, 1, &data, &bytes, &handle, &request), ncclSuccess);
    if (request != nullptr) requests.push_back(request);
  }
  EXPECT_FALSE(requests.empty()) << "the double ends reads at once";
  ASSERT_NO_FATAL_FAILURE(Complete(core_.get(), requests));
  EXPECT_EQ(Flushes(), before + 200);
  Drop(from);
  Drop(to);
}

// The connection is of use afterwards.
TEST_F(NetRdma, RefusesMemoryThatCannotBeRegistered) {
  const FakeGpuMemory memory = OfDouble<decltype(fake_ib_gpu_memory)>("fake_ib_gpu_memory")(kRoom);
  void* handle = nullptr;
  EXPECT_EQ(net_.register_memory(ends_.send, memory.address, kRoom, abi::kCudaPointer, &handle),
            ncclInvalidArgument)
      << "no module that would know the address";
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(net_.register_dma_buf(ends_.send, memory.address, kRoom, abi::kCudaPointer, 4096, memory.dma_buf,
                                  &handle),
            ncclSystemError)
      << "the dma-buf is shorter";
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(net_.register_memory(ends_.send, memory.address, kRoom, abi::kHostPointer, &handle),
            ncclInvalidArgument)
      << "what the processor cannot touch is no host memory";
  OfDouble<decltype(fake_ib_free_gpu_memory)>("fake_ib_free_gpu_memory")(memory, kRoom);
  const Place from = Make(ends_.send, true);
  const Place to = Make(ends_.receive, true);
  memset(from.seen, 'x', 100);
  ASSERT_NO_FATAL_FAILURE(Carry(from, to, 100));
  ASSERT_NO_FATAL_FAILURE(Flush(to, 100));
  EXPECT_EQ(memcmp(to.seen, from.seen, 100), 0);
  Drop(from);
  Drop(to);
}

}  // namespace
}  // namespace c4::net::test
