#include "c4p_master/options.h"

#include <cstdio>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "service/run_dir.h"
#include "service/text.h"

namespace c4::c4p {
namespace {

constexpr double kSecondNs = 1e9;
constexpr double kMaxSeconds = 30.0 * 86400;

}  // namespace

HandlerOptions MasterOptions::ForHandler(uint64_t master_epoch) const {
  HandlerOptions result;
  result.master_epoch = master_epoch;
  // CompleteOptions has checked it.
  (void)ParsePortRange(source_ports, &result.ports.tcp.low, &result.ports.tcp.high);
  result.ports_per_pair = static_cast<uint32_t>(ports_per_pair);
  result.expiry_ns = static_cast<int64_t>(expiry_s * kSecondNs);
  result.refresh_ns = static_cast<int64_t>(refresh_s * kSecondNs);
  result.default_rate_mbps = rate_mbps;
  result.seed = static_cast<uint64_t>(seed);
  result.moves.allowed = interventions;
  result.moves.per_hour = static_cast<uint64_t>(moves_per_hour);
  result.moves.most_fill = move_most_fill;
  result.flaps.half_life_ns = static_cast<int64_t>(flap_half_life_s * kSecondNs);
  result.moves_per_second = rebalance_per_second;
  return result;
}

StatePlace MasterOptions::ForState(uint64_t wished_epoch) const {
  StatePlace place;
  place.store = store;
  place.wished = wished_epoch;
  place.times.given_ns = static_cast<int64_t>(lease_s * kSecondNs);
  place.times.renew_ns = place.times.given_ns / 5;
  place.ca_file = store_ca;
  place.user_file = store_user_file;
  place.compact_every = absl::Seconds(store_compact_s);
  return place;
}

std::vector<service::Setting> MasterSettings(MasterOptions* options) {
  std::vector<service::Setting> settings = {
      {.name = "listen", .field = &options->listen, .help = "host:port for agents, C4D and c4; port 0: any"},
      {.name = "directory",
       .field = &options->directory,
       .help = "where to publish the address (default: masters/ in C4_RUN_DIR)"},
      {.name = "topology",
       .field = &options->topology,
       .help =
           "JSON file of switches, links and servers (docs/formats/topology.md); none: learnt by probing"},
      {.name = "store",
       .field = &options->store,
       .help = "SQLite file from which it goes on when it is started again: connections, paths, faults; or "
               "etcd://HOST:PORT[,...][/PREFIX] (etcds:// by TLS), which several masters share, of whom one "
               "leads; none: it begins "
               "anew (default: c4p.db beside the directory)"},
      {.name = "lease-s",
       .field = &options->lease_s,
       .help =
           "with etcd: a master that has not renewed its lease for so long leads no more, and another does",
       .min = 0.5,
       .max = 60},
      {.name = "store-ca",
       .field = &options->store_ca,
       .help =
           "with etcds://: PEM file of the authorities that etcd's certificate is of; none: the system's"},
      {.name = "store-user-file",
       .field = &options->store_user_file,
       .help = "with an etcd that knows users: a file of mode 600 with NAME:PASSWORD of one of them"},
      {.name = "store-compact-s",
       .field = &options->store_compact_s,
       .help = "with etcd: the leader has it forget, so often, what keys held that long ago; 0: etcd is "
               "compacted by others",
       .min = 0,
       .max = 86400},
      {.name = "source-ports",
       .field = &options->source_ports,
       .help = "LOW-HIGH of the TCP source ports that are given out; outside net.ipv4.ip_local_port_range. "
               "RoCE's are 49152-65535"},
      {.name = "ports-per-pair",
       .field = &options->ports_per_pair,
       .help = "source ports that are probed for a pair of addresses at a time",
       .min = 1,
       .max = 4096},
      {.name = "expiry-s",
       .field = &options->expiry_s,
       .help = "connections that no agent has renewed for so long count as no load any more",
       .min = 1,
       .max = kMaxSeconds},
      {.name = "refresh-s",
       .field = &options->refresh_s,
       .help = "what a port's path was learnt to be is probed again after so long",
       .min = 1,
       .max = kMaxSeconds},
      {.name = "rate-mbps",
       .field = &options->rate_mbps,
       .help = "rate of NICs and links that do not say theirs",
       .min = 0,
       .max = 1e9},
      {.name = "seed",
       .field = &options->seed,
       .help = "of random choices: which servers probe, which ports"},
      {.name = "interventions",
       .field = &options->interventions,
       .help = "let C4D have queue pairs moved to see whom slowness follows, of jobs that ask for it "
               "(docs/paths.md); false: no job may"},
      {.name = "moves-per-hour",
       .field = &options->moves_per_hour,
       .help = "steps of such experiments that a job may have within an hour",
       .min = 0,
       .max = 10000},
      {.name = "move-most-fill",
       .field = &options->move_most_fill,
       .help = "refuse such a move where a link would be promised more than so many times what it carries",
       .min = 0.1,
       .max = 100},
      {.name = "flap-half-life-s",
       .field = &options->flap_half_life_s,
       .help = "a link that fails counts 1, which halves in this time; above 2.5 it is held back until 0.75; "
               "0: never",
       .min = 0,
       .max = 86400},
      {.name = "rebalance-per-second",
       .field = &options->rebalance_per_second,
       .help = "queue pairs that move within a second where there is time: off links that are held back, "
               "onto links "
               "that are used again",
       .min = 1,
       .max = 1e6},
  };
  service::AppendCommonSettings(&options->common, &settings);
  return settings;
}

absl::Status ParsePortRange(const std::string& text, uint16_t* low, uint16_t* high) {
  const size_t dash = text.find('-');
  uint32_t first = 0;
  uint32_t last = 0;
  if (dash == std::string::npos || !absl::SimpleAtoi(text.substr(0, dash), &first) ||
      !absl::SimpleAtoi(text.substr(dash + 1), &last) || first < 1024 || last > UINT16_MAX || first > last) {
    return absl::InvalidArgumentError(service::Concat(
        "--source-ports ", text, " is no LOW-HIGH with 1024 <= LOW <= HIGH <= 65535, as 20000-28191"));
  }
  *low = static_cast<uint16_t>(first);
  *high = static_cast<uint16_t>(last);
  return absl::OkStatus();
}

absl::Status CompleteOptions(MasterOptions* options) {
  uint16_t low = 0;
  uint16_t high = 0;
  C4_RETURN_IF_NOT_OK(ParsePortRange(options->source_ports, &low, &high));
  if (options->directory.empty()) {
    options->directory = (std::filesystem::path(service::DefaultRunDir()) / "masters").string();
  }
  if (options->store.starts_with("etcd:") || options->store.starts_with("etcds:")) {
    C4_RETURN_IF_NOT_OK(ParseEtcdPlace(options->store).status());
  } else if (options->store.empty()) {
    std::filesystem::path directory(options->directory);
    if (!directory.has_filename()) directory = directory.parent_path();
    options->store = (directory.parent_path() / "c4p.db").string();
  }
  return absl::OkStatus();
}

std::optional<int> LoadOptions(int argc, const char* const* argv, MasterOptions* options) {
  const service::Program program{
      .name = "c4p_master",
      .description = "the path master of a cluster: gives connections paths that do not collide",
      .environment_prefix = "C4P_"};
  const std::vector<service::Setting> settings = MasterSettings(options);
  if (const std::optional<int> exit_status = service::LoadConfig(program, settings, argc, argv))
    return exit_status;
  if (const absl::Status status = CompleteOptions(options); !status.ok()) {
    std::fprintf(stderr, "c4p_master: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  return std::nullopt;
}

}  // namespace c4::c4p
