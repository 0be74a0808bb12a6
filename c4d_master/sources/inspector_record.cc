#include "c4d_master/sources/inspector_record.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "service/printable.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using Json = nlohmann::json;
using service::Concat;

constexpr int64_t kMostUnixUs = INT64_MAX / 1000;
constexpr int64_t kLongestUs = int64_t{7} * 24 * 3600 * 1'000'000;
constexpr size_t kMostTextBytes = 256;

absl::Status Wrong(const std::string& what) {
  return absl::InvalidArgumentError(what);
}

// Reads the fields of one object; the first that is missing, or is no such value, is kept as the fault.
class Fields {
 public:
  Fields(const Json& json, const char* name, std::string* fault) : fault_(fault) {
    const auto found = json.find(name);
    if (found != json.end() && found->is_object()) {
      object_ = &*found;
    } else {
      Fail(name);
    }
  }

  int64_t Whole(const char* key, int64_t least, int64_t most) {
    const Json* const value = Find(key);
    if (value == nullptr) return least;
    // JSON's own numbers; one beyond 2^63 is none of ours.
    const bool fits = value->is_number_integer() &&
                      (!value->is_number_unsigned() || value->get<uint64_t>() <= uint64_t{INT64_MAX}) &&
                      value->get<int64_t>() >= least && value->get<int64_t>() <= most;
    if (!fits) Fail(key);
    return fits ? value->get<int64_t>() : least;
  }
  std::string Text(const char* key) {
    const Json* const value = Find(key);
    if (value != nullptr && value->is_string()) return value->get_ref<const std::string&>();
    Fail(key);
    return "";
  }
  const Json* Optional(const char* key) const {
    if (object_ == nullptr) return nullptr;
    const auto found = object_->find(key);
    return found == object_->end() ? nullptr : &*found;
  }
  void Fail(const char* key) {
    if (fault_->empty()) *fault_ = Concat("it has no \"", key, "\" that is understood");
  }

 private:
  const Json* Find(const char* key) {
    const Json* const value = Optional(key);
    if (value == nullptr) Fail(key);
    return value;
  }

  const Json* object_ = nullptr;
  std::string* const fault_;
};

// Of all channels' kernels, in a verbose log: the first start and the last end. False: it does not say, or
// says what cannot be.
bool ReadKernelTimes(const Json& trace, InspectorRecord* record) {
  if (!trace.is_object()) return false;
  const auto events = trace.find("kernel_events");
  if (events == trace.end() || !events->is_array() || events->empty()) return false;
  int64_t began_us = INT64_MAX;
  int64_t ended_us = 0;
  for (const Json& event : *events) {
    if (!event.is_object()) return false;
    const auto time = [&](const char* key) -> int64_t {
      const auto found = event.find(key);
      if (found == event.end() || !found->is_number_unsigned()) return 0;
      return static_cast<int64_t>(std::min<uint64_t>(found->get<uint64_t>(), kMostUnixUs));
    };
    const int64_t start_us = time("kernel_start_ts");
    const int64_t stop_us = time("kernel_stop_ts");
    if (start_us == 0 || stop_us < start_us) return false;
    began_us = std::min(began_us, start_us);
    ended_us = std::max(ended_us, stop_us);
  }
  // By another clock than the line's own.
  if (ended_us - began_us > kLongestUs || ended_us * 1000 > record->dumped_unix_ns) return false;
  record->began_unix_ns = began_us * 1000;
  record->ended_unix_ns = ended_us * 1000;
  return true;
}

}  // namespace

absl::StatusOr<InspectorRecord> ParseInspectorLine(std::string_view line) {
  if (line.size() > kMostInspectorLineBytes) return Wrong("it is longer than 1 MiB");
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return Wrong("it is no JSON object, or is cut off");
  std::string fault;
  InspectorRecord record;
  Fields header(json, "header", &fault);
  const std::string id = header.Text("id");
  if (!absl::SimpleHexAtoi(id, &record.communicator_id) || record.communicator_id == 0) header.Fail("id");
  record.rank_count = static_cast<uint32_t>(header.Whole("n_ranks", 1, 1 << 20));
  record.rank = static_cast<uint32_t>(header.Whole("rank", 0, int64_t{record.rank_count} - 1));
  Fields metadata(json, "metadata", &fault);
  record.host = service::Printable(metadata.Text("hostname").substr(0, kMostTextBytes));
  if (record.host.empty()) metadata.Fail("hostname");
  record.pid = static_cast<uint32_t>(metadata.Whole("pid", 1, INT32_MAX));
  record.dumped_unix_ns = metadata.Whole("dump_timestamp_us", 1, kMostUnixUs) * 1000;
  Fields performance(json, "coll_perf", &fault);
  record.function = service::Printable(performance.Text("coll").substr(0, kMostTextBytes));
  record.sequence = static_cast<uint64_t>(performance.Whole("coll_sn", 0, INT64_MAX));
  record.bytes = static_cast<uint64_t>(performance.Whole("coll_msg_size_bytes", 0, INT64_MAX));
  const int64_t lasted_us = performance.Whole("coll_exec_time_us", 0, kLongestUs);
  if (!fault.empty()) return Wrong(fault);
  const Json* const trace = performance.Optional("event_trace_ts");
  if (trace == nullptr || !ReadKernelTimes(*trace, &record)) {
    record.ended_unix_ns = record.dumped_unix_ns;
    record.began_unix_ns = record.dumped_unix_ns - std::min(lasted_us * 1000, record.dumped_unix_ns);
  }
  return record;
}

}  // namespace c4::c4d
