// Names that the library in the process and those who put it there (`c4 install`, `c4 doctor`) have to agree
// on.
#pragma once

namespace c4 {

// What the library that ours takes the place of is called, beside ours.
inline constexpr char kInstalledName[] = "libnccl-vendor.so.2";
// A name that no other library exports: a copy of ours shows by it.
inline constexpr char kOurMark[] = "c4StreamCreate";
// The oldest release of the vendor's whose plugins and calls we know; in NCCL's own code (2.24.0).
inline constexpr int kOldestVendorVersion = 22400;

}  // namespace c4
