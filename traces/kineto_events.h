// The events of one profile in the trace event format, as PyTorch's profiler (Kineto) writes it: an object
// with `traceEvents`, or the array alone. Read as a stream; memory is that of one event.
//
// Times are whole nanoseconds: seconds since the epoch have no nanoseconds left as a double. Event numbers
// count from 0, as an index into traceEvents. One thread; the source must outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "traces/json_scanner.h"

namespace c4::traces {

struct KinetoTime {
  std::optional<int64_t> ns;
  std::string text;  // as written; empty: it is not there

  // "it has no ts", "its ts is 'x', ...".
  std::string Complaint(const char* name) const;
};

struct KinetoEvent {
  uint64_t number = 0;
  std::string phase;
  std::string name;
  std::string category;
  std::string pid;
  std::string tid;
  KinetoTime start;
  KinetoTime duration;
  // Those that are asked for and are no objects or arrays; as many as `args_used`, the rest is room.
  std::vector<std::pair<std::string, std::string>> args;
  size_t args_used = 0;

  const std::string* Arg(const std::string& key) const;
};

// What stands beside the events; before or behind them.
struct KinetoHeader {
  std::optional<int> rank;
  std::optional<int> world_size;
  int64_t base_ns = 0;          // to be added to every time
  uint64_t missing_values = 0;  // members without one, which count as not there
  // Process groups: description and number of ranks; those of the newer profilers.
  std::vector<std::pair<std::string, int>> groups;
};

// The events of one rank's profile, of whatever format.
class ProfileEvents {
 public:
  virtual ~ProfileEvents() = default;
  // False: no more, and the header is complete. InvalidArgument: "event 7, byte 912: ...".
  virtual absl::StatusOr<bool> Next(KinetoEvent* event) = 0;
  virtual const KinetoHeader& header() const = 0;
};

class KinetoEvents final : public ProfileEvents {
 public:
  KinetoEvents(ByteSource* source, const std::set<std::string>& args) : json_(source), args_(args) {}

  absl::StatusOr<bool> Next(KinetoEvent* event) override;
  const KinetoHeader& header() const override { return header_; }

 private:
  enum class Place { kBefore, kEvents, kOver };

  bool Begin();
  bool Header(bool first);
  bool HeaderValue();
  bool Distributed();
  bool Groups();
  bool WholeNumber(const char* name, int64_t most, std::optional<int64_t>* number);
  bool Event(KinetoEvent* event);
  bool Args(KinetoEvent* event);
  bool Time(KinetoTime* time);

  JsonScanner json_;
  const std::set<std::string>& args_;
  KinetoHeader header_;
  Place place_ = Place::kBefore;
  bool bare_ = false;
  bool seen_events_ = false;
  uint64_t next_ = 0;
  std::string key_;
  std::string text_;
};

}  // namespace c4::traces
