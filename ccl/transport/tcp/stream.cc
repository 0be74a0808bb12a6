#include "ccl/transport/tcp/stream.h"

#include <cerrno>
#include <netinet/tcp.h>

#include "ccl/base/knobs.h"

namespace c4::tcp {
namespace {

// Linux 6.15 and later: the longest wait for a retransmission. A path that comes back after a minute should
// not be used again only after another one.
constexpr int kTcpRtoMaxMs = 44;
constexpr int kLongestRetransmitMs = 2000;

}  // namespace

// Buffers are sized by hand only when asked to: the kernel caps what it was not told to allow. Neither option
// is needed for anything to work.
void SetOptions(int fd) {
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

Frame MakeFrame(FrameKind kind) {
  Frame frame{};
  frame.mark = kFrameMark;
  frame.kind = kind;
  return frame;
}

TagRun TagsOf(const Frame& frame) {
  const bool report = frame.kind == kReport;
  TagRun run;
  run.count = frame.chunk;
  run.first = report ? frame.message - run.count : frame.message;
  for (uint32_t i = 0; i < run.count; ++i) run.tags[i] = report ? TagInReport(frame, i) : TagIn(frame, i);
  return run;
}

void SendGoodbye(int fd) {
  const Frame frame = MakeFrame(kGoodbye);
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

}  // namespace c4::tcp
