// The door of a gRPC server: takes the TCP connections of its port, and hands their bytes on to the library
// within the limits of service/limits.h. Connections have a number, those that say nothing or do not read are
// cut, and where the bytes can be read (no TLS) HTTP/2's frames have a rate (service/http2_meter.h). With TLS
// only who shows a certificate comes as far as a frame; there the door counts connections and looks at time.
//
// The library sees a local socket in the place of the peer's; AddressBehindIngress gives the peer's address.
// One thread of its own; Open, Start and Stop by one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "service/http2_meter.h"
#include "service/status.h"

namespace c4::service {

// "127.0.0.1:4000" of what a call of such a server names as its peer; empty for others.
std::string AddressBehindIngress(std::string_view grpc_peer);

class Ingress {
 public:
  // Listens, and takes nobody yet.
  static absl::StatusOr<std::unique_ptr<Ingress>> Open(const std::string& host, uint16_t port);
  ~Ingress();
  Ingress(const Ingress&) = delete;
  Ingress& operator=(const Ingress&) = delete;

  uint16_t port() const { return port_; }
  // `serve` is given a connected, non-blocking descriptor to own, on the door's thread.
  absl::Status Start(bool readable, std::function<void(int fd)> serve);
  // Takes no new ones; what is connected stays.
  void Close() { closing_ = true; }
  void Stop();  // and cuts all

 private:
  struct Flow;
  struct Link;

  Ingress(int listen_fd, uint16_t port);
  void Run();
  void Accept();
  void Admit(int fd);
  // False: the link is over.
  bool Pump(Link* link, Flow* flow);
  void Serve(Link* link);
  void Watch(Link* link);
  void Cut(Link* link, const char* why);
  void LookAtTime(int64_t now_ms);
  void Tell(const std::string& peer, std::string_view why);

  int listen_fd_;
  int epoll_fd_ = -1;
  int wake_fd_ = -1;
  const uint16_t port_;
  bool readable_ = true;
  std::function<void(int)> serve_;
  size_t most_ = 0;
  Http2Totals totals_;
  std::map<uint64_t, std::unique_ptr<Link>> links_;  // the thread's own
  uint64_t next_id_ = 1;
  int64_t accept_again_ms_ = 0;
  bool accepting_ = false;
  int64_t told_ms_ = 0;
  uint64_t untold_ = 0;
  std::atomic<bool> closing_ = false;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace c4::service
