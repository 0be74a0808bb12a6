#include "ccl/tap/extended_sends.h"

#include <memory>
#include <utility>

#include "ccl/tap/posted_here.h"
#include "ccl/tap/verbs_calls.h"

namespace c4::tap {
namespace {

using Pair = abi::ExtendedQueuePair;

// Atomic operations move a word.
constexpr uint64_t kWordBytes = 8;

// Of the queue pair that this thread has started to post to.
struct Started {
  const Pair* pair = nullptr;
  WatchedQueuePair* watched = nullptr;
  ExtendedSends* sends = nullptr;
};
constinit thread_local Started started_here;

Started Look(const Pair* pair) {
  WatchedQueuePair* const watched = QueuePairs().Find(&pair->pair);
  return {pair, watched, watched->extended()};
}

ExtendedSends& SendsOf(const Pair* pair) {
  if (started_here.pair != pair) started_here = Look(pair);
  return *started_here.sends;
}

void Begin(const Pair* pair, int opcode, uint64_t bytes = 0) {
  SendsOf(pair).Add({.id = pair->id, .bytes = bytes, .opcode = opcode, .flags = pair->flags});
}

void Start(Pair* pair) {
  started_here = Look(pair);
  started_here.sends->real().start(pair);
  started_here.sends->Begin();
}

int Complete(Pair* pair) {
  ExtendedSends& sends = SendsOf(pair);
  const auto complete = sends.real().complete;
  if (InChild() || sends.gathered().empty()) return complete(pair);
  WatchedQueuePair* const watched = started_here.watched;
  if (sends.gathered().front().opcode != abi::kOpRead) RememberPosted(watched);
  // What is gathered is another thread's as soon as the provider has completed it.
  const WatchedQueuePair::Batch batch = watched->Posting(sends.gathered());
  const int result = complete(pair);
  if (result != 0) watched->Refused(batch);
  return result;
}

void Abort(Pair* pair) {
  ExtendedSends& sends = SendsOf(pair);
  sends.Begin();
  sends.real().abort(pair);
}

void CompareAndSwap(Pair* pair, uint32_t key, uint64_t address, uint64_t compare, uint64_t swap) {
  Begin(pair, abi::kOpRead, kWordBytes);
  SendsOf(pair).real().compare_and_swap(pair, key, address, compare, swap);
}

void FetchAndAdd(Pair* pair, uint32_t key, uint64_t address, uint64_t add) {
  Begin(pair, abi::kOpRead, kWordBytes);
  SendsOf(pair).real().fetch_and_add(pair, key, address, add);
}

void BindWindow(Pair* pair, void* window, uint32_t key, const void* bind) {
  Begin(pair, abi::kOpSend);
  SendsOf(pair).real().bind_window(pair, window, key, bind);
}

void Invalidate(Pair* pair, uint32_t key) {
  Begin(pair, abi::kOpSend);
  SendsOf(pair).real().invalidate(pair, key);
}

void Read(Pair* pair, uint32_t key, uint64_t address) {
  Begin(pair, abi::kOpRead);
  SendsOf(pair).real().read(pair, key, address);
}

void Write(Pair* pair, uint32_t key, uint64_t address) {
  Begin(pair, abi::kOpWrite);
  SendsOf(pair).real().write(pair, key, address);
}

void WriteWithImmediate(Pair* pair, uint32_t key, uint64_t address, uint32_t immediate) {
  Begin(pair, abi::kOpWriteWithImmediate);
  SendsOf(pair).real().write_with_immediate(pair, key, address, immediate);
}

void Send(Pair* pair) {
  Begin(pair, abi::kOpSend);
  SendsOf(pair).real().send(pair);
}

void SendWithImmediate(Pair* pair, uint32_t immediate) {
  Begin(pair, abi::kOpSend);
  SendsOf(pair).real().send_with_immediate(pair, immediate);
}

void SendWithInvalidate(Pair* pair, uint32_t key) {
  Begin(pair, abi::kOpSend);
  SendsOf(pair).real().send_with_invalidate(pair, key);
}

void SetInline(Pair* pair, void* address, size_t bytes) {
  SendsOf(pair).AddBytes(bytes);
  SendsOf(pair).real().set_inline(pair, address, bytes);
}

void SetInlineList(Pair* pair, size_t count, const abi::DataBuffer* buffers) {
  for (size_t i = 0; i < count; ++i) SendsOf(pair).AddBytes(buffers[i].bytes);
  SendsOf(pair).real().set_inline_list(pair, count, buffers);
}

void SetPiece(Pair* pair, uint32_t key, uint64_t address, uint32_t bytes) {
  SendsOf(pair).AddBytes(bytes);
  SendsOf(pair).real().set_piece(pair, key, address, bytes);
}

void SetPieces(Pair* pair, size_t count, const abi::Piece* pieces) {
  for (size_t i = 0; i < count; ++i) SendsOf(pair).AddBytes(pieces[i].bytes);
  SendsOf(pair).real().set_pieces(pair, count, pieces);
}

template <typename Function>
void Stand(Function* call, Function ours) {
  if (*call != nullptr) *call = ours;
}

}  // namespace

void ExtendedSends::TakeOver(Pair* pair, WatchedQueuePair* watched, uint32_t capacity) {
  abi::SendCalls& calls = pair->calls;
  if (calls.start == nullptr || calls.complete == nullptr || calls.abort == nullptr) return;
  watched->SetExtended(std::make_unique<ExtendedSends>(calls, capacity));
  Stand(&calls.compare_and_swap, &CompareAndSwap);
  Stand(&calls.fetch_and_add, &FetchAndAdd);
  Stand(&calls.bind_window, &BindWindow);
  Stand(&calls.invalidate, &Invalidate);
  Stand(&calls.read, &Read);
  Stand(&calls.write, &Write);
  Stand(&calls.write_with_immediate, &WriteWithImmediate);
  Stand(&calls.send, &Send);
  Stand(&calls.send_with_immediate, &SendWithImmediate);
  Stand(&calls.send_with_invalidate, &SendWithInvalidate);
  Stand(&calls.set_inline, &SetInline);
  Stand(&calls.set_inline_list, &SetInlineList);
  Stand(&calls.set_piece, &SetPiece);
  Stand(&calls.set_pieces, &SetPieces);
  calls.start = &Start;
  calls.complete = &Complete;
  calls.abort = &Abort;
}

void ExtendedSends::GiveBack(abi::QueuePair* queue_pair, WatchedQueuePair* watched) {
  if (watched->extended() == nullptr) return;
  reinterpret_cast<Pair*>(queue_pair)->calls = watched->extended()->real();
}

}  // namespace c4::tap
