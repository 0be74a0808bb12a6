#include "fabric/inject/job_view.h"

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fabric/emulator/command.h"

namespace c4::fabric {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

JobView Read(const Json& json) {
  JobView view;
  json.at("job").get_to(view.job);
  json.at("fabric").get_to(view.fabric);
  json.at("incarnation").get_to(view.incarnation);
  json.at("launcher_pid").get_to(view.launcher);
  json.at("agents").get_to(view.agents);
  for (const Json& entry : json.at("ranks")) {
    view.ranks.push_back({entry.at("rank"), entry.at("pid"), entry.at("host")});
  }
  return view;
}

// -1: there is no such process.
int64_t UserOf(pid_t pid) {
  struct stat status {};
  return stat(absl::StrCat("/proc/", pid).c_str(), &status) == 0 ? static_cast<int64_t>(status.st_uid) : -1;
}

// Nothing where it is no regular file, or of another user than its launcher.
std::optional<JobView> ReadJobFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  struct stat status {};
  std::string text;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size < (1 << 26)) {
    text.resize(static_cast<size_t>(status.st_size));
    const ssize_t got = read(fd, text.data(), text.size());
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  }
  close(fd);
  absl::StatusOr<JobView> view = ParseJobFile(text);
  if (!view.ok()) return std::nullopt;
  view->owner = status.st_uid;
  const int64_t user = UserOf(view->launcher);
  if (user < 0) return std::nullopt;  // it has ended
  if (user != static_cast<int64_t>(view->owner)) {
    fprintf(stderr, "c4: %s is of user %u, its launcher of user %lld: it is left out\n", path.c_str(),
            status.st_uid, static_cast<long long>(user));
    return std::nullopt;
  }
  return *std::move(view);
}

}  // namespace

absl::StatusOr<JobView> ParseJobFile(const std::string& text) {
  try {
    return Read(Json::parse(text));
  } catch (const Json::exception& error) {
    return absl::DataLossError(absl::StrCat("a job file cannot be read: ", error.what()));
  }
}

std::string DefaultBaseDir() {
  const char* set = getenv("C4_RUN_DIR");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return set != nullptr && *set != '\0' ? set : "/dev/shm/c4";
}

absl::StatusOr<JobView> FindJob(const std::string& base_dir, const std::string& job) {
  const std::string base = base_dir.empty() ? DefaultBaseDir() : base_dir;
  std::vector<JobView> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(base, error)) {
    if (!entry.path().filename().string().starts_with("run-")) continue;
    std::optional<JobView> view = ReadJobFile(entry.path() / "job.json");
    if (view && (job.empty() || view->job == job)) found.push_back(*std::move(view));
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    return absl::NotFoundError(absl::StrCat("no job ", job.empty() ? "" : absl::StrCat("'", job, "' "),
                                            "of `c4 run` in ", base,
                                            " is running; --run-dir names another directory"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "several jobs are running, say which with --job: ",
      absl::StrJoin(found, ", ",
                    [](std::string* out, const JobView& view) { absl::StrAppend(out, view.job); })));
}

int RankOfProcess(const JobView& job, pid_t pid) {
  const pid_t group = getpgid(pid);
  for (const JobView::Rank& rank : job.ranks) {
    if (rank.pid != 0 && rank.pid == group) return rank.rank;
  }
  return -1;
}

std::vector<pid_t> ProcessesOfRank(const JobView::Rank& rank) {
  std::vector<pid_t> pids;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    if (rank.pid != 0 && getpgid(pid) == rank.pid) pids.push_back(pid);
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

bool IsOwners(uid_t owner, pid_t pid) {
  return owner == 0 || UserOf(pid) == static_cast<int64_t>(owner);
}

}  // namespace c4::fabric
