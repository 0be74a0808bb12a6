// The threads behind SMon: one analyses, and one for each alert rule that has had anything to tell sends its
// notifications and tries again, a few times, what fails; a receiver that does not answer holds up nobody
// else's.
//
// Stop lets an analysis end, cuts notifications off (the next master sends them) and joins all; what was
// analysed by then can still be taken. The destructor stops.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "c4d_master/smon/smon_work.h"
#include "service/state_thread.h"
#include "service/wakeup.h"

namespace c4::c4d {

// One attempt at a notification: by webhook or command, as the rule says. `stop` as for RunCommand.
absl::Status Attempt(const Delivery& delivery, const std::function<bool()>& stop);

class SmonWorkers final : public SmonWork {
 public:
  // `first_pause`: before the second attempt; doubles with each.
  explicit SmonWorkers(absl::Duration first_pause = absl::Seconds(1));
  ~SmonWorkers() override;
  SmonWorkers(const SmonWorkers&) = delete;
  SmonWorkers& operator=(const SmonWorkers&) = delete;

  void Stop();

  void Analyse(uint64_t session, ProfiledJob profile) override;
  void Deliver(Delivery delivery) override;
  std::vector<Analysed> TakeAnalysed() override;
  std::vector<Delivered> TakeDelivered() override;

 private:
  struct Sender;

  void SendNow(const Delivery& delivery, service::Wakeup* stopped);
  absl::Status Send(const Delivery& delivery, service::Wakeup* stopped);

  const absl::Duration first_pause_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;  // of the results
  std::vector<Analysed> analysed_;
  std::vector<Delivered> delivered_;
  service::StateThread analyst_;
  std::mutex senders_mutex_;
  std::map<size_t, std::unique_ptr<Sender>> senders_;  // by rule
};

}  // namespace c4::c4d
