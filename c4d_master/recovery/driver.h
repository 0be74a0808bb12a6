// Who carries recovery's commands out: a scheduler behind one interface. A driver is stateless; the machine
// remembers. What it is asked for may have been done before (the same number again): then it says that it is
// done.
//
// Calls block, up to `timeout`, on the executor's thread; `stop` is asked ten times a second and ends them.
// What is not known to be done or refused is Outcome::kUnknown.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "c4d_master/recovery/model.h"
#include "c4d_master/recovery/recovery_file.h"
#include "service/status.h"

namespace c4::c4d::recovery {

struct DriverReply {
  Event::Outcome outcome = Event::Outcome::kUnknown;
  std::string text;  // why not
  int64_t checkpoint_ns =
      0;                     // of a restart: when the checkpoint that it begins with was written; 0: not said
  uint32_t incarnation = 0;  // of a restart: which one begins, where the scheduler counts itself; 0: as asked
};

struct Inventory {
  std::vector<Event::Seen> nodes;  // all that the job may run on, spare ones included
  std::optional<uint32_t> failed;  // the job has ended and failed, as that incarnation
};

class Driver {
 public:
  using Stop = std::function<bool()>;

  virtual ~Driver() = default;
  virtual DriverReply Run(const Command& command, absl::Duration timeout, const Stop& stop) = 0;
  virtual absl::StatusOr<Inventory> Look(absl::Duration timeout, const Stop& stop) = 0;
};

// nullptr for none. `job`: its name.
std::unique_ptr<Driver> MakeDriver(const DriverConfig& config, const std::string& job);

// The language of exec, webhook and local (docs/recovery.md). Pure.
std::string RequestJson(const std::string& job, const Command& command);
std::string LookJson(const std::string& job);
DriverReply ReadReply(const std::string& json);
absl::StatusOr<Inventory> ReadInventory(const std::string& json);
const char* VerbOf(Command::Kind kind);  // "isolate", "restart", "check", "give-back"

}  // namespace c4::c4d::recovery
