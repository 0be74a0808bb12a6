#include "cli/page/page_server.h"

#include "absl/strings/str_cat.h"
#include "page/page_files.h"
#include "service/address.h"
#include "service/clock.h"
#include "service/credentials.h"
#include "service/whole_file.h"

namespace c4::cli {
namespace {

bool IsLoopback(const std::string& address) {
  const absl::StatusOr<service::HostPort> parts = service::ParseHostPort(address);
  return parts.ok() &&
         (parts->host.starts_with("127.") || parts->host == "::1" || parts->host == "localhost");
}

// Copies of the files of a job's last minutes, which are written on, as recordings; gives the newest.
absl::StatusOr<std::string> OpenPast(LiveFleet* live, RecordingFleet* recordings, const std::string& id) {
  const absl::StatusOr<std::vector<std::string>> files = live->RecordingsOf(id);
  if (!files.ok()) return files.status();
  absl::StatusOr<std::string> shown =
      absl::NotFoundError("nothing of this job's last minutes is there any more");
  for (size_t i = 0; i < files->size(); ++i) {
    std::string content;
    struct stat status = {};
    const service::FileFault fault =
        service::ReadWholeFile((*files)[i], page::kMostRecordingBytes, 0, &status, &content);
    if (!fault.sentence.empty()) continue;  // it took the other's place just now
    const bool newest = i + 1 == files->size();
    absl::StatusOr<std::string> taken =
        recordings->Take(absl::StrCat(id, newest ? "" : " before", ".c4rec"), content);
    if (taken.ok() || !shown.ok()) shown = std::move(taken);
  }
  return shown;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PageServer>> PageServer::Start(const PageOptions& options) {
  // HTTP without TLS: what callers can show is a token, and what they can be is this machine's own user.
  service::SecurityOptions callers = options.security;
  callers.tls = {};
  const absl::StatusOr<service::Credentials> credentials =
      service::Credentials::Load(callers, service::OwnOperator());
  if (!credentials.ok()) return absl::InvalidArgumentError(credentials.status().message());
  if (!IsLoopback(options.listen) && !credentials->has_key()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "to be reached from other machines at ", options.listen,
        " it needs a key to check their tokens with: --key-file (c4 pki key), and better a proxy "
        "with TLS in front of a loopback address"));
  }
  std::unique_ptr<PageServer> page(new PageServer);
  absl::StatusOr<std::unique_ptr<RecordingFleet>> recordings = RecordingFleet::Open(options.recordings);
  if (!recordings.ok()) return recordings.status();
  page->recordings_ = *std::move(recordings);
  page::FleetSource* source = page->recordings_.get();
  if (options.recordings.empty()) {
    page->live_ = std::make_unique<LiveFleet>(LiveFleet::Options{
        .master = {.job = {}, .address = {}, .base_dir = options.run_dir, .security = options.security},
        .log_dir = options.log_dir});
    page->joined_ = std::make_unique<JoinedFleet>(page->live_.get(), page->recordings_.get());
    source = page->joined_.get();
  }
  page->api_ = std::make_unique<page::PageApi>(source, &service::SystemClock(), &page::PageFiles());
  page->server_ =
      std::make_unique<service::HttpServer>([] { return absl::OkStatus(); }, [] { return std::string(); });
  page->api_->AddRoutes(page->server_.get());
  page->api_->TakeRecordings(page->server_.get(), [recordings = page->recordings_.get()](
                                                      const std::string& name, std::string_view content) {
    return recordings->Take(name, content);
  });
  if (page->live_ != nullptr) {
    page->api_->OpenPasts(page->server_.get(),
                          [live = page->live_.get(), recordings = page->recordings_.get()](
                              const std::string& id) { return OpenPast(live, recordings, id); });
  }
  const absl::Status started =
      page->server_->Start(options.listen, service::Gate(*credentials), options.names);
  if (!started.ok()) return started;
  page->api_->Start();
  return page;
}

PageServer::~PageServer() {
  if (server_ != nullptr) server_->Stop();
  if (api_ != nullptr) api_->Stop();
}

std::string PageServer::url() const {
  return absl::StrCat("http://", server_->address(), "/");
}

}  // namespace c4::cli
