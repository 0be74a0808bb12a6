// What agents may send to the path master: messages of three sessions, each with a byte before it that says
// whose it is and how much time goes by, and its length (two bytes, the lower one first). Two of the sessions
// say hello beforehand, as honest agents do. Nothing may throw, whatever they claim.
#include <array>
#include <cstdint>
#include <google/protobuf/stubs/logging.h>
#include <string>
#include <string_view>

#include "c4p_master/c4p_handler.h"
#include "tests/fuzz/check.h"

namespace {

constexpr int64_t kMs = 1'000'000;

c4::v1::AgentToC4p Hello(int host) {
  c4::v1::AgentToC4p message;
  message.mutable_hello()->set_host("host" + std::to_string(host));
  message.mutable_hello()->set_probes_per_second(20000);
  c4::v1::NicInfo* const nic = message.mutable_hello()->add_nics();
  nic->set_name("eth0");
  nic->set_address("10." + std::to_string(host) + ".0.2");
  nic->set_rate_mbps(1000);
  nic->set_carrier(true);
  return message;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*count*/, char*** /*arguments*/) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  c4::service::Metrics metrics;
  c4::c4p::C4pHandler handler({}, std::nullopt, &metrics);
  int64_t now_ns = 1000 * kMs;
  std::array<c4::c4p::SessionId, 3> sessions = {};
  for (size_t i = 0; i < sessions.size(); ++i) {
    sessions[i] = handler.Connect([](const c4::v1::C4pToAgent& message) { (void)message.ByteSizeLong(); });
    if (i < 2) handler.Take(sessions[i], Hello(static_cast<int>(i)), now_ns);
  }
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (rest.size() > 3) {
    const auto what = static_cast<uint8_t>(rest[0]);
    const size_t length = static_cast<uint8_t>(rest[1]) | static_cast<size_t>(static_cast<uint8_t>(rest[2]))
                                                              << 8;
    rest.remove_prefix(3);
    c4::v1::AgentToC4p message;
    const std::string_view bytes = rest.substr(0, length);
    rest.remove_prefix(bytes.size());
    if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) continue;
    c4::c4p::SessionId& session = sessions[what % sessions.size()];
    handler.Take(session, message, now_ns);
    now_ns += int64_t{20} * kMs << (what >> 2) % 16;
    handler.Tick(now_ns);
    if (what >= 0xf8) {  // it hangs up and comes back
      handler.Disconnect(session, now_ns);
      session = handler.Connect([](const c4::v1::C4pToAgent&) {});
    }
  }
  (void)handler.GetTopology(now_ns);
  return 0;
}
