# A compiler whose programs load where the vendor's wheels do: clang with libc++ and the stubs of an old glibc, all
# from PyPI's ziglang. scripts/setup_portable.sh puts it into C4_ZIG (a folder); the preset `portable` uses this.
# No cross-compiling: what it makes runs here, too.

set(C4_ZIG "$ENV{C4_ZIG}" CACHE PATH "Folder of the zig compiler")
if(NOT C4_ZIG)
  set(C4_ZIG "$ENV{HOME}/.cache/c4/zig/0.17.1/ziglang")
endif()
if(NOT EXISTS "${C4_ZIG}/zig")
  message(FATAL_ERROR "no zig compiler in ${C4_ZIG}: scripts/setup_portable.sh fetches it, or name its folder in the variable C4_ZIG")
endif()
# The oldest glibc that any of the wheels asks for; api_exports_test holds the library to it.
set(C4_GLIBC 2.17)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES C4_ZIG)
set(CMAKE_C_COMPILER "${C4_ZIG}/zig" cc -target ${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu.${C4_GLIBC})
set(CMAKE_CXX_COMPILER "${C4_ZIG}/zig" c++ -target ${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu.${C4_GLIBC})
