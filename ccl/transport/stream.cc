#include "ccl/transport/stream.h"

#include <atomic>
#include <cerrno>
#include <netinet/tcp.h>

#include "ccl/base/knobs.h"

namespace c4 {
namespace {

// Linux 6.15 and later: the longest wait for a retransmission. A path that comes back after a minute should
// not be used again only after another one.
constexpr int kTcpRtoMaxMs = 44;
constexpr int kLongestRetransmitMs = 2000;

}  // namespace

// Buffers are sized by hand only when asked to: the kernel caps what it was not told to allow. Neither option
// is needed for anything to work.
void SetStreamOptions(int fd) {
  const int bytes = static_cast<int>(KnobNumber(Knob::C4_SOCKET_BUFFER_BYTES));
  if (bytes != 0) {
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }
  setsockopt(fd, IPPROTO_TCP, kTcpRtoMaxMs, &kLongestRetransmitMs, sizeof kLongestRetransmitMs);
}

QueuePairRecorder OpenRecorder(int fd, const SocketAddress& peer, const Recording& recording,
                               const Hello& hello, wire::Direction direction, wire::TransportKind transport) {
  QueuePairIdentity identity;
  identity.direction = direction;
  identity.peer = recording.peer;
  identity.channel = recording.channel;
  identity.index = hello.queue_pair_index;
  identity.number = hello.queue_pair_number;
  identity.transport = transport;
  SocketAddress local;
  if (LocalAddress(fd, &local).ok()) identity.local = ToEndpoint(local);
  identity.remote = ToEndpoint(peer);
  return recording.monitor->OpenQueuePair(*recording.communicator, identity);
}

Hello MakeHello(const Recording& recording, uint32_t index, uint32_t count, uint32_t chunk_bytes) {
  static std::atomic<uint64_t> next_number{1};
  Hello hello{};
  hello.header.magic = kHelloMagic;
  hello.header.major = kHelloMajor;
  hello.header.minor = kHelloMinor;
  hello.header.endian = wire::kEndianMark;
  hello.header.header_bytes = sizeof hello;
  hello.header.total_bytes = sizeof hello;
  hello.header.writer = recording.monitor->segment().header().header.writer;
  hello.communicator_id =
      recording.number != 0 ? recording.number : recording.communicator->slot().communicator_id;
  hello.from_rank = recording.rank;
  hello.to_rank = recording.peer;
  hello.channel = recording.channel;
  hello.queue_pair_index = static_cast<uint16_t>(index);
  hello.queue_pair_count = static_cast<uint16_t>(count);
  hello.transport = wire::kTransportTcp;
  hello.queue_pair_number = next_number.fetch_add(1);
  hello.chunk_bytes = chunk_bytes;
  return hello;
}

Frame MakeFrame(FrameKind kind) {
  Frame frame{};
  frame.mark = kFrameMark;
  frame.kind = kind;
  return frame;
}

TagRun TagsOf(const Frame& frame) {
  const bool report = frame.kind == kFrameReport;
  TagRun run;
  run.count = frame.chunk;
  run.first = report ? frame.message - run.count : frame.message;
  for (uint32_t i = 0; i < run.count; ++i) run.tags[i] = report ? TagInReport(frame, i) : TagIn(frame, i);
  return run;
}

void SendGoodbye(int fd) {
  const Frame frame = MakeFrame(kFrameGoodbye);
  const ssize_t ignored = send(fd, &frame, sizeof frame, MSG_NOSIGNAL);
  (void)ignored;
}

bool WouldBlock(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOTCONN ||
         error == EINPROGRESS;
}

Result LostText(bool sends, int peer, const char* what, int error) {
  return Fail(ncclRemoteError, "connection %s rank %d %s%s%s", sends ? "to" : "from", peer, what,
              error != 0 ? ": " : "", error != 0 ? ErrnoText(error).c_str() : "");
}

}  // namespace c4
