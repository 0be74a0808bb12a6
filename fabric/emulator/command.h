// How the emulator acts on the machine: runs ip, tc, nft and bird, enters network namespaces, writes sysctls.
//
// Every call blocks until it is done and is safe from any thread; the caller's own namespace never changes
// (a forked child or a thread of its own enters another one). Errors quote the command that failed, and of a
// batch the line.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric/emulator/batch.h"

namespace c4::fabric {

inline constexpr char kNamespaceDir[] = "/run/netns";

// PermissionDenied or FailedPrecondition (a tool that is not installed) with a sentence that says what to do.
absl::Status CheckRights();

// Runs a program (found in PATH or the sbin folders) to its end with `input` as its standard input, in
// network namespace `ns` (empty: the caller's), and gives its standard output.
absl::StatusOr<std::string> RunCommand(const std::vector<std::string>& command, std::string_view input = "",
                                       const std::string& ns = "");

// `ip -batch`, `tc -batch` and `nft -f` with that text. An empty text does nothing.
absl::Status RunIp(const NamespaceText& batch);
absl::Status RunIp(const std::vector<NamespaceText>& batches);
absl::Status RunTc(const NamespaceText& batch);
absl::Status RunNft(const NamespaceText& script);

// Calls `work` on a thread that is in that namespace.
absl::Status InNamespace(const std::string& ns, const std::function<absl::Status()>& work);
absl::Status WriteSysctls(const std::string& ns, const Sysctls& sysctls);

// Names of all network namespaces that `ip netns` knows, sorted.
std::vector<std::string> NamespaceNames();
bool NamespaceExists(const std::string& ns);
// Processes (not threads) whose network namespace is that one.
std::vector<int> ProcessesIn(const std::string& ns);

// The file's text, or "" when it cannot be read.
std::string ReadText(const std::string& path);
// Writes into a file that is there (of /proc or /sys).
absl::Status WriteText(const std::string& path, std::string_view text);

}  // namespace c4::fabric
