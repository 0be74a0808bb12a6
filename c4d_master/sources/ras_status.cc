#include "c4d_master/sources/ras_status.h"

#include <algorithm>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "service/printable.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using Json = nlohmann::json;
using service::Concat;

constexpr int kProtocol = 2;
constexpr size_t kMostTextBytes = 256;

// Counted beside the collectives by some releases; not every rank of a communicator calls them alike.
bool IsPointToPoint(const std::string& function) {
  return function == "Send" || function == "Recv" || function == "SendRecv";
}

absl::Status Wrong(const std::string& what) {
  return absl::InvalidArgumentError(
      Concat("RAS answers with what is not understood: ", what,
             "; ask the port by hand (ncclras -f json), and name NCCL's version where it is right"));
}

// The next line without its end, taken off the front; nothing where there is no whole line.
std::optional<std::string_view> TakeLine(std::string_view* text) {
  const size_t end = text->find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  std::string_view line = text->substr(0, end);
  text->remove_prefix(end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string Shown(std::string_view line) {
  return Concat("\"", service::Printable(line.substr(0, 80)), "\"");
}

// Reads one object; the first fault is kept.
class Fields {
 public:
  Fields(const Json& json, std::string place) : json_(json), place_(std::move(place)) {
    if (!json.is_object()) Fail("is no object");
  }

  template <typename Number>
  void Whole(const char* key, int64_t least, int64_t most, Number* value) {
    const Json* found = Find(key);
    if (found == nullptr) return;
    const bool fits = found->is_number_integer() &&
                      (!found->is_number_unsigned() || found->get<uint64_t>() <= uint64_t{INT64_MAX}) &&
                      found->get<int64_t>() >= least && found->get<int64_t>() <= most;
    if (!fits) return Fail(Concat("has no \"", key, "\" from ", least, " to ", most));
    *value = static_cast<Number>(found->get<int64_t>());
  }
  void Flag(const char* key, bool* value) {
    const Json* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_boolean()) return Fail(Concat("has no \"", key, "\" that is true or false"));
    *value = found->get<bool>();
  }
  void Text(const char* key, std::string* value) {
    const Json* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_string()) return Fail(Concat("has no text \"", key, "\""));
    *value = service::Printable(found->get_ref<const std::string&>().substr(0, kMostTextBytes));
  }
  const Json* List(const char* key) { return Kept(key, &Json::is_array, "list"); }
  const Json* Object(const char* key) { return Kept(key, &Json::is_object, "object"); }

  void Fail(const std::string& what) {
    if (status_.ok()) status_ = Wrong(Concat(place_, " ", what));
  }
  const absl::Status& status() const { return status_; }

 private:
  const Json* Find(const char* key) {
    if (!status_.ok()) return nullptr;
    const auto found = json_.find(key);
    if (found != json_.end()) return &*found;
    Fail(Concat("has no \"", key, "\""));
    return nullptr;
  }
  const Json* Kept(const char* key, bool (Json::*is)() const noexcept, const char* what) {
    const Json* found = Find(key);
    if (found == nullptr || (found->*is)()) return found;
    Fail(Concat("has no ", what, " \"", key, "\""));
    return nullptr;
  }

  const Json& json_;
  const std::string place_;
  absl::Status status_;
};

// "unknown" and -1 where RAS itself does not know.
template <typename Rank>
void ReadPlace(Fields* fields, Rank* rank) {
  fields->Whole("rank", 0, INT32_MAX, &rank->rank);
  fields->Text("host", &rank->host);
  if (rank->host == "unknown") rank->host.clear();
  int64_t pid = -1;
  fields->Whole("pid", -1, INT32_MAX, &pid);
  rank->pid = pid > 0 ? static_cast<uint32_t>(pid) : 0;
}

absl::StatusOr<RasRank> ReadRank(const Json& json, const std::string& place) {
  RasRank rank;
  Fields fields(json, place);
  ReadPlace(&fields, &rank);
  if (const Json* status = fields.Object("status")) {
    Fields of_status(*status, Concat(place, "'s status"));
    of_status.Whole("init_state", INT32_MIN, INT32_MAX, &rank.init_state);
    of_status.Whole("async_error", INT32_MIN, INT32_MAX, &rank.async_error);
    of_status.Flag("finalize_called", &rank.finalized);
    of_status.Flag("destroy_flag", &rank.destroyed);
    of_status.Flag("abort_flag", &rank.aborted);
    if (!of_status.status().ok()) return of_status.status();
  }
  if (const Json* counts = fields.Object("collective_counts")) {
    Fields of_counts(*counts, Concat(place, "'s collective_counts"));
    for (const auto& [function, count] : counts->items()) {
      uint64_t value = 0;
      of_counts.Whole(function.c_str(), 0, int64_t{1} << 53, &value);
      if (!IsPointToPoint(function)) rank.collectives += value;
    }
    if (!of_counts.status().ok()) return of_counts.status();
  }
  if (!fields.status().ok()) return fields.status();
  return rank;
}

absl::StatusOr<RasMissingRank> ReadMissing(const Json& json, const std::string& place) {
  RasMissingRank rank;
  Fields fields(json, place);
  ReadPlace(&fields, &rank);
  if (const Json* status = fields.Object("status")) {
    Fields of_status(*status, Concat(place, "'s status"));
    of_status.Flag("considered_dead", &rank.considered_dead);
    if (!of_status.status().ok()) return of_status.status();
  }
  if (!fields.status().ok()) return fields.status();
  return rank;
}

// FNV-1a: the same from one answer to the next.
uint64_t Mixed(uint64_t hash, const std::string& secondary) {
  for (const char c : secondary) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

struct Hashed {
  uint64_t hash = 0;
  std::string secondary;
};

absl::StatusOr<RasCommunicator> ReadCommunicator(const Json& json, const std::string& place, Hashed* hashed) {
  RasCommunicator communicator;
  Fields fields(json, place);
  std::string hash;
  fields.Text("hash", &hash);
  fields.Text("secondary_hash", &hashed->secondary);
  fields.Whole("size", 1, INT32_MAX, &communicator.size);
  const Json* ranks = fields.List("ranks");
  const Json* missing = fields.List("missing_ranks");
  if (fields.status().ok() && !absl::SimpleHexAtoi(hash, &hashed->hash)) {
    fields.Fail(Concat("has no hexadecimal \"hash\", but ", Shown(hash)));
  }
  if (!fields.status().ok()) return fields.status();
  std::vector<uint32_t> numbers;
  for (const Json& one : *ranks) {
    absl::StatusOr<RasRank> rank = ReadRank(one, Concat(place, ", a rank of it,"));
    if (!rank.ok()) return rank.status();
    numbers.push_back(rank->rank);
    communicator.ranks.push_back(*std::move(rank));
  }
  for (const Json& one : *missing) {
    absl::StatusOr<RasMissingRank> rank = ReadMissing(one, Concat(place, ", a missing rank of it,"));
    if (!rank.ok()) return rank.status();
    numbers.push_back(rank->rank);
    communicator.missing.push_back(*std::move(rank));
  }
  std::sort(numbers.begin(), numbers.end());
  if (std::adjacent_find(numbers.begin(), numbers.end()) != numbers.end()) {
    return Wrong(Concat(place, " has a rank twice"));
  }
  if (!numbers.empty() && numbers.back() >= communicator.size) {
    return Wrong(Concat(place, " has a rank ", numbers.back(), " and a size of ", communicator.size));
  }
  return communicator;
}

// NCCL 2.28.9 leaves out the comma between the last number of a missing rank and its "status".
std::string WithMissingCommas(std::string_view json) {
  constexpr std::string_view kStatus = "\"status\"";
  std::string mended;
  while (!json.empty()) {
    const std::string_view part = json.substr(0, json.find(kStatus));
    const size_t last = part.find_last_not_of(" \t\r\n");
    mended.append(part);
    json.remove_prefix(part.size());
    if (json.empty()) break;
    if (last != std::string_view::npos && part[last] >= '0' && part[last] <= '9') mended.push_back(',');
    mended.append(kStatus);
    json.remove_prefix(kStatus.size());
  }
  return mended;
}

}  // namespace

std::string RasRequest(int timeout_s) {
  return Concat("CLIENT PROTOCOL ", kProtocol, "\nTIMEOUT ", timeout_s, "\nSET FORMAT json\nSTATUS\n");
}

absl::StatusOr<RasStatus> ParseRasReply(std::string_view reply) {
  if (reply.size() > kMostRasBytes) return Wrong(Concat("more than ", kMostRasBytes >> 20, " MiB"));
  if (reply.empty()) return Wrong("nothing at all");
  std::optional<std::string_view> line = TakeLine(&reply);
  if (!line.has_value() || !line->starts_with("SERVER PROTOCOL ")) {
    return Wrong(Concat(line.has_value() ? Shown(*line) : "no line", " where \"SERVER PROTOCOL\" is due"));
  }
  line = TakeLine(&reply);
  if (!line.has_value() || *line != "OK") {
    return Wrong(Concat(line.has_value() ? Shown(*line) : "no line", " to the time that was asked for"));
  }
  line = TakeLine(&reply);
  if (line.has_value() && line->starts_with("ERROR")) {
    return absl::FailedPreconditionError(
        Concat("this NCCL's RAS writes no JSON (it says ", Shown(*line),
               "): it takes NCCL 2.28.7 or later, or C4's own agents on the nodes"));
  }
  if (!line.has_value() || *line != "OK") {
    return Wrong(Concat(line.has_value() ? Shown(*line) : "no line", " to the format that was asked for"));
  }
  Json json = Json::parse(reply, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) json = Json::parse(WithMissingCommas(reply), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded())
    return Wrong("no whole JSON after the protocol's lines: it is cut off, or damaged");

  RasStatus status;
  Fields fields(json, "the answer");
  fields.Text("nccl_version", &status.nccl_version);
  const Json* communicators = fields.List("communicators");
  if (!fields.status().ok()) return fields.status();
  std::vector<Hashed> hashes;
  std::map<uint64_t, size_t> times;
  size_t ranks = 0;
  for (const Json& one : *communicators) {
    Hashed hashed;
    absl::StatusOr<RasCommunicator> communicator =
        ReadCommunicator(one, Concat("communicator ", hashes.size()), &hashed);
    if (!communicator.ok()) return communicator.status();
    ranks += communicator->ranks.size() + communicator->missing.size();
    if (ranks > kMostRasRanks) return Wrong(Concat("more than ", kMostRasRanks, " ranks"));
    ++times[hashed.hash];
    hashes.push_back(std::move(hashed));
    status.communicators.push_back(*std::move(communicator));
  }
  for (size_t i = 0; i < hashes.size(); ++i) {
    status.communicators[i].id =
        times[hashes[i].hash] == 1 ? hashes[i].hash : Mixed(hashes[i].hash, hashes[i].secondary);
  }
  return status;
}

}  // namespace c4::c4d
