// What the kernel says of a TCP stream, for the rule of transport/stall.h, and how a stream is begun from a
// chosen path. Functions; one system call or a few; any thread.
#pragma once

#include "ccl/base/socket.h"
#include "ccl/transport/path.h"
#include "ccl/transport/stall.h"

namespace c4 {

// Any stream for which there is nothing to read counts as one with nothing on the network.
StreamReading ReadStream(int fd);

// Begins to connect along `path`; 0, or the errno that forbids it. A source port that cannot be had gives way
// to the kernel's choice, and *other_port says so.
int Dial(const QpPath& path, Fd* fd, bool* other_port);

// Closes so that nothing that is still unsent goes out.
void Discard(Fd* fd);

// Whether an errno says something of the network, or that the stream ended, rather than of this program.
bool IsNetworkError(int error);

bool IsSameAddress(const SocketAddress& a, const SocketAddress& b);  // whatever the ports

}  // namespace c4
