// A profile of PyTorch's profiler, packed or not, by a mapping that uses every kind of rule: whatever it
// holds, it is refused with a sentence, or a trace can be made of it.
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "tests/fuzz/profile_bytes.h"
#include "traces/byte_source.h"
#include "traces/kineto_mapping.h"
#include "traces/kineto_proposal.h"

namespace {

constexpr char kMapping[] =
    R"({"layout": {"order": "tp-dp-pp", "sizes": {"tp": 2, "dp": 1, "pp": 1}}, "rules": [
  {"type": "forward-compute", "regex": "^forward-compute(?: mb=([0-9]+))?(?: chunk=([0-9]+))?$",
   "micro_batch": {"group": 1}, "chunk": {"group": 2}, "join": "External id"},
  {"type": "backward-compute", "name": "backward-compute*", "micro_batch": {"arg": "micro_batch"}},
  {"type": "params-all-gather", "name": "nccl*AllGather*", "category": ["kernel", "cpu_op"],
   "args": {"Process Group Description": "DATA*"}},
  {"type": "backward-recv", "regex": "^autograd::", "category": ["launched", "cpu_op"], "runs": true},
  {"type": "grads-reduce-scatter", "name": "nccl*Reduce*", "category": "kernel", "last": true},
  {"type": "optimizer", "name": "optimizer"}]})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  static const auto mapping = c4::traces::ParseKinetoMapping(kMapping);
  C4_FUZZ_CHECK(mapping.ok());
  if (!c4::fuzz::ReadProfileBytes(text, "rank_0.json", *mapping)) return 0;
  c4::traces::KinetoProposal proposal;
  auto again = c4::traces::Unpacked(c4::traces::MemoryBytes(text));
  if (again.ok() && proposal.Read("rank_0.json", again->get()).ok()) {
    const auto proposed = proposal.Propose(1);
    C4_FUZZ_CHECK(!proposed.ok() || c4::traces::ParseKinetoMapping(proposed->json).ok());
  }
  return 0;
}
