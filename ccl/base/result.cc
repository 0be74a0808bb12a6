#include "ccl/base/result.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace c4 {

const std::string& Result::NoMessage() {
  static const std::string none;
  return none;
}

Result Fail(ncclResult_t code, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return {code, text};
}

std::string ErrnoText(int error) {
  char text[128];
  return strerror_r(error, text, sizeof text);  // GNU's form: returns the text
}

}  // namespace c4
