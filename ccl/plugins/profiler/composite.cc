#include "ccl/plugins/profiler/composite.h"

#include "ccl/base/data_type.h"

namespace c4::profiler {
namespace {

// `peer` shares further to the front; null stays null.
const void* Front(const void* buffer, const ObservedCall& part) {
  if (buffer == nullptr || part.info.root < 0) return nullptr;
  const uint64_t share = part.info.count * ElementBytes(part.info.data_type);
  return static_cast<const char*>(buffer) - share * static_cast<uint64_t>(part.info.root);
}

bool SameBuffer(const void* a, const void* b) {
  return a == b || a == nullptr || b == nullptr;
}

}  // namespace

bool CompositeOf(int kind, const ObservedCall& part, int rank, ObservedCall* call) {
  const bool send = part.info.function == wire::kSend;
  const int peer = part.info.root;
  *call = part;
  call->info.root = -1;
  switch (kind) {
    case 0:
      call->info.function = wire::kAlltoAll;
      call->send_buffer = Front(part.send_buffer, part);
      call->recv_buffer = Front(part.recv_buffer, part);
      return true;
    case 1:  // everybody sends its own to the root, which receives from each
      call->info.function = wire::kGather;
      call->info.root = send ? peer : rank;
      call->recv_buffer = Front(part.recv_buffer, part);
      return true;
    case 2:
      call->info.function = wire::kScatter;
      call->info.root = send ? rank : peer;
      call->send_buffer = Front(part.send_buffer, part);
      return true;
    default:
      return false;
  }
}

uint32_t PartsOf(const ObservedCall& call, int rank, int rank_count) {
  const auto others = static_cast<uint32_t>(rank_count > 1 ? rank_count - 1 : 0);
  if (call.info.function == wire::kAlltoAll) return 2 * others;
  return call.info.root == rank ? others : 1;
}

bool SameComposite(const ObservedCall& a, const ObservedCall& b) {
  return a.info.function == b.info.function && a.info.count == b.info.count &&
         a.info.data_type == b.info.data_type && a.info.root == b.info.root &&
         SameBuffer(a.send_buffer, b.send_buffer) && SameBuffer(a.recv_buffer, b.recv_buffer);
}

}  // namespace c4::profiler
