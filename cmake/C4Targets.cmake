# What every target of the project shares: warnings as errors, sanitizers, and how a test is added.

add_library(c4_options INTERFACE)
target_compile_options(c4_options INTERFACE -Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -Wpointer-arith
                                            -Wundef -Wvla -Wno-missing-field-initializers)
target_include_directories(c4_options INTERFACE ${PROJECT_SOURCE_DIR})
# What turns a mistake with memory into an end instead of a way in; tests/security/hardening_test checks the
# binaries. Sanitizers bring checks of their own, and an unoptimized build cannot be fortified.
if(NOT C4_SANITIZE AND NOT C4_LIBRARY_ONLY AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_options(c4_options INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector-strong
                                              $<$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},x86_64>:-fcf-protection=full>)
  target_link_options(c4_options INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)
endif()
if(C4_SANITIZE)
  target_compile_options(c4_options INTERFACE -fsanitize=${C4_SANITIZE} -fno-omit-frame-pointer
                                              -fno-sanitize-recover=all)
  target_link_options(c4_options INTERFACE -fsanitize=${C4_SANITIZE})
  if(C4_SANITIZE MATCHES undefined)
    # ccl is built without the type information that this check looks for.
    target_compile_options(c4_options INTERFACE -fno-sanitize=vptr)
  endif()
  # The fences order what another process reads through the kernel: nothing that this sanitizer could see.
  if(C4_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(c4_options INTERFACE -Wno-tsan)
  endif()
  # Tests fork where threads run, and the child starts its own.
  if(C4_SANITIZE MATCHES thread)
    set(C4_SANITIZER_ENVIRONMENT ";TSAN_OPTIONS=die_after_fork=0")
  endif()
endif()

# c4_library(NAME SOURCES... [DEPS...]): a static library of this project.
function(c4_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC c4_options ${ARG_DEPS})
endfunction()

# c4_test(NAME LABEL SOURCES... [DEPS...]): a GoogleTest program, one ctest entry a program.
# LABEL is one of unit, net, service, soak (see CONTRIBUTING.md). SERIAL keeps it from running
# beside other tests (for those that judge time).
function(c4_test name label)
  cmake_parse_arguments(ARG "SERIAL" "TIMEOUT" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE c4_options ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    target_compile_options(${name} PRIVATE -O1)  # half the time of a build; what is tested stays at -O2
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  if(C4_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 8")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT
                       "C4_BUILD_DIR=${CMAKE_BINARY_DIR};C4_SOURCE_DIR=${PROJECT_SOURCE_DIR};C4_RUN_DIR=${CMAKE_BINARY_DIR}/tests/run;C4_LOG_DIR=${CMAKE_BINARY_DIR}/tests/logs;C4_ENGINE=host${C4_SANITIZER_ENVIRONMENT}")
  if(ARG_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()
