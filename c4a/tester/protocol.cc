#include "c4a/tester/protocol.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "service/printable.h"
#include "service/text.h"

namespace c4::tester {
namespace {

using service::Concat;

constexpr size_t kMostFigures = 16;
constexpr double kMostRate = 1e15;

absl::Status Malformed(const std::string& line) {
  return absl::InvalidArgumentError(
      Concat("\"", service::Printable(line.substr(0, 80)), "\" is no line of a tester's"));
}

std::string OneLine(std::string text) {
  for (char& c : text) c = c == '\n' || c == '\r' ? ' ' : c;
  return text.substr(0, kLongestLine / 2);
}

// What comes behind `words` words.
std::string Rest(const std::string& line, size_t words) {
  size_t at = 0;
  for (size_t i = 0; i < words && at != std::string::npos; ++i) {
    at = line.find(' ', at);
    if (at != std::string::npos) ++at;
  }
  return at == std::string::npos ? "" : service::ToUtf8(line.substr(at));
}

bool Rate(const std::string& word, double* rate) {
  return absl::SimpleAtod(word, rate) && std::isfinite(*rate) && *rate >= 0 && *rate <= kMostRate;
}

absl::StatusOr<Answer> ParseDevice(const std::string& line, const std::vector<std::string>& words) {
  DeviceFigures figures;
  if (words.size() >= 2 && words[1] == "fault") {
    figures.fault = Rest(line, 2);
    return figures;
  }
  if (words.size() < 2 || words.size() > kMostFigures) return Malformed(line);
  for (size_t i = 1; i < words.size(); ++i) {
    const std::vector<std::string> parts = absl::StrSplit(words[i], '=');
    double gflops = 0;
    if (parts.size() != 2 || parts[0].empty() || parts[0].size() > 16 || !Rate(parts[1], &gflops)) {
      return Malformed(line);
    }
    figures.gflops.emplace_back(service::ToUtf8(parts[0]), gflops);
  }
  return figures;
}

absl::StatusOr<Answer> ParseTransfer(const std::string& line, const std::vector<std::string>& words) {
  TransferFigures figures;
  if (words.size() < 3 || !absl::SimpleAtoi(words[1], &figures.number)) return Malformed(line);
  if (words[2] == "fault") {
    figures.fault = Rest(line, 3);
    return figures;
  }
  if (words.size() != 5 || !absl::SimpleAtoi(words[2], &figures.bytes) ||
      !absl::SimpleAtoi(words[3], &figures.ns) || figures.ns <= 0) {
    return Malformed(line);
  }
  for (const auto& word : absl::StrSplit(words[4], ',')) {
    double rate = 0;
    if (figures.stream_mib_s.size() >= kMostStreams || !Rate(std::string(word), &rate))
      return Malformed(line);
    figures.stream_mib_s.push_back(rate);
  }
  return figures;
}

}  // namespace

std::string ToLine(const Order& order) {
  if (const auto* device = std::get_if<DeviceOrder>(&order)) return Concat("devices ", device->ms);
  const auto& transfer = std::get<TransferOrder>(order);
  return Concat("transfer ", transfer.number, " ", transfer.from.empty() ? "-" : transfer.from, " ",
                transfer.to, " ", transfer.bytes, " ", transfer.streams, " ", transfer.ms);
}

absl::StatusOr<Order> ParseOrder(const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  if (words.size() == 2 && words[0] == "devices") {
    DeviceOrder order;
    if (absl::SimpleAtoi(words[1], &order.ms) && order.ms <= kLongestTestMs) return order;
  }
  if (words.size() == 7 && words[0] == "transfer") {
    TransferOrder order;
    order.from = words[2] == "-" ? "" : words[2];
    order.to = words[3];
    if (absl::SimpleAtoi(words[1], &order.number) && absl::SimpleAtoi(words[4], &order.bytes) &&
        absl::SimpleAtoi(words[5], &order.streams) && absl::SimpleAtoi(words[6], &order.ms) &&
        order.streams >= 1 && order.streams <= kMostStreams && order.ms >= 1 && order.ms <= kLongestTestMs) {
      return order;
    }
  }
  return Malformed(line);
}

std::string ToLine(const Answer& answer) {
  if (const auto* ready = std::get_if<Ready>(&answer)) {
    return Concat("ready ", ready->port, " ", OneLine(ready->device));
  }
  if (const auto* fault = std::get_if<Fault>(&answer)) return Concat("fault ", OneLine(fault->sentence));
  if (const auto* device = std::get_if<DeviceFigures>(&answer)) {
    if (!device->fault.empty()) return Concat("device fault ", OneLine(device->fault));
    std::string line = "device";
    for (const auto& [name, gflops] : device->gflops) line += absl::StrFormat(" %s=%.6g", name, gflops);
    return line;
  }
  const auto& transfer = std::get<TransferFigures>(answer);
  if (!transfer.fault.empty())
    return Concat("transfer ", transfer.number, " fault ", OneLine(transfer.fault));
  std::string rates;
  for (const double rate : transfer.stream_mib_s) {
    rates += absl::StrFormat("%s%.6g", rates.empty() ? "" : ",", rate);
  }
  return Concat("transfer ", transfer.number, " ", transfer.bytes, " ", transfer.ns, " ", rates);
}

absl::StatusOr<Answer> ParseAnswer(const std::string& line) {
  // What is shown to people must not reach their terminal's controls.
  const auto is_control = [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; };
  if (line.size() > kLongestLine || std::any_of(line.begin(), line.end(), is_control)) return Malformed(line);
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  if (words[0] == "ready" && words.size() >= 2) {
    Ready ready;
    if (!absl::SimpleAtoi(words[1], &ready.port) || ready.port == 0 || ready.port > 65535)
      return Malformed(line);
    ready.device = Rest(line, 2);
    return ready;
  }
  if (words[0] == "fault") return Fault{Rest(line, 1)};
  if (words[0] == "device") return ParseDevice(line, words);
  if (words[0] == "transfer") return ParseTransfer(line, words);
  return Malformed(line);
}

}  // namespace c4::tester
