// Lines of the kernel's log: the form of /dev/kmsg ("4,1234,5678901,-;text"), that of dmesg ("[ 5678.901]
// text") and that of syslog ("Nov 24 19:00:00 host kernel: [ 5678.901] text"), and which of them tell that
// hardware, or the host, fails. Bytes from outside (names of processes stand in them): anything may come.
//
// Pure; any thread; what is not known is nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "c4a/health/event.h"

namespace c4::agent {

struct KernelLine {
  int64_t stamp_us = -1;  // since the kernel's start; -1: the line does not say
  std::string_view message;
};

// Nothing: not the beginning of a message (kmsg's "KEY=value" lines begin with a blank).
std::optional<KernelLine> SplitKernelLine(std::string_view line);

// `device` of what happened to a device of the PCI bus is its address ("0000:3b:00.0"), of a network
// interface its name; at_ns is left at 0.
std::optional<HealthEvent> ParseKernelMessage(std::string_view message);

// "0000:3b:00.0" of "PCI:0000:3b:00", "00000000:3B:00.0"; empty where it is no such address.
std::string PciAddress(std::string_view text);

}  // namespace c4::agent
