// A real HTTP server of this process that takes what is posted to /hook and says how it liked it. For
// threads as marked; it answers from its construction to its destruction.
#pragma once

#include <httplib.h>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace c4::test {

class Webhook {
 public:
  struct Delivery {
    std::string body;
    std::string type;
    std::map<std::string, std::string> headers = {};
  };

  // `port`: 0: any.
  explicit Webhook(int status = 200, int port = 0, const std::string& path = "/hook") : port_(port) {
    server_.Post(path, [this, status](const httplib::Request& request, httplib::Response& response) {
      const std::lock_guard lock(mutex_);
      deliveries_.push_back({request.body,
                             request.get_header_value("Content-Type"),
                             {request.headers.begin(), request.headers.end()}});
      response.status = status;
    });
    if (port_ == 0) {
      port_ = server_.bind_to_any_port("127.0.0.1");
    } else {
      server_.bind_to_port("127.0.0.1", port_);
    }
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  ~Webhook() {
    server_.stop();
    thread_.join();
  }
  Webhook(const Webhook&) = delete;
  Webhook& operator=(const Webhook&) = delete;

  std::string Url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/hook"; }
  // Any thread.
  std::vector<Delivery> deliveries() {
    const std::lock_guard lock(mutex_);
    return deliveries_;
  }

 private:
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<Delivery> deliveries_;
};

}  // namespace c4::test
