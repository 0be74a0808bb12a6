// The door of a gRPC server: takes the TCP connections of its port, and hands their bytes on to the library
// within the limits of service/limits.h. Connections have a number, those that say nothing or do not read are
// cut, and HTTP/2's frames have a rate (service/http2_meter.h). TLS ends here (service/tls_server.h): the
// library gets a connection when its peer has shown a certificate of the authority, and sees what is within.
//
// The library sees a local socket in the place of the peer's; AddressBehindIngress gives the peer's address,
// PeerCertificates what its certificate says.
// One thread of its own; Open, Start and Stop by one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "service/http2_meter.h"
#include "service/status.h"
#include "service/tls_server.h"

namespace c4::service {

// "127.0.0.1:4000" of what a call of such a server names as its peer; empty for others.
std::string AddressBehindIngress(std::string_view grpc_peer);

// The URIs in the certificates of the peers that are connected. Any thread.
class PeerCertificates {
 public:
  // `grpc_peer`: what a call of such a server names as its peer. Empty where it has shown none, or is gone.
  std::vector<std::string> UrisOf(std::string_view grpc_peer) const;
  void Set(uint64_t connection, std::vector<std::string> uris);
  void Erase(uint64_t connection);

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, std::vector<std::string>> uris_;
};

class Ingress {
 public:
  // Listens, and takes nobody yet.
  static absl::StatusOr<std::unique_ptr<Ingress>> Open(const std::string& host, uint16_t port);
  ~Ingress();
  Ingress(const Ingress&) = delete;
  Ingress& operator=(const Ingress&) = delete;

  uint16_t port() const { return port_; }
  std::shared_ptr<const PeerCertificates> certificates() const { return certificates_; }
  // `tls`: nullptr where peers speak in clear. `serve` is given a connected, non-blocking descriptor to own,
  // on the door's thread.
  absl::Status Start(std::unique_ptr<TlsServer> tls, std::function<void(int fd)> serve);
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
  bool Fill(Link* link, Flow* flow);
  bool TakeSealed(Link* link, std::string_view bytes);
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
  std::unique_ptr<TlsServer> tls_;
  std::function<void(int)> serve_;
  const std::shared_ptr<PeerCertificates> certificates_ = std::make_shared<PeerCertificates>();
  std::string scratch_;  // what was just read
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
