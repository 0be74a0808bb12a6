// The gathering end of a rendezvous (see bootstrap.h): one poll loop that no single peer can hold up.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ccl/bootstrap/bootstrap.h"

namespace c4::bootstrap {

class Root {
 public:
  // `nonce` and `secret` of the id.
  Root(Fd listener, const uint8_t (&nonce)[16], const uint8_t (&secret)[32]);

  // Runs until all ranks have been answered, or the deadline. After a misfit it stays for a while, so that
  // ranks which come late hear of it as well.
  void Run(DeadlineNs deadline);

 private:
  struct Peer {
    Fd fd;
    std::string address;
    Join join{};
    size_t bytes = 0;  // of the join that have come
    uint64_t since_ns = 0;
    bool joined = false;
  };

  void AcceptPeers();
  // False when the peer is to be dropped.
  bool Read(Peer* peer);
  bool Admit(Peer* peer);
  // What the join's rank has set otherwise than the first that told its knobs; empty: nothing.
  std::string OtherKnob(const Join& join);
  void Answer();
  void FailAll(ncclResult_t code, const std::string& text);
  void SendFailure(const Peer& peer) const;

  Fd listener_;
  uint8_t nonce_[16];
  uint8_t secret_[32];
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<RankInfo> table_;
  std::vector<bool> present_;
  Join first_{};  // that told its knobs
  size_t joined_ = 0;
  bool done_ = false;
  ncclResult_t failure_ = ncclSuccess;
  std::string failure_text_;
  DeadlineNs deadline_ = kNever;
};

}  // namespace c4::bootstrap
