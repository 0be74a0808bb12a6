#include "cli/page/demo_page.h"

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "cli/launch/job_log.h"
#include "service/run_dir.h"
#include "service/status.h"
#include "service/token.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTokenS = 24 * 3600;

absl::StatusOr<std::string> OwnFolderIn(const fs::path& parent) {
  std::string path = (parent / "c4-demo-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) return service::ErrnoStatus(errno, absl::StrCat("cannot make ", path));
  return path;
}

// Root plays it for somebody else, whose browser the kernel does not know as root's.
bool IsForAnother() {
  const char* const uid = getenv("SUDO_UID");
  return geteuid() == 0 && uid != nullptr && *uid != '\0' && std::string(uid) != "0";
}

// A key of its own at `path`, and a token of it.
absl::StatusOr<std::string> TokenOf(const std::string& path) {
  const absl::StatusOr<std::string> line = service::NewKeyLine();
  if (!line.ok()) return line.status();
  if (absl::Status fault = service::WriteFileAtomically(path, absl::StrCat(*line, "\n"), 0600); !fault.ok())
    return fault;
  const absl::StatusOr<service::TokenKeys> keys = service::ParseKeys(*line, path);
  if (!keys.ok()) return keys.status();
  const int64_t now_s = time(nullptr);
  return service::IssueToken(keys->front(), {.identity = {.role = service::Role::kOperator},
                                             .not_before_s = now_s,
                                             .expires_s = now_s + kTokenS,
                                             .key_id = {}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<DemoPage>> DemoPage::Open() {
  std::error_code ignored;
  const absl::StatusOr<std::string> folder = OwnFolderIn(fs::temp_directory_path(ignored));
  if (!folder.ok()) return folder.status();
  std::unique_ptr<DemoPage> page(new DemoPage);
  page->folder_ = *folder;
  PageOptions options;
  options.log_dir = page->log_dir();
  std::string token;
  if (IsForAnother()) {
    options.security.key_file = *folder + "/page.key";
    absl::StatusOr<std::string> issued = TokenOf(options.security.key_file);
    if (!issued.ok()) return issued.status();
    token = *std::move(issued);
  }
  absl::StatusOr<std::unique_ptr<PageServer>> server = PageServer::Start(options);
  if (!server.ok()) {
    options.listen = "127.0.0.1:0";
    server = PageServer::Start(options);
  }
  if (!server.ok()) return server.status();
  page->server_ = *std::move(server);
  page->link_ = page->server_->url();
  if (!token.empty()) absl::StrAppend(&page->link_, "#token=", token);
  return page;
}

DemoPage::~DemoPage() {
  server_.reset();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

int DemoPage::ShowRecordings() {
  int shown = 0;
  std::error_code ignored;
  for (const fs::directory_entry& job : fs::directory_iterator(log_dir(), ignored)) {
    std::ifstream file(job.path() / kRecordingName, std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    const std::string name = absl::StrCat(job.path().filename().string(), ".c4rec");
    if (!content.empty() && server_->Take(name, content).ok()) ++shown;
  }
  return shown;
}

}  // namespace c4::cli
