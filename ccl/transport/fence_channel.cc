#include "ccl/transport/fence_channel.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/transport/seal.h"
#include "ccl/transport/stream.h"
#include "ccl/transport/stream_info.h"

namespace c4 {
namespace {

// Looking costs a system call a stream; whoever waits is woken by its descriptor anyway.
constexpr uint64_t kLookNs = 1000000;
constexpr uint64_t kPingNs = 1000000000;
constexpr uint64_t kDialPauseNs = 20000000;
constexpr uint64_t kLongestPauseNs = 1000000000;
constexpr uint32_t kQuickDials = 8;
constexpr uint64_t kConnectNs = 100000000;
constexpr uint64_t kPatientConnectNs = 1000000000;
// A stream that is silent for so long may have died with the path of the queue pair. Its own stall shows
// late, as it knows few round trips, so others are tried beside it: few, as the peer may only be busy.
constexpr uint64_t kAnswerNs = 10000000;
constexpr uint32_t kSideDials = 5;

Frame AnswerFrame(const FenceAnswer& answer) {
  Frame frame = MakeFrame(answer.closed ? kFrameFenced : kFrameCount);
  frame.chunk = answer.queue_pair;
  frame.bytes = answer.epoch;
  frame.sequence = answer.received;
  frame.message = answer.granted;
  return frame;
}

}  // namespace

bool FenceStream::Write() {
  while (!out_.empty()) {
    const ssize_t sent = send(fd_.get(), out_.data(), out_.size(), kPrompt);
    if (sent < 0) {
      if (!WouldBlock(errno)) error_ = errno;
      return WouldBlock(errno);
    }
    out_.erase(0, static_cast<size_t>(sent));
  }
  return true;
}

void FenceStream::Progress(std::vector<Frame>* frames) {
  if (over_) return;
  const bool writes = Write();
  for (;;) {
    const ssize_t got = recv(fd_.get(), in_ + in_bytes_, sizeof in_ - in_bytes_, 0);
    if (got <= 0) {
      if (got < 0 && WouldBlock(errno)) break;
      if (got < 0) error_ = errno;
      over_ = true;
      return;
    }
    in_bytes_ += static_cast<size_t>(got);
    size_t taken = 0;
    for (; in_bytes_ - taken >= sizeof(Frame); taken += sizeof(Frame)) {
      Frame frame;
      memcpy(&frame, in_ + taken, sizeof frame);
      frames->push_back(frame);
    }
    in_bytes_ -= taken;
    memmove(in_, in_ + taken, in_bytes_);
  }
  over_ = !writes;
}

SendFenceStreams::SendFenceStreams(std::vector<QpPath> paths, const Hello& hello, int peer,
                                   const Sha256Digest& key)
    : paths_(std::move(paths)), hello_(hello), peer_(peer), key_(key), alive_ns_(MonotonicNs()) {
  for (QpPath& path : paths_) path.source.set_port(0);
  hello_.transport = kFenceStream;
  hello_.queue_pair_index = 0;
  Dial(alive_ns_);
  fresh_ = false;
}

void SendFenceStreams::Dial(uint64_t now_ns) {
  Fd fd;
  bool ignored = false;
  hello_.epoch = dials_ == 0 ? hello_.epoch : hello_.epoch + 1;
  Seal(&hello_, key_);
  const int error = c4::Dial(paths_[next_path_], &fd, &ignored);
  next_path_ = (next_path_ + 1) % paths_.size();
  const uint32_t beyond = ++dials_ > kQuickDials ? std::min(dials_ - kQuickDials, 10u) : 0;
  next_dial_ns_ = now_ns + std::min(kDialPauseNs << beyond, kLongestPauseNs);
  if (error == ECONNREFUSED) refused_ = true;
  if (error != 0) return;
  Line line;
  line.stream = std::make_unique<FenceStream>(std::move(fd));
  line.since_ns = now_ns;
  line.stream->Say(&hello_, sizeof hello_);
  if (lines_.size() >= kMostLines) {
    // The one that is least likely to come to anything.
    const auto worst = std::find_if(lines_.begin(), lines_.end(), [](const Line& l) { return !l.connected; });
    const auto gone = worst == lines_.end() ? lines_.begin() : worst;
    gone->stream->Drop();
    lines_.erase(gone);
  }
  lines_.push_back(std::move(line));
  fresh_ = true;
}

bool SendFenceStreams::settled() const {
  return std::any_of(lines_.begin(), lines_.end(), [this](const Line& line) { return Works(line); });
}

Result SendFenceStreams::TakeFrame(const Frame& frame, uint64_t now_ns) {
  if (const char* fault = CheckFenceFrame(frame, false, hello_.queue_pair_count)) {
    return LostText(true, peer_, fault, 0);
  }
  heard_ns_ = alive_ns_ = now_ns;
  if (frame.kind == kFrameFenced) asked_ns_ = 0;
  if (frame.kind == kFrameGoodbye) {
    peer_left_ = true;
  } else if (frame.kind == kFrameTags) {
    tags_.push_back(TagsOf(frame));
  } else {
    answers_.push_back({frame.chunk, frame.bytes, frame.kind == kFrameFenced, frame.sequence, frame.message});
  }
  return Ok();
}

Result SendFenceStreams::ProgressLine(Line* line, uint64_t now_ns) {
  frames_.clear();
  line->stream->Progress(&frames_);
  for (const Frame& frame : frames_) C4_RETURN_IF_ERROR(TakeFrame(frame, now_ns));
  if (!frames_.empty()) line->connected = line->heard = true;
  if (line->stream->over()) {
    if (line->stream->error() == ECONNREFUSED) refused_ = true;
    return Ok();
  }
  if (!line->connected && line->stream->said()) {
    line->connected = true;
    refused_ = false;
    alive_ns_ = now_ns;
  }
  if (!line->stall.Due(now_ns)) return Ok();
  const StreamReading reading = ReadStream(line->stream->fd());
  if (reading.acked_bytes != std::exchange(line->acked_bytes, reading.acked_bytes)) {
    alive_ns_ = now_ns;
    line->suspect = false;
  }
  const uint64_t patience = dials_ < 2 * kQuickDials ? kConnectNs : kPatientConnectNs;
  if (line->stall.Read(reading, now_ns) || (!line->connected && now_ns - line->since_ns > patience)) {
    line->suspect = true;
  }
  return Ok();
}

Result SendFenceStreams::Progress(uint64_t now_ns) {
  if (now_ns < next_look_ns_ && now_ns > hurry_until_ns_) return Ok();
  next_look_ns_ = now_ns + kLookNs;
  bool ended_one = false;
  for (Line& line : lines_) {
    C4_RETURN_IF_ERROR(ProgressLine(&line, now_ns));
    ended_one = ended_one || (line.stream->over() && line.connected);
  }
  const bool answered =
      !overdue(now_ns) && std::any_of(lines_.begin(), lines_.end(),
                                      [this](const Line& line) { return line.heard && Works(line); });
  // An answer makes the others superfluous, but for one that has answered itself.
  std::erase_if(lines_, [&](const Line& line) {
    const bool goes = line.stream->over() || (line.suspect && !line.connected) ||
                      (answered && !(line.heard && Works(line)));
    if (goes) line.stream->Drop();
    return goes;
  });
  if (answered) {
    dials_ = 1;
    ended_ = false;
  } else if (ended_one) {
    ended_ = !settled();
  }
  if (peer_left_) return Ok();
  DialIfNeeded(now_ns);
  if (now_ns - last_ping_ns_ >= kPingNs) {
    last_ping_ns_ = now_ns;
    SayOnAll(MakeFrame(kFramePing));
  }
  return Ok();
}

bool SendFenceStreams::overdue(uint64_t now_ns) const {
  return asked_ns_ != 0 && now_ns > asked_ns_ + kAnswerNs;
}

void SendFenceStreams::DialIfNeeded(uint64_t now_ns) {
  if (settled()) {
    if (!overdue(now_ns) || side_dials_ >= kSideDials) {
      next_dial_ns_ = 0;
      return;
    }
    if (now_ns < next_dial_ns_) return;
    ++side_dials_;
    Dial(now_ns);
    next_dial_ns_ = now_ns + kAnswerNs;
    return;
  }
  // What is being connected gets a moment.
  if (now_ns >= next_dial_ns_) Dial(now_ns);
}

void SendFenceStreams::SayOnAll(const Frame& frame) {
  for (Line& line : lines_) line.stream->Say(&frame, sizeof frame);
}

void SendFenceStreams::Say(const FenceCall& call) {
  Frame frame = MakeFrame(kFrameFence);
  frame.chunk = call.queue_pair;
  frame.bytes = call.epoch;
  SayOnAll(frame);
  const uint64_t now_ns = MonotonicNs();
  if (asked_ns_ == 0) {
    asked_ns_ = now_ns;
    side_dials_ = 0;
  }
  next_look_ns_ = 0;
  hurry_until_ns_ = now_ns + kDialPauseNs;
}

bool SendFenceStreams::Hear(FenceAnswer* answer) {
  if (answers_.empty()) return false;
  *answer = answers_.front();
  answers_.pop_front();
  return true;
}

bool SendFenceStreams::HearTags(TagRun* run) {
  if (tags_.empty()) return false;
  *run = tags_.front();
  tags_.pop_front();
  return true;
}

bool SendFenceStreams::TakeFresh() {
  return std::exchange(fresh_, false);
}

void SendFenceStreams::Lose(const SocketAddress& address) {
  for (Line& line : lines_) {
    SocketAddress local;
    if (LocalAddress(line.stream->fd(), &local).ok() && IsSameAddress(local, address)) line.suspect = true;
  }
  next_look_ns_ = 0;
}

void SendFenceStreams::AppendPolls(std::vector<pollfd>* polls) const {
  for (const Line& line : lines_) {
    const bool to_write = !line.stream->said();
    polls->push_back({line.stream->fd(), static_cast<short>(to_write ? POLLIN | POLLOUT : POLLIN), 0});
  }
}

void SendFenceStreams::SayGoodbye() {
  SayOnAll(MakeFrame(kFrameGoodbye));
  for (Line& line : lines_) {
    frames_.clear();
    line.stream->Progress(&frames_);
  }
}

ReceiveFenceStreams::ReceiveFenceStreams(std::vector<ReceiveQueuePair*> queue_pairs, int peer)
    : queue_pairs_(std::move(queue_pairs)), peer_(peer), ended_ns_(MonotonicNs()) {}

void ReceiveFenceStreams::Take(Accepted late) {
  if (!IsFenceStream(late.hello)) {
    ReceiveQueuePair* const renewed = queue_pairs_[late.hello.queue_pair_index];
    renewed->Renew(std::move(late));
    return;
  }
  if (lines_.size() >= kMostLines) lines_.erase(lines_.begin());
  lines_.push_back(std::make_unique<FenceStream>(std::move(late.fd)));
  fresh_ = true;
  ended_ns_ = 0;
  next_look_ns_ = 0;
}

Result ReceiveFenceStreams::Progress(uint64_t now_ns) {
  if (now_ns < next_look_ns_) return Ok();
  next_look_ns_ = now_ns + kLookNs;
  for (const auto& line : lines_) ProgressLine(line.get());
  if (fault_ != nullptr) return LostText(false, peer_, fault_, 0);
  std::erase_if(lines_, [](const auto& line) { return line->over(); });
  if (lines_.empty() && ended_ns_ == 0) ended_ns_ = now_ns;
  return Ok();
}

bool ReceiveFenceStreams::Hear(FenceCall* call) {
  if (calls_.empty()) return false;
  *call = calls_.front();
  calls_.pop_front();
  return true;
}

// Said on all streams: which of them still leads back is not known here.
void ReceiveFenceStreams::Say(const FenceAnswer& answer) {
  SayOnAll(AnswerFrame(answer));
}

void ReceiveFenceStreams::SayTags(const TagRun& run) {
  Frame frame = MakeFrame(kFrameTags);
  frame.message = run.first;
  for (; frame.chunk < run.count; ++frame.chunk) SetTag(&frame, frame.chunk, run.tags[frame.chunk]);
  SayOnAll(frame);
}

void ReceiveFenceStreams::SayOnAll(const Frame& frame) {
  for (const auto& line : lines_) {
    line->Say(&frame, sizeof frame);
    ProgressLine(line.get());
  }
}

// Writes what it can and takes in all that has come; a fault in it is said by the next Progress.
void ReceiveFenceStreams::ProgressLine(FenceStream* line) {
  frames_.clear();
  line->Progress(&frames_);
  for (const Frame& frame : frames_) {
    const char* fault = CheckFenceFrame(frame, true, static_cast<uint32_t>(queue_pairs_.size()));
    if (fault != nullptr) {
      fault_ = fault;
      return;
    }
    if (frame.kind == kFrameGoodbye) peer_left_ = true;
    if (frame.kind == kFrameFence) calls_.push_back({frame.chunk, frame.bytes});
  }
}

bool ReceiveFenceStreams::TakeFresh() {
  return std::exchange(fresh_, false);
}

void ReceiveFenceStreams::AppendPolls(std::vector<pollfd>* polls) const {
  for (const auto& line : lines_) {
    polls->push_back({line->fd(), static_cast<short>(line->said() ? POLLIN : POLLIN | POLLOUT), 0});
  }
}

void ReceiveFenceStreams::SayGoodbye() {
  SayOnAll(MakeFrame(kFrameGoodbye));
}

}  // namespace c4
