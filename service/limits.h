// What one client, and all together, may take of a daemon: the one table (docs/limits.md says it in words).
// A limit that only slows down is one that an honest client may meet; what is beyond any honest client's need
// costs the connection.
#pragma once

#include <cstddef>
#include <cstdint>

namespace c4::service::limits {

// gRPC, per daemon.
inline constexpr size_t kGrpcConnections = 2048;    // fewer where descriptors are scarce: three each
inline constexpr int64_t kGrpcHandshakeMs = 5'000;  // to say that it speaks HTTP/2, and TLS before
inline constexpr int64_t kGrpcStuckMs = 15'000;     // of one that does not read what it asked for
inline constexpr int kGrpcIdleMs = 600'000;         // without a call
inline constexpr int kGrpcStreams = 128;            // at a time, a connection
inline constexpr int kGrpcMessageBytes = 32 << 20;  // received; a batch of a large node is some MiB
inline constexpr int kGrpcReplyBytes = 64 << 20;
inline constexpr int kGrpcHeaderBytes = 16 << 10;       // metadata of a call
inline constexpr size_t kGrpcMemoryBytes = 512U << 20;  // buffers and calls of gRPC
inline constexpr int kGrpcThreads = 64;
// Messages of peers when they are parsed (service/bounded_parse.h).
inline constexpr size_t kRequestParsedBytes = 16U << 20;
inline constexpr size_t kStreamedParsedBytes = 192U << 20;  // one that an agent streams
inline constexpr size_t kParsedBytes = 512U << 20;          // all together, at a time
// HTTP/2 frames that open a stream, slowed down beyond; a connection, and all.
inline constexpr double kOpensPerSecond = 1'000;
inline constexpr double kOpensBurst = 1'000;
inline constexpr double kAllOpensPerSecond = 12'000;
inline constexpr double kAllOpensBurst = 2'000;
// Streams given up by the client; beyond, the connection is cut.
inline constexpr double kResetsPerSecond = 50;
inline constexpr double kResetsBurst = 200;
inline constexpr double kAllResetsPerSecond = 500;
inline constexpr double kAllResetsBurst = 1'000;
// Frames that carry no data of a call (pings, settings, windows, empty ones), slowed down beyond.
inline constexpr double kControlsPerSecond = 5'000;
inline constexpr double kControlsBurst = 5'000;
inline constexpr int kContinuations = 8;  // of one header block; beyond, the connection is cut

// HTTP, per daemon.
inline constexpr size_t kHttpConnections = 256;  // beyond, the one that dawdles longest is cut
inline constexpr size_t kHttpHeadBytes = 16 << 10;
inline constexpr size_t kHttpBodyBytes = 64 << 10;  // that a POST may send; it is not read
inline constexpr size_t kHttpBodies = 2;            // that are read at a time, where a route takes files
inline constexpr int64_t kHttpBodyMs = 60'000;      // for the whole of one
inline constexpr int64_t kHttpHeadMs = 5'000;       // for the whole of it
inline constexpr int64_t kHttpReplyMs = 10'000;     // for the client to take it
inline constexpr int64_t kHttpDrainMs = 1'000;
inline constexpr int kHttpWorkers = 8;
inline constexpr size_t kHttpStreams = 128;            // at a time; beyond, a new one is refused
inline constexpr size_t kHttpStreamBytes = 4U << 20;   // said and not taken; beyond, the stream is cut
inline constexpr int64_t kHttpStreamStuckMs = 30'000;  // of a client that takes nothing of what is there

// Streams to those who watch, per master: each holds what its reader has not taken yet.
inline constexpr size_t kWatchers = 64;
inline constexpr size_t kRecorders = 4;
inline constexpr size_t kRecorderBytes = 64U << 20;
inline constexpr size_t kWatcherBytes = 8U << 20;
// Sessions of a host's agents with c4p_master, and what each may leave unread.
inline constexpr size_t kSessionsPerHost = 16;
inline constexpr size_t kSessionBytes = 16U << 20;

}  // namespace c4::service::limits
