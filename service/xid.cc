#include "service/xid.h"

#include <algorithm>
#include <array>

namespace c4::service {
namespace {

// By number.
constexpr std::array<XidMeaning, 37> kMeanings = {{
    {8, XidSort::kGpu, "the GPU stopped processing"},
    {13, XidSort::kProgram, "graphics engine exception"},
    {31, XidSort::kProgram, "memory page fault of the GPU"},
    {32, XidSort::kGpu, "invalid or corrupted push buffer"},
    {38, XidSort::kGpu, "firmware error of the driver"},
    {43, XidSort::kProgram, "the GPU stopped processing a channel"},
    {44, XidSort::kGpu, "graphics engine fault during a context switch"},
    {45, XidSort::kConsequence, "clean-up after an earlier error, or after the end of the process"},
    {46, XidSort::kGpu, "the GPU stopped processing"},
    {48, XidSort::kMemory, "double-bit ECC error"},
    {61, XidSort::kGpu, "breakpoint of the internal microcontroller"},
    {62, XidSort::kGpu, "the internal microcontroller halted"},
    {63, XidSort::kMemory, "a page was retired or a row remapped"},
    {64, XidSort::kMemory, "a page could not be retired or a row not remapped"},
    {69, XidSort::kGpu, "graphics engine class error"},
    {74, XidSort::kLink, "NVLink error"},
    {79, XidSort::kGpu, "the GPU has fallen off the bus"},
    {92, XidSort::kMemory, "high rate of single-bit ECC errors"},
    {94, XidSort::kMemory, "contained ECC error"},
    {95, XidSort::kMemory, "uncontained ECC error"},
    {109, XidSort::kGpu, "a context switch timed out"},
    {119, XidSort::kGpu, "the GPU's system processor does not answer"},
    {120, XidSort::kGpu, "error of the GPU's system processor"},
    {121, XidSort::kLink, "error of the chip-to-chip link"},
    {122, XidSort::kGpu, "the power management unit cannot be read"},
    {123, XidSort::kGpu, "the power management unit cannot be written"},
    {137, XidSort::kLink, "NVLink access without privilege"},
    {140, XidSort::kMemory, "unrecovered ECC error"},
    {143, XidSort::kGpu, "the GPU could not be initialized"},
    {144, XidSort::kLink, "NVLink error (SAW)"},
    {145, XidSort::kLink, "NVLink error (RLW)"},
    {146, XidSort::kLink, "NVLink error (TLW)"},
    {147, XidSort::kLink, "NVLink error (TREX)"},
    {148, XidSort::kLink, "NVLink error (power control)"},
    {149, XidSort::kLink, "NVLink error (NETIR)"},
    {150, XidSort::kLink, "NVLink error (MSE)"},
    {154, XidSort::kConsequence, "the GPU's way to recover has changed"},
}};

}  // namespace

XidMeaning MeaningOfXid(uint64_t number) {
  const auto found = std::find_if(kMeanings.begin(), kMeanings.end(),
                                  [&](const XidMeaning& m) { return m.number == number; });
  if (found != kMeanings.end()) return *found;
  return {static_cast<uint32_t>(number), XidSort::kGpu, "an error of the GPU"};
}

}  // namespace c4::service
