// How many requests a client may make: a bucket each, by address, that fills as time goes by. Clients behind
// a proxy share one. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace c4::page {

class RateLimit {
 public:
  struct Options {
    double per_second = 100;
    double burst = 400;
    size_t clients = 1024;  // beyond, the one that has been quiet longest is forgotten
  };
  RateLimit() : RateLimit(Options{}) {}
  explicit RateLimit(Options options) : options_(options) {}

  bool Admit(const std::string& client, int64_t monotonic_ns);

 private:
  struct Bucket {
    double left = 0;
    int64_t at_ns = 0;
  };
  const Options options_;
  std::mutex mutex_;
  std::map<std::string, Bucket> buckets_;
};

}  // namespace c4::page
