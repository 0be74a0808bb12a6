#include "cli/base/thread_stacks.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "cli/base/plain_file.h"
#include "cli/base/process.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = 1 << 20;
constexpr absl::Duration kLook = absl::Milliseconds(20);
constexpr absl::Duration kQuiet = absl::Milliseconds(200);  // after which all is written
constexpr char kMemory[] = "/memfd:c4-python-stacks";       // python/c4_train/stacks.py

int StacksSignal() {
  return SIGRTMAX - 3;
}

// Files of /proc tell no size.
std::string ReadProc(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  std::string text;
  const Status status = ReadAll(fd, path, [&](std::string_view bytes) {
    if (text.size() < kMostBytes) text.append(bytes);
    return Status();
  });
  close(fd);
  return status.ok() ? text : "";
}

std::string Line(const std::string& path) {
  return std::string(absl::StripAsciiWhitespace(ReadProc(path)));
}

std::vector<std::string> LinesOf(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

// "[<0>] futex_wait_queue+0x64/0x90" and so on.
std::vector<std::string> KernelStack(const std::string& path) {
  std::vector<std::string> frames;
  for (const std::string& line : LinesOf(ReadProc(path))) {
    const size_t from = line.find("] ");
    if (from == std::string::npos) continue;
    const std::string frame = line.substr(from + 2);
    frames.push_back(frame.substr(0, frame.find('+')));
  }
  return frames;
}

bool Takes(uint32_t pid, int number) {
  for (const std::string& line : LinesOf(ReadProc(absl::StrCat("/proc/", pid, "/status")))) {
    if (!line.starts_with("SigCgt:")) continue;
    const std::string digits(absl::StripAsciiWhitespace(line.substr(7)));
    uint64_t caught = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), caught, 16);
    return read.ec == std::errc() && (caught >> (number - 1) & 1) != 0;
  }
  return false;
}

// The path of the memory that it writes into; empty: it offers none.
std::string MemoryOf(uint32_t pid, bool* denied) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(absl::StrCat("/proc/", pid, "/fd"), error)) {
    std::error_code gone;
    if (fs::read_symlink(entry.path(), gone).string().starts_with(kMemory)) return entry.path();
  }
  *denied = error == std::errc::permission_denied;
  return "";
}

off_t SizeOf(int fd) {
  struct stat facts {};
  return fstat(fd, &facts) == 0 ? facts.st_size : 0;
}

}  // namespace

std::vector<ThreadPlace> ThreadsOf(uint32_t pid) {
  std::vector<ThreadPlace> threads;
  std::error_code error;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(absl::StrCat("/proc/", pid, "/task"), error)) {
    ThreadPlace thread;
    const std::string folder = entry.path();
    const std::optional<ProcessStat> stat = ParseProcessStat(ReadProc(folder + "/stat"));
    if (!stat.has_value() || !absl::SimpleAtoi(entry.path().filename().string(), &thread.tid)) continue;
    thread.name = Line(folder + "/comm");
    thread.state = stat->state;
    thread.wait_channel = Line(folder + "/wchan");
    if (thread.wait_channel == "0") thread.wait_channel.clear();
    thread.kernel_stack = KernelStack(folder + "/stack");
    threads.push_back(std::move(thread));
  }
  std::sort(threads.begin(), threads.end(),
            [](const ThreadPlace& a, const ThreadPlace& b) { return a.tid < b.tid; });
  return threads;
}

PythonPlace PythonStacksOf(uint32_t pid, absl::Duration patience) {
  PythonPlace place;
  bool denied = false;
  const std::string path = MemoryOf(pid, &denied);
  if (denied) {
    place.why = "its files may not be looked at: run this as its user, or as root";
    return place;
  }
  if (path.empty() || !Takes(pid, StacksSignal())) {
    place.why =
        "it does not offer them: start it with C4_PYTHON_STACKS=1 and c4_torch, or call "
        "c4_train.stacks.offer()";
    return place;
  }
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0 || ftruncate(fd, 0) != 0 || kill(static_cast<pid_t>(pid), StacksSignal()) != 0) {
    place.why = absl::StrCat("it cannot be asked: ", std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
    if (fd >= 0) close(fd);
    return place;
  }
  const absl::Time end = absl::Now() + patience;
  absl::Time changed = absl::Now();
  off_t size = 0;
  while (absl::Now() < end && (size == 0 || absl::Now() - changed < kQuiet)) {
    absl::SleepFor(kLook);
    const off_t now = SizeOf(fd);
    if (now != size) changed = absl::Now();
    size = now;
  }
  std::string text(std::min<size_t>(static_cast<size_t>(size), kMostBytes), '\0');
  const ssize_t got = pread(fd, text.data(), text.size(), 0);
  close(fd);
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  place.lines = LinesOf(text);
  if (place.lines.empty()) place.why = "it has not answered: is it stopped?";
  return place;
}

bool IsHere(const std::string& boot_id, uint32_t pid, uint64_t start_ticks) {
  const std::optional<ProcessStat> stat = ReadProcessStat(static_cast<pid_t>(pid));
  return stat.has_value() && stat->start_time_ticks == start_ticks &&
         absl::StrReplaceAll(Line("/proc/sys/kernel/random/boot_id"), {{"-", ""}}) ==
             absl::StrReplaceAll(boot_id, {{"-", ""}});
}

}  // namespace c4::cli
