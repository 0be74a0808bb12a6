#include "cli/text/validation_text.h"

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/exit_codes.h"
#include "cli/text/table.h"

namespace c4::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxListed = 64;  // rows of a table on a terminal; a file gets all

std::string Ratio(double ratio) {
  return ratio > 0 ? absl::StrFormat("%.2f", ratio) : "-";
}

std::string Result(bool slow, const std::string& fault) {
  if (!fault.empty()) return fault;
  return slow ? "SLOW" : "ok";
}

// Bad ones first, then by ratio.
template <typename Item>
std::vector<const Item*> InOrder(const google::protobuf::RepeatedPtrField<Item>& items) {
  std::vector<const Item*> order;
  for (const Item& item : items) order.push_back(&item);
  const auto weight = [](const Item* item) { return item->slow() ? 0 : item->fault().empty() ? 2 : 1; };
  std::stable_sort(order.begin(), order.end(),
                   [&](const Item* a, const Item* b) { return weight(a) < weight(b); });
  return order;
}

std::string Figures(const v1::ValidatedDevice& device) {
  std::string text;
  for (const v1::DeviceFigure& figure : device.figures()) {
    absl::StrAppendFormat(&text, "%s%s %.4g", text.empty() ? "" : ", ", figure.test(), figure.gflops());
  }
  return text.empty() ? "-" : text;
}

std::string Cut(size_t rows, const Screen& screen, Table* table) {
  if (screen.columns == 0 || rows <= kMaxListed) return table->Text(screen);
  table->rows.resize(kMaxListed);
  return absl::StrCat(table->Text(screen), "and ", rows - kMaxListed, " more; --json has all\n");
}

std::string Devices(const v1::Validation& validation, const Screen& screen) {
  if (validation.devices().empty()) return "";
  Table table;
  table.columns = {{"RANK"}, {"HOST"}, {"GFLOP/S"}, {"PEERS"}, {"FIRST", 2}, {"DEVICE", 1}, {"RESULT"}};
  table.enough_of_last = 12;
  for (const v1::ValidatedDevice* device : InOrder(validation.devices())) {
    table.rows.push_back({absl::StrCat(device->rank()), device->host(), Figures(*device),
                          Ratio(device->ratio()), Ratio(device->ratio_to_first()), device->device(),
                          Result(device->slow(), device->fault())});
  }
  return "\n" + Cut(table.rows.size(), screen, &table);
}

std::string Links(const v1::Validation& validation, const Screen& screen) {
  if (validation.links().empty()) return "";
  Table table;
  table.columns = {{"RANKS"}, {"FROM"},     {"TO"},      {"MIB/S"}, {"SLOWEST", 1},
                   {"PEERS"}, {"FIRST", 2}, {"PASS", 3}, {"RESULT"}};
  table.enough_of_last = 12;
  for (const v1::ValidatedLink* link : InOrder(validation.links())) {
    table.rows.push_back({absl::StrCat(link->from_rank(), ">", link->to_rank()), link->from(), link->to(),
                          absl::StrFormat("%.4g", link->mib_s()),
                          absl::StrFormat("%.4g", link->slowest_stream_mib_s()), Ratio(link->ratio()),
                          Ratio(link->ratio_to_first()), absl::StrCat(link->pass()),
                          Result(link->slow(), link->fault())});
  }
  return "\n" + Cut(table.rows.size(), screen, &table);
}

template <typename Items>
size_t CountSlow(const Items& items) {
  return static_cast<size_t>(
      std::count_if(items.begin(), items.end(), [](const auto& item) { return item.slow(); }));
}

template <typename Items>
size_t CountFaults(const Items& items) {
  return static_cast<size_t>(
      std::count_if(items.begin(), items.end(), [](const auto& item) { return !item.fault().empty(); }));
}

std::string Head(const v1::Validation& validation, const Screen& screen) {
  const size_t slow = CountSlow(validation.devices()) + CountSlow(validation.links());
  const size_t faults = CountFaults(validation.devices()) + CountFaults(validation.links());
  const auto all = static_cast<size_t>(validation.devices_size() + validation.links_size());
  std::string text;
  if (slow > 0) {
    text = Painted(screen, Colour::kRed, absl::StrCat(slow, slow == 1 ? " part is slow" : " parts are slow"));
  } else if (ValidationExitCode(validation) == kExitNotTested) {
    text = Painted(screen, Colour::kYellow, faults == all ? "nothing was tested" : "not all was tested");
  } else {
    text = Painted(screen, Colour::kGreen, "all sound");
  }
  absl::StrAppend(&text, ": ", validation.devices_size(), " devices, ", validation.links_size(), " links");
  if (validation.passes() > 0) absl::StrAppend(&text, " in ", validation.passes(), " passes");
  if (faults > 0) absl::StrAppend(&text, "; ", faults, " not tested");
  if (validation.held_ns() > 0) {
    absl::StrAppendFormat(&text, "; the job stood still for %.2f s",
                          static_cast<double>(validation.held_ns()) / 1e9);
  }
  text = Wrapped(text, screen.columns == 0 ? 200 : static_cast<size_t>(screen.columns), 2) + "\n";
  if (!validation.why().empty()) {
    absl::StrAppend(
        &text, Wrapped(validation.why(), screen.columns == 0 ? 200 : static_cast<size_t>(screen.columns), 2),
        "\n");
  }
  return text;
}

const char* StateWord(v1::ValidationState state) {
  switch (state) {
    case v1::VALIDATION_STATE_PREPARING:
      return "preparing";
    case v1::VALIDATION_STATE_ARRIVING:
      return "arriving";
    case v1::VALIDATION_STATE_TESTING:
      return "testing";
    case v1::VALIDATION_STATE_RESUMING:
      return "resuming";
    case v1::VALIDATION_STATE_DONE:
      return "done";
    case v1::VALIDATION_STATE_GIVEN_UP:
      return "given up";
    default:
      return "unknown";
  }
}

Json OrNull(double ratio) {
  return ratio > 0 ? Json(ratio) : Json();
}

}  // namespace

int ValidationExitCode(const v1::Validation& validation) {
  if (CountSlow(validation.devices()) + CountSlow(validation.links()) > 0) return kExitSlowPart;
  const bool all = validation.state() == v1::VALIDATION_STATE_DONE &&
                   CountFaults(validation.devices()) + CountFaults(validation.links()) == 0;
  return all ? kExitOk : kExitNotTested;
}

std::string ValidationText(const v1::Validation& validation, const Screen& screen) {
  return Head(validation, screen) + Devices(validation, screen) + Links(validation, screen);
}

std::string ValidationJson(const v1::Validation& validation) {
  Json json;
  json["number"] = validation.number();
  json["job"] = validation.job();
  json["state"] = StateWord(validation.state());
  json["why"] = validation.why();
  json["begun_unix_ns"] = validation.begun_unix_ns();
  json["held_s"] = static_cast<double>(validation.held_ns()) / 1e9;
  json["processes"] = validation.processes();
  json["processes_held"] = validation.processes_held();
  json["passes"] = validation.passes();
  json["by_itself"] = validation.by_itself();
  json["devices"] = Json::array();
  for (const v1::ValidatedDevice& device : validation.devices()) {
    Json item = {{"rank", device.rank()}, {"host", device.host()}, {"device", device.device()}};
    item["gflops"] = Json::object();
    for (const v1::DeviceFigure& figure : device.figures()) item["gflops"][figure.test()] = figure.gflops();
    item["ratio"] = OrNull(device.ratio());
    item["ratio_to_first"] = OrNull(device.ratio_to_first());
    item["slow"] = device.slow();
    item["fault"] = device.fault();
    json["devices"].push_back(std::move(item));
  }
  json["links"] = Json::array();
  for (const v1::ValidatedLink& link : validation.links()) {
    json["links"].push_back({{"from_rank", link.from_rank()},
                             {"to_rank", link.to_rank()},
                             {"from_host", link.from_host()},
                             {"to_host", link.to_host()},
                             {"from", link.from()},
                             {"to", link.to()},
                             {"pass", link.pass()},
                             {"mib_s", link.mib_s()},
                             {"slowest_stream_mib_s", link.slowest_stream_mib_s()},
                             {"ratio", OrNull(link.ratio())},
                             {"ratio_to_first", OrNull(link.ratio_to_first())},
                             {"slow", link.slow()},
                             {"fault", link.fault()}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace c4::cli
