// Reads the profiles of a job that PyTorch's profiler (Kineto) wrote, one file a rank, into the operations of
// a trace, by a mapping file (docs/formats/kineto-mapping.md).
//
// Read each file, in any order, then Finish. Memory: 72 bytes an event that a rule takes, and some 50 a
// launch or kernel, of the one rank that is being read, and 40 an operation of the job; other events cost
// none. One thread. Every error names the file, and the event where there is one, counted from 0.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "traces/byte_source.h"
#include "traces/kineto_layout.h"
#include "traces/kineto_mapping.h"
#include "traces/kineto_matcher.h"
#include "traces/table_reader.h"

namespace c4::traces {

class KinetoReader {
 public:
  // Of `options` the steps and the limit count. InvalidArgument: the layout and `shape` do not agree.
  static absl::StatusOr<std::unique_ptr<KinetoReader>> Make(KinetoMapping mapping,
                                                            const whatif::JobShape& shape,
                                                            const TableOptions& options);

  // After an error the reader is of no use.
  absl::Status Read(const std::string& file, ByteSource* source);
  // InvalidArgument where ranks are missing or no rule found anything.
  absl::StatusOr<TableContents> Finish();

 private:
  struct RuleUse {
    bool used = false;
    std::map<size_t, int> ranks_by_category;  // place in the rule's list: on how many ranks it was taken
  };
  // What is counted over all files, and where it was first.
  struct Count {
    size_t number = 0;
    std::string first;
    void Add(size_t more, const std::string& where) {
      if (number == 0 && more > 0) first = where;
      number += more;
    }
  };

  KinetoReader(KinetoMapping mapping, RankPlaces places, const TableOptions& options)
      : mapping_(std::move(mapping)),
        places_(std::move(places)),
        options_(options),
        matcher_(mapping_),
        rules_(mapping_.rules.size()) {}

  friend class KinetoFile;

  absl::Status CheckWorkers() const;
  absl::Status CheckRules();
  void NoteWhatIsLeftOut();

  KinetoMapping mapping_;
  RankPlaces places_;
  TableOptions options_;
  KinetoMatcher matcher_;
  std::vector<RuleUse> rules_;
  std::map<int, std::string> file_of_rank_;
  size_t ranks_left_out_ = 0;
  Count outside_;   // operations that start in no step
  Count unpaired_;  // beginnings without an end, ends without a beginning
  Count copies_;
  Count missing_;              // members without a value
  Count idle_;                 // marks that launched nothing, of rules whose other marks did
  Count clocks_;               // ranks whose operations are timed on the GPU and their steps on the CPU
  bool on_processors_ = true;  // no rank's profile has anything of a GPU
  std::vector<whatif::OperationRecord> step_begins_;
  std::optional<int64_t> origin_ns_;
  TableContents contents_;
};

}  // namespace c4::traces
