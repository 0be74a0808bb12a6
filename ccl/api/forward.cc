// The exported functions that are only handed on (ccl/api/forwarded.inc): tail jumps in assembler, which know
// no signature and leave all registers and the stack as they came. So structs by value pass, and releases
// whose arguments we have never seen.
//
// Each function has a slot, which is empty until its first call; that one looks for the vendor's library
// and fills all slots, with the vendor's functions or ours. What the vendor's release lacks gets one that
// says so.
#include <atomic>
#include <string>

#include "ccl/api/last_error.h"
#include "ccl/base/log.h"
#include "ccl/engine/vendor/library.h"

// Both are used from the assembler below only.
extern "C" {
#define C4_FORWARD(kind, name, host)                                          \
  __attribute__((visibility("hidden"), used)) void* c4_forward_slot_##name{}; \
  __attribute__((visibility("hidden"))) void c4_forward_host_##name() __asm__(#host);
#include "ccl/api/forwarded.inc"
#undef C4_FORWARD
__attribute__((visibility("hidden"), used)) void c4_forward_fill();
__attribute__((visibility("hidden"), used)) int c4_host_later();
}

namespace c4::api {
namespace {

// For int, pointers and small structs alike: an error code, and no address.
int Lacking() {
  const vendor::Library* const library = vendor::Get();
  return Report("NCCL", nullptr, [library] {
    return Fail(ncclInvalidUsage,
                "the function that was called is in later releases; the vendor's library is %s: install a "
                "later one, or a program for this one",
                library == nullptr ? "gone" : library->path.c_str());
  });
}

void* SlotFor(const vendor::Library* library, const char* name, void (*host)()) {
  if (library == nullptr) return reinterpret_cast<void*>(host);
  void* const symbol = library->Symbol(name);
  return symbol != nullptr ? symbol : reinterpret_cast<void*>(&Lacking);
}

void FillSlot(void** slot, void* function) {
  std::atomic_ref<void*>(*slot).store(function, std::memory_order_release);
}

}  // namespace
}  // namespace c4::api

extern "C" void c4_forward_fill() {
  const c4::vendor::Library* const library = c4::vendor::Get();
#define C4_FORWARD(kind, name, host) \
  c4::api::FillSlot(&c4_forward_slot_##name, c4::api::SlotFor(library, #name, &c4_forward_host_##name));
#include "ccl/api/forwarded.inc"
#undef C4_FORWARD
}

extern "C" int c4_host_later() {
  return c4::api::Report("NCCL", nullptr, [] {
    return c4::Fail(ncclInvalidUsage,
                    "the function that was called works on GPU memory only, and this process has no NCCL of "
                    "the vendor's (C4_ENGINE, C4_VENDOR_LIBRARY)");
  });
}

#if defined(__x86_64__)

// c4_forward_resolve: fills the slots; all that may carry an argument is kept. It is called at the entry of a
// function, when the stack is 8 bytes off a multiple of 16, and its own return address makes that even.
__asm__(R"(
  .text
  .hidden c4_forward_resolve
  .type c4_forward_resolve, @function
c4_forward_resolve:
  .cfi_startproc
  pushq %rbp
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %rbp, 0
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  andq $-16, %rsp
  subq $192, %rsp
  movq %rdi, 0(%rsp)
  movq %rsi, 8(%rsp)
  movq %rdx, 16(%rsp)
  movq %rcx, 24(%rsp)
  movq %r8, 32(%rsp)
  movq %r9, 40(%rsp)
  movq %rax, 48(%rsp)
  movaps %xmm0, 64(%rsp)
  movaps %xmm1, 80(%rsp)
  movaps %xmm2, 96(%rsp)
  movaps %xmm3, 112(%rsp)
  movaps %xmm4, 128(%rsp)
  movaps %xmm5, 144(%rsp)
  movaps %xmm6, 160(%rsp)
  movaps %xmm7, 176(%rsp)
  call c4_forward_fill
  movq 0(%rsp), %rdi
  movq 8(%rsp), %rsi
  movq 16(%rsp), %rdx
  movq 24(%rsp), %rcx
  movq 32(%rsp), %r8
  movq 40(%rsp), %r9
  movq 48(%rsp), %rax
  movaps 64(%rsp), %xmm0
  movaps 80(%rsp), %xmm1
  movaps 96(%rsp), %xmm2
  movaps 112(%rsp), %xmm3
  movaps 128(%rsp), %xmm4
  movaps 144(%rsp), %xmm5
  movaps 160(%rsp), %xmm6
  movaps 176(%rsp), %xmm7
  leave
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
  .size c4_forward_resolve, .-c4_forward_resolve
)");

#define C4_JUMP_BEGIN(name)   \
  "  .text\n"                 \
  "  .p2align 4\n"            \
  "  .globl p" #name          \
  "\n"                        \
  "  .weak " #name            \
  "\n"                        \
  "  .type p" #name           \
  ", @function\n"             \
  "  .set " #name ", p" #name \
  "\n"                        \
  "p" #name                   \
  ":\n"                       \
  "  .cfi_startproc\n"        \
  "  endbr64\n"
#define C4_JUMP_END(name, host)   \
  "  movq c4_forward_slot_" #name \
  "(%rip), %r11\n"                \
  "  testq %r11, %r11\n"          \
  "  je 1f\n"                     \
  "  jmp *%r11\n"                 \
  "1: call c4_forward_resolve\n"  \
  "  movq c4_forward_slot_" #name \
  "(%rip), %r11\n"                \
  "  jmp *%r11\n"                 \
  "2: jmp " #host                 \
  "\n"                            \
  "  .cfi_endproc\n"              \
  "  .size p" #name ", .-p" #name "\n"
#define C4_JUMP_plain(name, host) __asm__(C4_JUMP_BEGIN(name) C4_JUMP_END(name, host))
// Handles of the host engine are odd.
#define C4_JUMP_comm(name, host) \
  __asm__(C4_JUMP_BEGIN(name) "  testb $1, %dil\n  jne 2f\n" C4_JUMP_END(name, host))

#elif defined(__aarch64__)

// As above; x16 and x17 are the linker's to use, and ours.
__asm__(R"(
  .text
  .hidden c4_forward_resolve
  .type c4_forward_resolve, %function
c4_forward_resolve:
  .cfi_startproc
  stp x29, x30, [sp, #-224]!
  .cfi_def_cfa_offset 224
  .cfi_offset 29, -224
  .cfi_offset 30, -216
  mov x29, sp
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  bl c4_forward_fill
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldr x8, [sp, #80]
  ldp q0, q1, [sp, #96]
  ldp q2, q3, [sp, #128]
  ldp q4, q5, [sp, #160]
  ldp q6, q7, [sp, #192]
  ldp x29, x30, [sp], #224
  ret
  .cfi_endproc
  .size c4_forward_resolve, .-c4_forward_resolve
)");

#define C4_JUMP_BEGIN(name)   \
  "  .text\n"                 \
  "  .p2align 4\n"            \
  "  .globl p" #name          \
  "\n"                        \
  "  .weak " #name            \
  "\n"                        \
  "  .type p" #name           \
  ", %function\n"             \
  "  .set " #name ", p" #name \
  "\n"                        \
  "p" #name                   \
  ":\n"                       \
  "  .cfi_startproc\n"
#define C4_JUMP_END(name, host)                    \
  "  adrp x16, c4_forward_slot_" #name             \
  "\n"                                             \
  "  ldr x16, [x16, #:lo12:c4_forward_slot_" #name \
  "]\n"                                            \
  "  cbz x16, 1f\n"                                \
  "  br x16\n"                                     \
  "1: stp x29, x30, [sp, #-16]!\n"                 \
  "  bl c4_forward_resolve\n"                      \
  "  ldp x29, x30, [sp], #16\n"                    \
  "  adrp x16, c4_forward_slot_" #name             \
  "\n"                                             \
  "  ldr x16, [x16, #:lo12:c4_forward_slot_" #name \
  "]\n"                                            \
  "  br x16\n"                                     \
  "2: b " #host                                    \
  "\n"                                             \
  "  .cfi_endproc\n"                               \
  "  .size p" #name ", .-p" #name "\n"
#define C4_JUMP_plain(name, host) __asm__(C4_JUMP_BEGIN(name) C4_JUMP_END(name, host))
#define C4_JUMP_comm(name, host) __asm__(C4_JUMP_BEGIN(name) "  tbnz x0, #0, 2f\n" C4_JUMP_END(name, host))

#else
#error "forwarding is written for x86-64 and aarch64"
#endif

#define C4_FORWARD(kind, name, host) C4_JUMP_##kind(name, host);
#include "ccl/api/forwarded.inc"
#undef C4_FORWARD
