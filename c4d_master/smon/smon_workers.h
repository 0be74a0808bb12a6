// The thread behind SMon, which analyses.
//
// Stop lets an analysis end and joins it; what was analysed by then can still be taken. The destructor stops.
#pragma once

#include <mutex>
#include <vector>

#include "c4d_master/smon/smon_work.h"
#include "service/state_thread.h"

namespace c4::c4d {

class SmonWorkers final : public SmonWork {
 public:
  SmonWorkers();
  ~SmonWorkers() override;
  SmonWorkers(const SmonWorkers&) = delete;
  SmonWorkers& operator=(const SmonWorkers&) = delete;

  void Stop();

  void Analyse(uint64_t session, ProfiledJob profile) override;
  std::vector<Analysed> TakeAnalysed() override;

 private:
  std::mutex mutex_;  // of the results
  std::vector<Analysed> analysed_;
  service::StateThread analyst_;
};

}  // namespace c4::c4d
