// c4a: the node agent.
#include <cstdio>
#include <optional>

#include "c4a/agent.h"
#include "c4a/options.h"
#include "service/address.h"
#include "service/log.h"
#include "service/signals.h"
#include "service/version.h"

namespace {

using namespace c4;  // NOLINT(google-build-using-namespace): main only

absl::Status Serve(const agent::AgentOptions& options, const std::string& settings) {
  C4_RETURN_IF_NOT_OK(service::InitLog(options.common.log, "c4a"));
  service::LogInfo("c4a ", service::Version(), " starts: ", settings);
  const absl::StatusOr<service::Credentials> credentials = service::Credentials::Load(
      options.common.security, {.role = service::Role::kAgent, .host = service::HostName()});
  if (!credentials.ok()) return credentials.status();
  agent::Agent agent(options, *credentials);
  C4_RETURN_IF_NOT_OK(agent.Start());
  const int signal = service::WaitForSignal();
  service::LogInfo("c4a ends on signal ", signal);
  agent.Stop();
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  service::BlockSignals();
  agent::AgentOptions options = agent::DefaultAgentOptions();
  const std::vector<service::Setting> settings = agent::AgentSettings(&options);
  if (const auto exit_status = service::LoadConfig(agent::AgentProgram(), settings, argc, argv))
    return *exit_status;
  const absl::Status status = Serve(options, service::DescribeConfig(settings));
  if (!status.ok()) service::LogError("c4a cannot run: ", status.message());
  service::FlushLog();
  return status.ok() ? 0 : 1;
}
