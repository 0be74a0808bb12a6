// What the operator's page shows of recordings of `c4 record`: the master's logic is run over each of them
// once, and looked at in between, so that any moment of it can be shown at once. Any thread.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cli/page/page_whatif.h"
#include "page/fleet_source.h"

namespace c4::cli {

class MemoryFile;

class RecordingFleet final : public page::FleetSource {
 public:
  // As many looks at a recording, at most; and bytes of all of them, beyond which matrices are not kept.
  static constexpr int kMostMoments = 120;
  static constexpr size_t kMostBytes = 256U << 20;
  // Of those that were dropped onto the page: so many are kept, the newest, with so many bytes of looks each.
  static constexpr size_t kMostDropped = 8;
  static constexpr size_t kMostDroppedBytes = 64U << 20;
  // Their files are held in memory, so many bytes of them: the oldest go.
  static constexpr size_t kMostHeldBytes = 128U << 20;

  // Fails at the first file that is no recording.
  static absl::StatusOr<std::unique_ptr<RecordingFleet>> Open(const std::vector<std::string>& files);

  // Takes in a recording that somebody brings, and returns its id: made of its name and content, so that it
  // is the same wherever the same file is shown. Takes as long as the master's logic needs. InvalidArgument:
  // it is no recording, and why; Unavailable: another one is being read.
  absl::StatusOr<std::string> Take(const std::string& name, std::string_view content);
  bool Has(const std::string& id) const { return Find(id).ok(); }

  std::vector<v1::PageJob> Jobs(std::vector<std::string>* notes) override;
  bool HasPathMaster() override { return false; }
  absl::StatusOr<v1::ListVerdictsReply> Verdicts(const page::JobAt& job, bool include_cleared) override;
  absl::StatusOr<v1::GetStatusReply> Status(const page::JobAt& job) override;
  absl::StatusOr<v1::GetMatrixReply> Matrix(const page::JobAt& job,
                                            const v1::GetMatrixRequest& request) override;
  absl::StatusOr<v1::GetIterationsReply> Iterations(const page::JobAt& job, uint64_t from) override;
  absl::StatusOr<v1::PageTimeline> Timeline(const page::JobAt& job,
                                            const page::TimelineWindow& window) override;
  absl::StatusOr<v1::PageWhatIf> WhatIf(const page::JobAt& job, const std::vector<std::string>& fix) override;
  absl::Status NotKnown() const override;

 private:
  struct Look {
    int64_t unix_ns = 0;
    v1::ListVerdictsReply verdicts;
    v1::GetStatusReply status;
    v1::GetMatrixReply matrix;
  };
  struct Recording {
    v1::PageJob job;
    std::vector<Look> looks;  // by time; never empty
    v1::GetIterationsReply iterations;
    std::string fault;                       // how the file ends, where it does not end in order
    std::string path;                        // of the file
    std::shared_ptr<const MemoryFile> held;  // of a dropped one: the file; else null
    size_t held_bytes = 0;
  };
  using Shared = std::shared_ptr<const Recording>;
  static absl::StatusOr<Recording> Read(const std::string& file, const std::string& name, size_t most_bytes,
                                        size_t* bytes);
  static absl::Status Named(const Recording& recording, const absl::Status& status);
  absl::StatusOr<Shared> Find(const std::string& id) const;
  struct Seen {
    Shared of;
    const Look* look;
  };
  absl::StatusOr<Seen> LookAt(const page::JobAt& job) const;

  WhatIfBook what_if_;
  std::mutex timeline_;       // held while one is made: each goes through a whole recording
  std::mutex reading_;        // held while a dropped one is read
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Shared> opened_;
  std::deque<Shared> dropped_;
};

}  // namespace c4::cli
