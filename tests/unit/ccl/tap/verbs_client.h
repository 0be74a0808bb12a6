// A program that looks verbs up, on the double of libibverbs.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "ccl/tap/extended_abi.h"
#include "ccl/tap/tap.h"
#include "ccl/tap/verbs_calls.h"

namespace c4::tap {

// What a client of verbs has: functions that it looked up by itself.
struct Client {
  explicit Client(bool tapped) {
    const std::string doubles = std::string(getenv("C4_BUILD_DIR")) + "/tests/doubles/";
    void* const looker = dlopen((doubles + "fake_looker_now.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(looker, nullptr) << dlerror();
    if (tapped) {
      const Result installed = Install(looker);
      EXPECT_TRUE(installed.ok()) << installed.message();
    }
    const auto look = reinterpret_cast<void* (*)(void*, const char*)>(dlsym(looker, "looker_dlsym"));
    void* const verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(verbs, nullptr) << dlerror();
    const auto find = [&](const char* symbol, auto* function) {
      *reinterpret_cast<void**>(function) = look(verbs, symbol);
      EXPECT_NE(*function, nullptr) << symbol;
    };
    find("ibv_get_device_list", &get_device_list);
    find("ibv_open_device", &open_device);
    find("ibv_close_device", &close_device);
    find("ibv_query_gid", &query_gid);
    find("ibv_alloc_pd", &alloc_pd);
    find("ibv_reg_mr", &reg_mr);
    find("ibv_create_cq", &create_cq);
    find("ibv_destroy_cq", &destroy_cq);
    find("ibv_create_qp", &create_qp);
    find("ibv_destroy_qp", &destroy_qp);
    find("ibv_modify_qp", &modify_qp);
    int count = 0;
    context = open_device(get_device_list(&count)[0]);
    domain = alloc_pd(context);
    region = reg_mr(domain, memory, kBytes, abi::kLocalWrite | abi::kRemoteWrite);
    EXPECT_TRUE(Uninstall().ok());
  }
  ~Client() {
    close_device(context);
    free(memory);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  struct Pair {
    abi::CompletionQueue* queue;
    abi::QueuePair* pair;
  };
  Pair Make() {
    abi::CompletionQueue* const queue = create_cq(context, 64, nullptr, nullptr, 0);
    abi::QpInit init{};
    init.send_queue = init.receive_queue = queue;
    init.capacity = {16, 16, 1, 1, 0};
    init.type = abi::kReliableConnection;
    return {queue, create_qp(domain, &init)};
  }
  Pair MakeExtended() {
    abi::CompletionQueue* const queue = create_cq(context, 64, nullptr, nullptr, 0);
    abi::QpInitExtended init{};
    init.send_queue = init.receive_queue = queue;
    init.capacity = {16, 16, 1, 1, 0};
    init.type = abi::kReliableConnection;
    init.mask = abi::kInitSendCalls;
    auto* const extended = reinterpret_cast<abi::ExtendedContext*>(reinterpret_cast<char*>(context) -
                                                                   offsetof(abi::ExtendedContext, context));
    return {queue, extended->create_qp(context, &init)};
  }
  // `count` signaled writes in one go, with ids from `id`.
  int WriteByCalls(abi::ExtendedQueuePair* pair, uint64_t id, int count, uint32_t bytes) const {
    pair->calls.start(pair);
    for (int i = 0; i < count; ++i) {
      pair->id = id + static_cast<uint64_t>(i);
      pair->flags = abi::kSignaled;
      pair->calls.write(pair, region->remote_key, reinterpret_cast<uint64_t>(memory) + 65536);
      pair->calls.set_piece(pair, region->local_key, reinterpret_cast<uint64_t>(memory), bytes);
    }
    return pair->calls.complete(pair);
  }
  void Connect(const Pair& from, const Pair& to, uint32_t flow_label) {
    abi::QpAttributes attributes{};
    attributes.state = abi::kReadyToReceive;
    attributes.peer_number = to.pair->number;
    attributes.address.is_global = 1;
    attributes.address.port_number = 1;
    attributes.address.route.flow_label = flow_label;
    query_gid(context, 1, 0, &attributes.address.route.destination);
    EXPECT_EQ(modify_qp(from.pair, &attributes, abi::kMaskState | abi::kMaskAddress | abi::kMaskPeerQpNumber),
              0);
    attributes = {};
    attributes.state = abi::kReadyToSend;
    EXPECT_EQ(modify_qp(from.pair, &attributes, abi::kMaskState), 0);
  }
  int Write(const Pair& pair, uint64_t id, uint32_t bytes, bool signaled, int opcode = abi::kOpWrite,
            uint32_t key_off = 0) {
    abi::Piece piece{reinterpret_cast<uint64_t>(memory), bytes, region->local_key};
    abi::SendRequest request{};
    request.id = id;
    request.pieces = &piece;
    request.piece_count = 1;
    request.opcode = opcode;
    request.flags = signaled ? abi::kSignaled : 0u;
    request.remote_address = reinterpret_cast<uint64_t>(memory) + 65536;
    request.remote_key = region->remote_key + key_off;
    abi::SendRequest* failed = nullptr;
    return context->operations.post_send(pair.pair, &request, &failed);
  }
  int Receive(const Pair& pair, uint64_t id) {
    abi::Piece piece{reinterpret_cast<uint64_t>(memory), 4096, region->local_key};
    abi::ReceiveRequest request{id, nullptr, &piece, 1};
    abi::ReceiveRequest* failed = nullptr;
    return context->operations.post_receive(pair.pair, &request, &failed);
  }
  std::vector<abi::Completion> Poll(const Pair& pair) const {
    std::vector<abi::Completion> completions(16);
    const int polled = context->operations.poll_completions(pair.queue, 16, completions.data());
    completions.resize(static_cast<size_t>(std::max(polled, 0)));
    return completions;
  }

  abi::Device** (*get_device_list)(int*) = nullptr;
  abi::Context* (*open_device)(abi::Device*) = nullptr;
  int (*close_device)(abi::Context*) = nullptr;
  int (*query_gid)(abi::Context*, uint8_t, int, abi::Gid*) = nullptr;
  abi::ProtectionDomain* (*alloc_pd)(abi::Context*) = nullptr;
  abi::MemoryRegion* (*reg_mr)(abi::ProtectionDomain*, void*, size_t, int) = nullptr;
  abi::CompletionQueue* (*create_cq)(abi::Context*, int, void*, abi::CompletionChannel*, int) = nullptr;
  int (*destroy_cq)(abi::CompletionQueue*) = nullptr;
  abi::QueuePair* (*create_qp)(abi::ProtectionDomain*, abi::QpInit*) = nullptr;
  int (*destroy_qp)(abi::QueuePair*) = nullptr;
  int (*modify_qp)(abi::QueuePair*, abi::QpAttributes*, int) = nullptr;

  static constexpr size_t kBytes = 1 << 17;
  char* const memory = static_cast<char*>(aligned_alloc(4096, kBytes));
  abi::Context* context = nullptr;
  abi::ProtectionDomain* domain = nullptr;
  abi::MemoryRegion* region = nullptr;
};

}  // namespace c4::tap
