// The head of an HTTP/1.1 request, read. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace httplib {
struct Request;
}

namespace c4::service {

// Of %XX and, in a query, of '+'. nullopt: not well-formed.
std::optional<std::string> DecodeUrl(std::string_view text, bool plus_is_space);

// `head` ends before the empty line. 0, or the status that says what is wrong with it. A body of up to
// `most_body` bytes is let pass with a POST; who asks reads it, or nobody.
int ParseRequestHead(std::string_view head, size_t most_body, httplib::Request* request);

}  // namespace c4::service
