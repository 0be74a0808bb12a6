// The head of an HTTP request from anybody: read into what fits its lines, or refused with a status.
#include <cstdint>
#include <httplib.h>
#include <string_view>

#include "service/http_names.h"
#include "service/http_request.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view head(reinterpret_cast<const char*>(data), size);
  httplib::Request request;
  const int status = c4::service::ParseRequestHead(head, 4096, &request);
  C4_FUZZ_CHECK(status == 0 || (status >= 400 && status < 500));
  (void)c4::service::IsOurName(request.get_header_value("Host"), "c4d.example,other");
  if (status != 0) return 0;
  C4_FUZZ_CHECK(!request.path.empty() && request.path.front() == '/');
  C4_FUZZ_CHECK(request.path.size() <= size && request.method.size() < size);
  C4_FUZZ_CHECK(request.path.find('\0') == std::string::npos);
  return 0;
}
