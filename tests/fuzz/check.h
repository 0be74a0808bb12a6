// What a fuzz target uses to say that a property does not hold: ends the program with the place, which makes
// libFuzzer keep the input.
#pragma once

#include <cstdio>
#include <cstdlib>

#define C4_FUZZ_CHECK(condition)                                                          \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      fprintf(stderr, "%s:%d: this does not hold: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                            \
    }                                                                                     \
  } while (0)
