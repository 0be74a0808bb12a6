// What rdma_ends can do; main.cc says what each is. They end the program when something is wrong.
#pragma once

#include <map>
#include <string>

#include "tests/rdma/transfer.h"

namespace c4::rdma_test {

class Options {
 public:
  explicit Options(std::map<std::string, std::string> values) : values_(std::move(values)) {}
  std::string Text(const std::string& name, const std::string& otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second;
  }
  uint64_t Number(const std::string& name, uint64_t otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : std::stoull(found->second);
  }

 private:
  std::map<std::string, std::string> values_;
};

void Histories(const Context& context, const Options& options, bool sends);
void Stream(const Context& context, const Options& options, bool sends);
void Bandwidth(const Context& context, const Options& options, bool sends);
void Steer(const Context& context, const Options& options, bool sends);
void Once(const Context& context, const Options& options, bool sends);
void Faults(const Context& context, bool sends);

}  // namespace c4::rdma_test
