// A matrix product as text of NVIDIA's assembly language, for GPUs whose machine has no cuBLAS: the driver
// compiles it for whatever GPU there is, from Pascal on. One thread computes one element, by a plain loop: it
// is no measure of what the GPU could do, but of how it does beside its peers.
//
// The order of the matrices (row by row) has to be a multiple of kGemmBlock. Pure.
#pragma once

#include <string>

namespace c4::tester {

inline constexpr unsigned kGemmBlock = 16;  // threads of a block, each way

// Name of the kernel: "c4_gemm_fp32", "c4_gemm_fp64". Arguments, 64 bits each: addresses of a, b, c = a * b,
// the order.
std::string GemmName(bool doubles);
std::string GemmPtx(bool doubles);

}  // namespace c4::tester
