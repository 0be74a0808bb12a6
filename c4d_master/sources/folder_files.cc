#include "c4d_master/sources/folder_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <memory>
#include <sys/stat.h>
#include <utility>

#include "c4d_master/job_state.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

struct Closer {
  void operator()(DIR* folder) const { closedir(folder); }
};

}  // namespace

FolderFiles::FolderFiles(std::string folder, std::string what)
    : folder_(std::move(folder)), what_(std::move(what)) {
  if (!folder_.ends_with('*')) return;
  folder_.pop_back();
  const size_t slash = folder_.find_last_of('/');
  prefix_ = slash == std::string::npos ? folder_ : folder_.substr(slash + 1);
  folder_ = slash == std::string::npos ? "." : folder_.substr(0, std::max<size_t>(slash, 1));
}

std::map<std::string, FolderFile> FolderFiles::List(
    const std::function<bool(const std::string& name)>& wanted, size_t most) {
  std::map<std::string, FolderFile> found;
  std::string fault;
  const std::unique_ptr<DIR, Closer> folder(opendir(folder_.c_str()));
  if (folder == nullptr) {
    fault = Concat("the folder of ", what_, " cannot be read: ", service::ToUtf8(folder_), ": ",
                   std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
  } else {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody else has this folder
    while (const dirent* const entry = readdir(folder.get())) {
      const std::string name = entry->d_name;
      if (name.starts_with('.') || !name.starts_with(prefix_)) continue;
      if (prefix_.empty() && !wanted(name)) continue;
      const std::string path = Concat(folder_, "/", name);
      struct stat facts {};
      if (stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) continue;
      if (found.size() == most) {
        fault = Concat("there are more than ", most, " ", what_, " in ", service::ToUtf8(folder_),
                       "; the others are not read");
        break;
      }
      found[path] = {static_cast<uint64_t>(facts.st_size), facts.st_ino,
                     facts.st_mtim.tv_sec * kSecondNs + facts.st_mtim.tv_nsec};
    }
  }
  if (fault != fault_ && !fault.empty()) service::LogWarning(fault);
  fault_ = fault;
  return found;
}

}  // namespace c4::c4d
