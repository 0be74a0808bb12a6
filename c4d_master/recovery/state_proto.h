// Recovery's state as a message, for the store and for whoever asks; and back. Pure; any thread.
#pragma once

#include "c4/v1/recovery.pb.h"
#include "c4d_master/recovery/model.h"

namespace c4::c4d::recovery {

v1::RecoveryState ToProto(const State& state);
v1::RecoveryIncident ToProto(const Incident& incident);
State FromProto(const v1::RecoveryState& message);

}  // namespace c4::c4d::recovery
