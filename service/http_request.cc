#include "service/http_request.h"

#include <algorithm>
#include <charconv>
#include <httplib.h>

namespace c4::service {
namespace {

constexpr size_t kMostHeaders = 100;

std::string_view NextLine(std::string_view* rest) {
  const size_t end = std::min(rest->find("\r\n"), rest->size());
  const std::string_view line = rest->substr(0, end);
  rest->remove_prefix(std::min(rest->size(), end + 2));
  return line;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// A NUL or the half of a line's end is damage, or somebody's trick.
bool HasControl(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 0x7f; });
}

bool ParseTarget(std::string_view target, httplib::Request* request) {
  if (target.empty() || target.front() != '/') return false;
  if (HasControl(target) || target.find_first_of(" \t") != std::string_view::npos) return false;
  request->target = std::string(target);
  target = target.substr(0, target.find('#'));
  const size_t question = std::min(target.find('?'), target.size());
  const std::optional<std::string> path = DecodeUrl(target.substr(0, question), false);
  if (!path.has_value()) return false;
  request->path = *path;
  std::string_view query = target.substr(std::min(target.size(), question + 1));
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equal = std::min(pair.find('='), pair.size());
    const auto name = DecodeUrl(pair.substr(0, equal), true);
    const auto value = DecodeUrl(pair.substr(std::min(pair.size(), equal + 1)), true);
    if (!name.has_value() || !value.has_value()) return false;
    if (!name->empty()) request->params.emplace(*name, *value);
  }
  return true;
}

}  // namespace

std::optional<std::string> DecodeUrl(std::string_view text, bool plus_is_space) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      unsigned value = 0;
      if (i + 2 >= text.size()) return std::nullopt;
      const char* const end = text.data() + i + 3;
      if (std::from_chars(text.data() + i + 1, end, value, 16).ptr != end || value == 0) return std::nullopt;
      result += static_cast<char>(value);
      i += 2;
    } else {
      result += plus_is_space && text[i] == '+' ? ' ' : text[i];
    }
  }
  return result;
}

int ParseRequestHead(std::string_view head, size_t most_body, httplib::Request* request) {
  const std::string_view first = NextLine(&head);
  const size_t method_end = first.find(' ');
  const size_t target_end = first.rfind(' ');
  if (method_end == std::string_view::npos || target_end <= method_end) return 400;
  request->method = std::string(first.substr(0, method_end));
  request->version = std::string(first.substr(target_end + 1));
  if (request->version != "HTTP/1.1" && request->version != "HTTP/1.0") return 400;
  if (!ParseTarget(first.substr(method_end + 1, target_end - method_end - 1), request)) return 400;
  while (!head.empty()) {
    const std::string_view line = NextLine(&head);
    const size_t colon = line.find(':');
    if (colon == 0 || colon == std::string_view::npos || HasControl(line)) return 400;
    if (request->headers.size() >= kMostHeaders) return 431;
    request->headers.emplace(line.substr(0, colon), Trim(line.substr(colon + 1)));
  }
  const std::string length = request->get_header_value("Content-Length");
  size_t body = 0;
  if (!length.empty()) {
    const char* const end = length.data() + length.size();
    if (std::from_chars(length.data(), end, body).ptr != end) return 400;
  }
  const bool chunked = request->has_header("Transfer-Encoding");
  const size_t most = request->method == "POST" ? most_body : 0;
  return chunked || body > most ? 413 : 0;
}

}  // namespace c4::service
