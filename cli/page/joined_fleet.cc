#include "cli/page/joined_fleet.h"

#include <utility>

namespace c4::cli {

std::vector<v1::PageJob> JoinedFleet::Jobs(std::vector<std::string>* notes) {
  std::vector<v1::PageJob> jobs = masters_->Jobs(notes);
  for (v1::PageJob& job : recordings_->Jobs(notes)) jobs.push_back(std::move(job));
  return jobs;
}

}  // namespace c4::cli
