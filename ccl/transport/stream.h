// What every queue pair that begins with a hello on a TCP stream shares, whatever carries its chunks: its
// place in the monitor, its goodbye, and the sentences that say how it was lost. Functions; one thread a
// stream.
#pragma once

#include <sys/socket.h>

#include "ccl/base/socket.h"
#include "ccl/transport/frame.h"
#include "ccl/transport/hello.h"
#include "ccl/transport/queue_pair.h"

namespace c4 {

// How small frames are sent. Linux keeps a small write back while anything of its stream waits in the NIC's
// queue (net.ipv4.tcp_autocorking, whatever TCP_NODELAY says), unless the end of a record is in between: on a
// link that is full both ways acknowledgements waited twice, and a sixth of it stood idle (measured).
inline constexpr int kPrompt = MSG_NOSIGNAL | MSG_EOR;

// Sizes of buffers and the like, of a stream that carries data.
void SetStreamOptions(int fd);

// The recorder of a queue pair whose stream is `fd`.
QueuePairRecorder OpenRecorder(int fd, const SocketAddress& peer, const Recording& recording,
                               const Hello& hello, wire::Direction direction, wire::TransportKind transport);

// The hello of queue pair `index` of `count`, over TCP.
Hello MakeHello(const Recording& recording, uint32_t index, uint32_t count, uint32_t chunk_bytes);

Frame MakeFrame(FrameKind kind);
TagRun TagsOf(const Frame& frame);  // of tags or a report. REQUIRES: CheckTags or CheckReport
// The last frame of a side that leaves; the socket's buffer has room, or the peer is far behind anyway.
void SendGoodbye(int fd);
// Of a call on a stream: try again. Also while the stream is still being connected.
bool WouldBlock(int error);

inline constexpr char kClosedText[] = "was closed by it: its process ended or gave up";
inline constexpr char kLeftText[] = "ended: that rank has left the communicator";
// ncclRemoteError: "connection to rank 3 " + what, and the errno when it is not 0.
Result LostText(bool sends, int peer, const char* what, int error);

}  // namespace c4
