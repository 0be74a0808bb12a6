// Where a Python has NVIDIA's NCCL: the folder of the packages nvidia-nccl-cu12 and nvidia-nccl-cu13, which
// PyTorch's wheels load it from. Starts that Python and asks it; some seconds at most.
#pragma once

#include <string>

#include "cli/base/status.h"

namespace c4::cli {

// …/site-packages/nvidia/nccl/lib. `python`: a program; empty: python3 of PATH, else python. NotFound when
// that Python has no such package, or there is no Python.
StatusOr<std::string> PythonNcclFolder(const std::string& python);

}  // namespace c4::cli
