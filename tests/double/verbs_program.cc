// verbs_program COUNT EXIT [fork | until FILE]: a program that uses verbs, for tests of what is preloaded
// into it. Writes COUNT times to itself on the double of libibverbs, with `fork` once more in a child, waits
// until FILE is there (at most a minute), leaves its queue pair where it is, and ends with EXIT; with 99
// where something failed.
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ccl/transport/verbs/abi.h"

namespace {

namespace abi = c4::verbs::abi;

// As if it were linked to verbs through a plugin: what is preloaded comes first, verbs are nobody else's.
template <typename Function>
Function Look(const char* symbol) {
  static void* const verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  void* const preloaded = dlsym(RTLD_DEFAULT, symbol);
  return reinterpret_cast<Function>(preloaded != nullptr ? preloaded : dlsym(verbs, symbol));
}

// Makes a queue pair that writes `count` times to itself, and leaves it where it is. The number of its
// completions; below 0: something failed.
int WriteToItself(int count) {
  int devices = 0;
  abi::Device** const list = Look<abi::Device** (*)(int*)>("ibv_get_device_list")(&devices);
  abi::Context* const context = Look<abi::Context* (*)(abi::Device*)>("ibv_open_device")(list[0]);
  abi::ProtectionDomain* const domain =
      Look<abi::ProtectionDomain* (*)(abi::Context*)>("ibv_alloc_pd")(context);
  alignas(4096) static char memory[8192];
  abi::MemoryRegion* const region = Look<abi::MemoryRegion* (*)(abi::ProtectionDomain*, void*, size_t, int)>(
      "ibv_reg_mr")(domain, memory, sizeof memory, abi::kLocalWrite | abi::kRemoteWrite);
  abi::CompletionQueue* const queue = Look<abi::CompletionQueue* (*)(abi::Context*, int, void*, void*, int)>(
      "ibv_create_cq")(context, 64, nullptr, nullptr, 0);
  abi::QpInit init{};
  init.send_queue = init.receive_queue = queue;
  init.capacity = {16, 16, 1, 1, 0};
  init.type = abi::kReliableConnection;
  abi::QueuePair* const pair =
      Look<abi::QueuePair* (*)(abi::ProtectionDomain*, abi::QpInit*)>("ibv_create_qp")(domain, &init);
  abi::QpAttributes attributes{};
  attributes.state = abi::kReadyToReceive;
  attributes.peer_number = pair->number;
  attributes.address.is_global = 1;
  attributes.address.port_number = 1;
  const auto modify = Look<int (*)(abi::QueuePair*, abi::QpAttributes*, int)>("ibv_modify_qp");
  if (modify(pair, &attributes, abi::kMaskState | abi::kMaskAddress | abi::kMaskPeerQpNumber) != 0) return -1;
  attributes.state = abi::kReadyToSend;
  if (modify(pair, &attributes, abi::kMaskState) != 0) return -2;
  int completed = 0;
  for (int i = 0; i < count; ++i) {
    abi::Piece piece{reinterpret_cast<uint64_t>(memory), 1000, region->local_key};
    abi::SendRequest request{};
    request.pieces = &piece;
    request.piece_count = 1;
    request.flags = abi::kSignaled;
    request.remote_address = reinterpret_cast<uint64_t>(memory) + 4096;
    request.remote_key = region->remote_key;
    abi::SendRequest* failed = nullptr;
    if (context->operations.post_send(pair, &request, &failed) != 0) return -3;
    abi::Completion completion{};
    completed += context->operations.poll_completions(queue, 1, &completion);
  }
  return completed;
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) return 99;
  const int writes = atoi(words[1]);
  if (WriteToItself(writes) != writes) return 99;
  if (count > 3 && strcmp(words[3], "fork") == 0) {
    const pid_t child = fork();
    if (child == 0) _exit(WriteToItself(writes) == writes ? 0 : 1);
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) return 99;
  }
  if (count > 4 && strcmp(words[3], "until") == 0) {
    constexpr int kLooks = 6000;
    int looks = 0;
    while (access(words[4], F_OK) != 0 && ++looks < kLooks) usleep(10000);
    if (looks == kLooks) return 99;
  }
  return atoi(words[2]);
}
