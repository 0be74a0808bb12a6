#include "tests/rdma/oob.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>

namespace c4::rdma_test {

void Die(const std::string& what) {
  printf("FAIL %s\n", what.c_str());
  fflush(stdout);
  _Exit(1);
}

void DieUnless(const Result& result) {
  if (!result.ok()) Die(result.message());
}

Oob Oob::Listen(uint16_t port) {
  SocketAddress address;
  DieUnless(ParseAddress("0.0.0.0:" + std::to_string(port), &address));
  Fd listener;
  DieUnless(c4::Listen(&address, 1, &listener));
  Fd accepted;
  SocketAddress peer;
  DieUnless(Accept(listener.get(), AfterSeconds(60), &accepted, &peer));
  return Oob(std::move(accepted));
}

Oob Oob::Connect(const std::string& host, uint16_t port) {
  SocketAddress address;
  DieUnless(ParseAddress(host + ":" + std::to_string(port), &address));
  Fd fd;
  DieUnless(c4::Connect(address, AfterSeconds(60), true, &fd));
  return Oob(std::move(fd));
}

void Oob::Say(const Message& message) {
  DieUnless(SendAll(fd_.get(), &message, sizeof message, AfterSeconds(60)));
}

bool Oob::lost() const {
  char byte = 0;
  return recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

bool Oob::Hear(Message* message) {
  while (in_bytes_ < sizeof in_) {
    const ssize_t got = recv(fd_.get(), in_ + in_bytes_, sizeof in_ - in_bytes_, MSG_DONTWAIT);
    if (got == 0) Die("the other program has ended");
    if (got < 0) {
      if (errno == EAGAIN || errno == EINTR) return false;
      Die("the other program cannot be heard: " + ErrnoText(errno));
    }
    in_bytes_ += static_cast<size_t>(got);
  }
  memcpy(message, in_, sizeof in_);
  in_bytes_ = 0;
  return true;
}

Message Oob::Wait(Word word) {
  Message message;
  while (!Hear(&message)) {
    pollfd entry{fd_.get(), POLLIN, 0};
    if (poll(&entry, 1, 60000) == 0) Die("the other program says nothing");
  }
  if (message.word != word) Die("the other program said something else");
  return message;
}

}  // namespace c4::rdma_test
