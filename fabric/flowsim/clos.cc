#include "fabric/flowsim/clos.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace c4::flowsim {
namespace {

constexpr int64_t kMostLinks = int64_t{1} << 28;

uint64_t HostLinks(const ClosSpec& spec) {
  const uint64_t hosts = static_cast<uint64_t>(spec.pods) * static_cast<uint64_t>(spec.leaves) *
                         static_cast<uint64_t>(spec.hosts_per_leaf) / static_cast<uint64_t>(spec.planes);
  return hosts * static_cast<uint64_t>(spec.planes);
}
uint64_t SpineLinks(const ClosSpec& spec) {
  return static_cast<uint64_t>(spec.pods) * static_cast<uint64_t>(spec.leaves) *
         static_cast<uint64_t>(spec.spines);
}
uint64_t CoreLinks(const ClosSpec& spec) {
  return spec.pods == 1 ? 0
                        : static_cast<uint64_t>(spec.pods) * static_cast<uint64_t>(spec.spines) *
                              static_cast<uint64_t>(spec.cores_per_spine);
}

absl::Status Check(const ClosSpec& spec) {
  const auto refuse = [](const auto&... words) { return absl::InvalidArgumentError(absl::StrCat(words...)); };
  for (const auto& [name, value] : {std::pair<const char*, int>{"pods", spec.pods},
                                    {"leaves", spec.leaves},
                                    {"spines", spec.spines},
                                    {"hosts a leaf", spec.hosts_per_leaf}}) {
    if (value < 1 || value > 65536) return refuse(value, " ", name, ": give between 1 and 65536");
  }
  if (spec.planes != 1 && spec.planes != 2) return refuse(spec.planes, " planes: a host has one port or two");
  if (spec.planes == 2 && spec.leaves % 2 != 0) {
    return refuse("two planes need pairs of leaves: ", spec.leaves, " leaves a pod is an odd number");
  }
  if (spec.pods > 1 && (spec.cores_per_spine < 1 || spec.cores_per_spine > 65536)) {
    return refuse("several pods are joined by cores: give between 1 and 65536 a spine, not ",
                  spec.cores_per_spine);
  }
  for (const double mbps : {spec.host_mbps, spec.spine_mbps, spec.core_mbps}) {
    if (!(mbps > 0) || mbps == std::numeric_limits<double>::infinity()) {
      return refuse("a link of ", mbps, " Mbit/s: give a rate above 0");
    }
  }
  const double links = 2.0 * (static_cast<double>(HostLinks(spec)) + static_cast<double>(SpineLinks(spec)) +
                              static_cast<double>(CoreLinks(spec)));
  if (links > static_cast<double>(kMostLinks)) return refuse(links, " links are more than can be numbered");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Clos> Clos::Make(const ClosSpec& spec) {
  if (absl::Status fault = Check(spec); !fault.ok()) return fault;
  return Clos(spec);
}

Clos::Clos(const ClosSpec& spec) : spec_(spec) {
  hosts_ = static_cast<int>(HostLinks(spec) / static_cast<uint64_t>(spec.planes));
  spine_base_ = static_cast<LinkId>(2 * HostLinks(spec));
  core_base_ = spine_base_ + static_cast<LinkId>(2 * SpineLinks(spec));
  const size_t all = core_base_ + 2 * CoreLinks(spec);
  capacity_.assign(all, spec.core_mbps);
  std::fill_n(capacity_.begin(), core_base_, spec.spine_mbps);
  std::fill_n(capacity_.begin(), spine_base_, spec.host_mbps);
  up_.assign(all, true);
}

int Clos::LeafOf(Port port) const {
  return spec_.planes == 1 ? port.host / spec_.hosts_per_leaf
                           : port.host / spec_.hosts_per_leaf * 2 + port.plane;
}

LinkId Clos::HostLink(Port port, bool up) const {
  const auto number = static_cast<LinkId>(port.host * spec_.planes + port.plane);
  return up ? number : number + spine_base_ / 2;
}

LinkId Clos::SpineLink(int leaf, int spine, bool up) const {
  const auto number = static_cast<LinkId>(leaf * spec_.spines + spine);
  return spine_base_ + (up ? number : number + (core_base_ - spine_base_) / 2);
}

LinkId Clos::CoreLink(int pod, int spine, int core, bool up) const {
  const auto number = static_cast<LinkId>((pod * spec_.spines + spine) * spec_.cores_per_spine + core);
  return core_base_ + (up ? number : number + (links() - core_base_) / 2);
}

LinkId Clos::Reverse(LinkId link) const {
  const auto turn = [link](LinkId base, LinkId end) {
    const LinkId half = (end - base) / 2;
    return link - base < half ? link + half : link - half;
  };
  if (link < spine_base_) return turn(0, spine_base_);
  return link < core_base_ ? turn(spine_base_, core_base_) : turn(core_base_, links());
}

std::string Clos::LinkName(LinkId link) const {
  const LinkId up = std::min(link, Reverse(link));
  const char* const arrow = link == up ? ">" : "<";
  if (up < spine_base_) {
    const Port port{static_cast<int>(up) / spec_.planes, static_cast<int>(up) % spec_.planes};
    return absl::StrCat("host", port.host, arrow, "leaf", LeafOf(port));
  }
  const auto number = static_cast<int>(up - (up < core_base_ ? spine_base_ : core_base_));
  if (up < core_base_)
    return absl::StrCat("leaf", number / spec_.spines, arrow, "spine", number % spec_.spines);
  const int spine = number / spec_.cores_per_spine;
  return absl::StrCat("pod", spine / spec_.spines, ".spine", spine % spec_.spines, arrow, "core",
                      spine % spec_.spines, ".", number % spec_.cores_per_spine);
}

int Clos::Ways(Port from, Port to) const {
  if (LeafOf(from) == LeafOf(to)) return 1;
  return PodOf(from) == PodOf(to) ? spec_.spines : spec_.spines * spec_.cores_per_spine;
}

Path Clos::PathOf(Port from, Port to, int way) const {
  Path path;
  const auto add = [&path](LinkId link) { path.links[path.length++] = link; };
  const int source = LeafOf(from);
  const int destination = LeafOf(to);
  add(HostLink(from, true));
  if (source != destination) {
    const int spine = way % spec_.spines;
    add(SpineLink(source, spine, true));
    if (PodOf(from) != PodOf(to)) {
      const int core = way / spec_.spines;
      add(CoreLink(PodOf(from), spine, core, true));
      add(CoreLink(PodOf(to), spine, core, false));
    }
    add(SpineLink(destination, spine, false));
  }
  add(HostLink(to, false));
  return path;
}

void Clos::SetUp(LinkId link, bool up) {
  up_[link] = up;
  up_[Reverse(link)] = up;
}

bool Clos::IsUp(const Path& path) const {
  return std::all_of(path.begin(), path.end(), [this](LinkId link) { return up_[link]; });
}

}  // namespace c4::flowsim
