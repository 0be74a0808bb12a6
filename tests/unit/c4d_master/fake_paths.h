// A PathSource that says what the test told it. One thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "c4d_master/path_source.h"

namespace c4::c4d {

class FakePaths final : public PathSource {
 public:
  // A flow over `spine` of a leaf-spine network in which host H hangs below leaf H / 2, and its
  // acknowledgements over `ack_spine`.
  void Add(const std::string& local, const std::string& remote, int from, int to, int spine, int ack_spine) {
    paths_[{local, remote}] = Path(from, to, spine);
    paths_[{remote, local}] = Path(to, from, ack_spine);
  }
  void Forget(const std::string& source, const std::string& destination) {
    paths_.erase({source, destination});
  }

  std::shared_ptr<const LinkPath> Find(const std::string& source, const std::string& destination) override {
    ++asked;
    const auto it = paths_.find({source, destination});
    return it == paths_.end() ? nullptr : std::make_shared<const LinkPath>(it->second);
  }

  int asked = 0;

 private:
  static LinkPath Path(int from, int to, int spine) {
    const auto name = [](const char* kind, int number) { return kind + std::to_string(number); };
    LinkPath path = {name("host", from) + ">" + name("leaf", from / 2)};
    if (from / 2 != to / 2) {
      path.push_back(name("leaf", from / 2) + ">" + name("spine", spine));
      path.push_back(name("leaf", to / 2) + "<" + name("spine", spine));
    }
    path.push_back(name("host", to) + "<" + name("leaf", to / 2));
    return path;
  }
  std::map<std::pair<std::string, std::string>, LinkPath> paths_;
};

}  // namespace c4::c4d
