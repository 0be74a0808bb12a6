#include "c4a/path_masters.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "service/address.h"
#include "service/text.h"

namespace c4::agent {

using service::Concat;

absl::StatusOr<std::vector<std::string>> ParsePathMasters(std::string_view text) {
  std::vector<std::string> addresses;
  for (const absl::string_view part : absl::StrSplit(absl::string_view(text.data(), text.size()), ',')) {
    const std::string address(absl::StripAsciiWhitespace(part));
    const absl::StatusOr<service::HostPort> read = service::ParseHostPort(address);
    if (!read.ok() || read->port == 0) {
      return absl::InvalidArgumentError(Concat("path-master: '", address,
                                               "' is no HOST:PORT; give one, or several with commas between: "
                                               "c4p1:15143,c4p2:15143"));
    }
    addresses.push_back(address);
  }
  if (addresses.size() > kMostPathMasters) {
    return absl::InvalidArgumentError(
        Concat("path-master: ", addresses.size(), " addresses; give ", kMostPathMasters, " at most"));
  }
  return addresses;
}

absl::Status LeaderEpochs::Heard(uint64_t epoch, int64_t now_ns) {
  if (epoch < latest_ && now_ns - heard_ns_ < kRefuseNs) {
    return absl::FailedPreconditionError(Concat("it leads with epoch ", epoch, ", and one with epoch ",
                                                latest_, " was heard ", (now_ns - heard_ns_) / 1'000'000'000,
                                                " s ago: its time is over"));
  }
  latest_ = epoch;
  heard_ns_ = now_ns;
  return absl::OkStatus();
}

}  // namespace c4::agent
