// The operator's page of a demonstration: served by `c4 demo` itself while it plays, and after it where that
// is asked for. One thread.
#pragma once

#include <memory>
#include <string>

#include "cli/page/page_server.h"

namespace c4::cli {

class DemoPage {
 public:
  // At the page's usual port, or where somebody has that one, at any. Where root plays it for another user
  // (sudo), that user's browser shows a token, which the link carries. REQUIRES: service::BlockSignals first.
  static absl::StatusOr<std::unique_ptr<DemoPage>> Open();
  ~DemoPage();
  DemoPage(const DemoPage&) = delete;
  DemoPage& operator=(const DemoPage&) = delete;

  const std::string& link() const { return link_; }
  // Where jobs are to keep logs, for the page to show them once they are over. Gone with the object.
  std::string log_dir() const { return folder_ + "/logs"; }
  // What the jobs that are over kept of their last minutes, beside them, as recordings. How many there are.
  int ShowRecordings();

 private:
  DemoPage() = default;

  std::string folder_;
  std::string link_;
  std::unique_ptr<PageServer> server_;
};

}  // namespace c4::cli
