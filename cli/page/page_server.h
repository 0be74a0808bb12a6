// The operator's page, served by a program of the command line: `c4 page`, and `c4 demo` while it plays.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/page/joined_fleet.h"
#include "cli/page/live_fleet.h"
#include "cli/page/recording_fleet.h"
#include "page/page_api.h"
#include "service/gate.h"
#include "service/http_server.h"

namespace c4::cli {

struct PageOptions {
  std::string listen = "127.0.0.1:15180";
  std::string names;    // by commas, under which it may be asked for besides addresses and this host's name
  std::string run_dir;  // empty: the default
  std::string log_dir;
  std::vector<std::string> recordings;  // in the place of masters, where there are any
  service::SecurityOptions security;    // who asks the masters, and who may look
};

class PageServer {
 public:
  // Serves until the object goes. InvalidArgument: something in the options is wrong; other statuses: it
  // cannot listen.
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(const PageOptions& options);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  std::string url() const;  // "http://127.0.0.1:15180/"
  // Shows a recording beside the rest, and returns its id.
  absl::StatusOr<std::string> Take(const std::string& name, std::string_view content) {
    return recordings_->Take(name, content);
  }

 private:
  PageServer() = default;

  std::unique_ptr<RecordingFleet> recordings_;
  std::unique_ptr<LiveFleet> live_;  // none where recordings stand in the place of masters
  std::unique_ptr<JoinedFleet> joined_;
  std::unique_ptr<page::PageApi> api_;
  std::unique_ptr<service::HttpServer> server_;
};

}  // namespace c4::cli
