#include "ccl/ras/session.h"

#include <strings.h>

namespace c4::ras {
namespace {

constexpr size_t kMostLineBytes = 1024;
constexpr int kMostTimeoutS = 1000000;

bool IsSame(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

// What comes after `word` and a space; false: `line` does not begin with it.
bool After(std::string_view line, std::string_view word, std::string_view* rest) {
  if (line.size() < word.size() || !IsSame(line.substr(0, word.size()), word)) return false;
  if (line.size() > word.size() && line[word.size()] != ' ') return false;
  *rest = line.substr(word.size());
  while (!rest->empty() && rest->front() == ' ') rest->remove_prefix(1);
  return true;
}

// Only digits, up to the most that is taken.
bool ReadSeconds(std::string_view text, int* seconds) {
  if (text.empty() || text.size() > 7) return false;
  int value = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return false;
    value = 10 * value + (digit - '0');
  }
  if (value > kMostTimeoutS) return false;
  *seconds = value;
  return true;
}

}  // namespace

bool Session::Take(std::string_view bytes, std::string* reply) {
  for (const char byte : bytes) {
    if (failed_) return false;
    if (byte != '\n') {
      line_ += byte;
      if (line_.size() <= kMostLineBytes) continue;
      *reply += "ERROR: Line of more than 1024 characters\n";
      failed_ = true;
      return false;
    }
    std::string line;
    line.swap(line_);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && TakeLine(line, reply)) return true;
  }
  return false;
}

bool Session::TakeLine(std::string_view line, std::string* reply) {
  std::string_view rest;
  if (After(line, "CLIENT PROTOCOL", &rest)) {
    *reply += "SERVER PROTOCOL 2\n";
  } else if (After(line, "TIMEOUT", &rest)) {
    const bool good = ReadSeconds(rest, &timeout_s_);
    *reply +=
        good ? "OK\n"
             : "ERROR: Invalid timeout value " + std::string(rest) + ": give whole seconds, 0 for none\n";
  } else if (After(line, "SET FORMAT", &rest)) {
    const bool json = IsSame(rest, "json");
    const bool good = json || IsSame(rest, "text");
    if (good) json_ = json;
    *reply += good ? "OK\n" : "ERROR: Invalid format " + std::string(rest) + ": give text or json\n";
  } else if (IsSame(line, "STATUS") || IsSame(line, "VERBOSE STATUS")) {
    verbose_ = line.size() > 6;
    return true;
  } else {
    *reply += "ERROR: Unknown command " + std::string(line.substr(0, 64)) + "\n";
  }
  return false;
}

}  // namespace c4::ras
