// Events of one version of NCCL's profiler interface as an older version says them, for a plugin of the
// user's that knows no newer one. What the older version has no word for is left out, as NCCL's own adapters
// leave it out; what it had and the newer one has no more (the communicator's name and hash at each event)
// comes from the communicator's init. Pure.
#pragma once

#include <concepts>
#include <cstring>

#include "ccl/plugins/profiler/old_abi.h"

namespace c4::profiler {

// Of the communicator that an event is of.
struct EventSource {
  const char* name = nullptr;
  uint64_t hash = 0;
};

// The parents of an event, as the plugin that it is handed to knows them.
struct Parents {
  void* parent = nullptr;
  void* group = nullptr;  // from v5 on an operation has both: the call and the group
};

// The newest kinds of events that a version knows.
constexpr uint64_t KindsOf(int version) {
  using namespace nccl_profiler;  // NOLINT(google-build-using-namespace)
  const uint64_t oldest = kGroup | kColl | kP2p | kProxyOp | kProxyStep | kProxyCtrl;
  if (version < 3) return oldest;
  const uint64_t v3 = oldest | kKernelCh | kNetPlugin;
  if (version < 5) return v3;
  const uint64_t v5 = v3 | kGroupApi | kCollApi | kP2pApi | kKernelLaunch;
  if (version < 6) return v5;
  const uint64_t v6 = v5 | kCeColl | kCeSync | kCeBatch;
  return version < 7 ? v6 : v6 | kKernelPhase;
}

// Whether a plugin whose mask that is is told of events of this kind: it asked for them, or for something
// below them, as NCCL starts what is above an event that is asked for.
constexpr bool IsWanted(uint64_t type, uint64_t mask) {
  using namespace nccl_profiler;  // NOLINT(google-build-using-namespace)
  const uint64_t below_operation = kProxyOp | kProxyStep | kKernelCh | kNetPlugin;
  uint64_t with = type;
  if ((type & (kColl | kP2p)) != 0) with |= below_operation;
  if (type == kProxyOp) with |= kProxyStep | kNetPlugin;
  if (type == kProxyStep) with |= kNetPlugin;
  if (type == kGroup) with |= kColl | kP2p | below_operation;
  if (type == kCeColl) with |= kCeSync | kCeBatch;
  const uint64_t calls = kGroupApi | kCollApi | kP2pApi | kKernelLaunch;
  if ((type & calls) != 0)
    with |= calls | kGroup | kColl | kP2p | kCeColl | kCeSync | kCeBatch | below_operation;
  return (mask & with) != 0;
}

// As 2.23 numbers them; a name that it does not know is its last.
uint8_t OldFunction(const char* name);
uint8_t OldDataType(const char* name);
uint8_t OldAlgorithm(const char* name);
uint8_t OldProtocol(const char* name);

namespace internal {

// A word of an operation, by name or, in v1, by number.
template <typename To>
void Say(const char* from, uint8_t (*number)(const char*), To* to) {
  if constexpr (std::same_as<To, uint8_t>) {
    *to = from == nullptr ? 0 : number(from);
  } else {
    *to = from;
  }
}

// Members that both have, under the one name or the other. `source` for what only the older one has.
template <typename From, typename To>
void FillOperation(const From& from, const EventSource& source, void* group, To* to) {
  Say(from.func, &OldFunction, &to->func);
  Say(from.datatype, &OldDataType, &to->datatype);
  to->count = from.count;
  if constexpr (requires { to->commHash; }) {
    if constexpr (requires { from.commHash; }) {
      to->name = from.name;
      to->commHash = from.commHash;
    } else {
      to->name = source.name;
      to->commHash = source.hash;
    }
  }
  if constexpr (requires { to->parentGroup; }) to->parentGroup = group;
  if constexpr (requires {
                  to->nChannels;
                  from.nChannels;
                })
    to->nChannels = from.nChannels;
  if constexpr (requires {
                  to->userTag;
                  from.userTag;
                })
    to->userTag = from.userTag;
}

template <typename From, typename To>
void FillColl(const From& from, const EventSource& source, void* group, To* to) {
  FillOperation(from, source, group, to);
  Say(from.algo, &OldAlgorithm, &to->algo);
  Say(from.proto, &OldProtocol, &to->proto);
  to->seqNumber = from.seqNumber;
  to->sendBuff = from.sendBuff;
  to->recvBuff = from.recvBuff;
  to->root = from.root;
  to->nWarps = from.nWarps;
  if constexpr (requires { to->nMaxChannels; }) {
    if constexpr (requires { from.nMaxChannels; }) {
      to->nMaxChannels = from.nMaxChannels;
    } else {
      to->nMaxChannels = from.nChannels;
    }
  }
}

template <typename From, typename To>
void FillP2p(const From& from, const EventSource& source, void* group, To* to) {
  FillOperation(from, source, group, to);
  to->buff = from.buff;
  to->peer = from.peer;
}

}  // namespace internal

// REQUIRES: d.type is one of KindsOf(the version of To), which is no newer than that of From.
template <typename To, typename From>
To Translate(const From& d, const EventSource& source, const Parents& parents) {
  using namespace nccl_profiler;  // NOLINT(google-build-using-namespace)
  To to{};
  if constexpr (std::same_as<To, From>) {
    memcpy(&to, &d, sizeof to);  // whatever else is in it
  }
  to.type = static_cast<decltype(to.type)>(d.type);
  to.parentObj = parents.parent;
  // What has a call above it has, before v5, its group there.
  if constexpr (
      requires { d.coll.parentGroup; } && !requires { to.coll.parentGroup; }) {
    if ((d.type & (kColl | kP2p)) != 0) to.parentObj = parents.group;
  }
  to.rank = d.rank;
  switch (static_cast<uint64_t>(d.type)) {
    case kColl:
      internal::FillColl(d.coll, source, parents.group, &to.coll);
      break;
    case kP2p:
      internal::FillP2p(d.p2p, source, parents.group, &to.p2p);
      break;
    default:
      break;
  }
  if constexpr (std::same_as<To, From>) return to;
  switch (static_cast<uint64_t>(d.type)) {
    case kProxyOp:
      to.proxyOp = d.proxyOp;
      break;
    case kProxyStep:
      to.proxyStep = d.proxyStep;
      break;
    case kKernelCh:
      if constexpr (requires {
                      to.kernelCh;
                      d.kernelCh;
                    }) {
        to.kernelCh.channelId = d.kernelCh.channelId;
        if constexpr (requires {
                        to.kernelCh.pTimer;
                        d.kernelCh.pTimer;
                      }) {
          to.kernelCh.pTimer = d.kernelCh.pTimer;
        }
      }
      break;
    case kNetPlugin:
      if constexpr (requires { to.netPlugin; }) to.netPlugin = d.netPlugin;
      break;
    case kGroupApi:
      if constexpr (requires {
                      to.groupApi;
                      d.groupApi;
                    })
        to.groupApi = d.groupApi;
      break;
    case kCollApi:
      if constexpr (requires {
                      to.collApi;
                      d.collApi;
                    })
        to.collApi = d.collApi;
      break;
    case kP2pApi:
      if constexpr (requires {
                      to.p2pApi;
                      d.p2pApi;
                    })
        to.p2pApi = d.p2pApi;
      break;
    case kKernelLaunch:
      if constexpr (requires {
                      to.kernelLaunch;
                      d.kernelLaunch;
                    })
        to.kernelLaunch = d.kernelLaunch;
      break;
    case kCeColl:
    case kCeSync:
    case kCeBatch:
      // The newer one has a tag of the user's behind what the older one has.
      if constexpr (requires {
                      to.ceColl;
                      d.ceColl;
                    })
        memcpy(&to.ceColl, &d.ceColl, sizeof to.ceColl);
      break;
    default:
      break;
  }
  return to;
}

}  // namespace c4::profiler
