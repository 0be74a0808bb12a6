#include "ccl/transport/shm/bell.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace c4::shm {
namespace {

// As much as the pool of a region has for each of some neighbours. What is never written takes no memory.
constexpr uint32_t kShelfOffset = 4096;
constexpr uint32_t kShelfPieces = 64;
constexpr uint32_t kShelfPieceBytes = 65536;
constexpr size_t kBellBytes = kShelfOffset + size_t{kShelfPieces} * kShelfPieceBytes;

}  // namespace

Result Bell::Make(const wire::ProcessIdentity& process) {
  if (process.pid != static_cast<uint32_t>(getpid())) {
    return Fail(ncclSystemError, "this process was forked after the library had started");
  }
  // Others of the same user could not look into /proc/PID/fd.
  if (prctl(PR_GET_DUMPABLE) != 1) return Fail(ncclSystemError, "this process is not dumpable");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return Fail(ncclSystemError, "cannot make a pipe: %s", ErrnoText(errno).c_str());
  }
  read_.Reset(ends[0]);
  write_.Reset(ends[1]);
  Fd memory;
  Mapping mapping;
  C4_RETURN_IF_ERROR(MakeMemory("c4-bell", kBellBytes, &memory, &mapping));
  BellPage page{};
  page.header.magic = kBellMagic;
  page.header.major = kMajor;
  page.header.minor = kMinor;
  page.header.endian = wire::kEndianMark;
  page.header.header_bytes = sizeof page;
  page.header.total_bytes = kBellBytes;
  page.header.writer = process;
  page.pipe = static_cast<uint32_t>(write_.get());
  page.shelf_offset = kShelfOffset;
  page.shelf_pieces = kShelfPieces;
  page.shelf_piece_bytes = kShelfPieceBytes;
  memcpy(mapping.data(), &page, sizeof page);
  // As another would: where /proc is not mounted, or hides us, nobody finds the page.
  Mapping tried;
  C4_RETURN_IF_ERROR(OpenMemory(process.pid, static_cast<uint32_t>(memory.get()), sizeof(BellPage), &tried));
  memory_ = std::move(memory);
  page_ = std::move(mapping);
  shelf_ = std::make_unique<Shelf>(page_.data() + kShelfOffset, kShelfPieces, kShelfPieceBytes);
  return Ok();
}

void Bell::BeforeSleep() {
  Store(page().sleeping, 1u, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Bell::AfterSleep() {
  Store(page().sleeping, 0u, std::memory_order_relaxed);
}

void Bell::Drain() {
  char bytes[64];
  while (read(read_.get(), bytes, sizeof bytes) == static_cast<ssize_t>(sizeof bytes)) {
  }
}

Result PeerBell::Open(const wire::ProcessIdentity& process, uint32_t descriptor,
                      std::shared_ptr<PeerBell>* bell) {
  auto opened = std::make_shared<PeerBell>();
  opened->process_ = process;
  C4_RETURN_IF_ERROR(OpenMemory(process.pid, descriptor, sizeof(BellPage), &opened->page_));
  BellPage page;
  memcpy(&page, opened->page_.data(), sizeof page);
  if (const char* fault = CheckBell(page, opened->page_.bytes(), process)) {
    return Fail(ncclRemoteError, "the bell of process %u %s", process.pid, fault);
  }
  opened->shelf_offset_ = page.shelf_offset;
  opened->shelf_pieces_ = page.shelf_pieces;
  opened->shelf_piece_bytes_ = page.shelf_piece_bytes;
  // For both directions: then there is a reader as long as we write, and never a SIGPIPE.
  C4_RETURN_IF_ERROR(OpenDescriptor(process.pid, page.pipe, O_RDWR, &opened->pipe_));
  struct stat status;
  if (fstat(opened->pipe_.get(), &status) != 0 || !S_ISFIFO(status.st_mode)) {
    return Fail(ncclRemoteError, "the bell of process %u names a pipe that is none", process.pid);
  }
  *bell = std::move(opened);
  return Ok();
}

void PeerBell::Ring() {
  if (takes_notes_) {
    noted_ = true;
  } else {
    RingNow();
  }
}

void PeerBell::RingNoted() {
  if (std::exchange(noted_, false)) RingNow();
}

void PeerBell::RingNow() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  auto& page = *reinterpret_cast<BellPage*>(page_.data());
  std::atomic_ref<uint32_t> sleeping(page.sleeping);
  if (sleeping.load(std::memory_order_relaxed) == 0) return;
  if (sleeping.exchange(0) == 0) return;
  const char byte = 1;
  const ssize_t ignored = write(pipe_.get(), &byte, sizeof byte);
  (void)ignored;  // full means that it is awake
}

}  // namespace c4::shm
