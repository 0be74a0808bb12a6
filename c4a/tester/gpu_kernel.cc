#include "c4a/tester/gpu_kernel.h"

#include "absl/strings/str_replace.h"

namespace c4::tester {
namespace {

// @T the type, @Z its zero, @B its bytes, @S their logarithm.
constexpr char kText[] = R"(.version 6.0
.target sm_60
.address_size 64

.visible .entry @N(
  .param .u64 a,
  .param .u64 b,
  .param .u64 c,
  .param .u64 order
)
{
  .reg .pred %p<2>;
  .reg .b32 %r<9>;
  .reg .b64 %rd<12>;
  .reg .@T %f<4>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [c];
  ld.param.u64 %rd4, [order];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  mov.u32 %r5, %ctaid.y;
  mov.u32 %r6, %ntid.y;
  mov.u32 %r7, %tid.y;
  mad.lo.s32 %r8, %r5, %r6, %r7;
  cvt.u64.u32 %rd5, %r4;
  cvt.u64.u32 %rd6, %r8;
  mul.lo.u64 %rd7, %rd6, %rd4;
  add.u64 %rd8, %rd7, %rd5;
  shl.b64 %rd8, %rd8, @S;
  add.u64 %rd3, %rd3, %rd8;
  shl.b64 %rd7, %rd7, @S;
  add.u64 %rd1, %rd1, %rd7;
  shl.b64 %rd9, %rd5, @S;
  add.u64 %rd2, %rd2, %rd9;
  shl.b64 %rd10, %rd4, @S;
  mov.@T %f1, @Z;
  mov.u64 %rd11, %rd4;
MORE:
  ld.global.@T %f2, [%rd1];
  ld.global.@T %f3, [%rd2];
  fma.rn.@T %f1, %f2, %f3, %f1;
  add.u64 %rd1, %rd1, @B;
  add.u64 %rd2, %rd2, %rd10;
  sub.u64 %rd11, %rd11, 1;
  setp.ne.u64 %p1, %rd11, 0;
  @%p1 bra MORE;
  st.global.@T [%rd3], %f1;
  ret;
}
)";

}  // namespace

std::string GemmName(bool doubles) {
  return doubles ? "c4_gemm_fp64" : "c4_gemm_fp32";
}

std::string GemmPtx(bool doubles) {
  return absl::StrReplaceAll(kText, {{"@N", GemmName(doubles)},
                                     {"@T", doubles ? "f64" : "f32"},
                                     {"@Z", doubles ? "0d0000000000000000" : "0f00000000"},
                                     {"@B", doubles ? "8" : "4"},
                                     {"@S", doubles ? "3" : "2"}});
}

}  // namespace c4::tester
