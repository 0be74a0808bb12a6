#include "ccl/transport/shm/memory.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "ccl/base/identity.h"
#include "ccl/base/kernel.h"

namespace c4::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

Result Map(int fd, size_t bytes, Mapping* mapping) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return Fail(ncclSystemError, "cannot map %zu bytes of shared memory: %s", bytes,
                ErrnoText(errno).c_str());
  }
  *mapping = Mapping(data, bytes);
  return Ok();
}

}  // namespace

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Result MakeMemory(const char* name, size_t bytes, Fd* fd, Mapping* mapping) {
  fd->Reset(MakeMemoryFile(name));
  if (!fd->valid() || ftruncate(fd->get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd->get(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) {
    return Fail(ncclSystemError, "cannot make %zu bytes of shared memory: %s", bytes,
                ErrnoText(errno).c_str());
  }
  return Map(fd->get(), bytes, mapping);
}

Result OpenDescriptor(uint32_t pid, uint32_t number, int flags, Fd* fd) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%u/fd/%u", pid, number);
  // Whatever it turns out to be, opening it must not wait, nor make it our terminal.
  fd->Reset(open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd->valid()) {
    return Fail(ncclRemoteError, "cannot open %s: %s", path, ErrnoText(errno).c_str());
  }
  return Ok();
}

Result OpenMemory(uint32_t pid, uint32_t descriptor, size_t least_bytes, Mapping* mapping) {
  Fd fd;
  C4_RETURN_IF_ERROR(OpenDescriptor(pid, descriptor, O_RDWR, &fd));
  struct stat status;
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(fd.get(), &status) != 0 ||
      static_cast<uint64_t>(status.st_size) < least_bytes) {
    return Fail(ncclRemoteError, "descriptor %u of process %u is no shared memory of ours", descriptor, pid);
  }
  // Two users on one host could open each other's memory one way only, and the other end would not.
  if (status.st_uid != geteuid()) {
    return Fail(ncclRemoteError, "descriptor %u of process %u belongs to another user", descriptor, pid);
  }
  return Map(fd.get(), static_cast<size_t>(status.st_size), mapping);
}

int Pull(uint32_t pid, uint64_t address, void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const iovec local{at, bytes};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address in another process
    const iovec remote{reinterpret_cast<void*>(address), bytes};
    const ssize_t got = process_vm_readv(static_cast<pid_t>(pid), &local, 1, &remote, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return EFAULT;
    at += got;
    address += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return 0;
}

uint64_t HostHash() {
  char name_space[64] = "";
  const ssize_t length = readlink("/proc/self/ns/pid", name_space, sizeof name_space);
  const wire::ProcessIdentity process = CurrentProcess();
  std::string text = HostName();
  text.append(reinterpret_cast<const char*>(process.boot_id), sizeof process.boot_id);
  if (length > 0) text.append(name_space, static_cast<size_t>(length));
  return HashBytes(text.data(), text.size());
}

}  // namespace c4::shm
