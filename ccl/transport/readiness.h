// What the last poll said of a stream, so that nobody reads where there is nothing: on a full network nine of
// ten reads found nothing (measured), and each is a system call. Whoever does not poll reads every time.
#pragma once

namespace c4 {

class Readiness {
 public:
  // There is, or is not, something to read, as of now; an end and an error are something.
  void Polled(bool readable) { state_ = readable ? kSomething : kNothing; }
  // A read has found less than it had room for.
  void Emptied() {
    if (state_ == kSomething) state_ = kNothing;
  }
  // It is another stream now.
  void Forget() { state_ = kUnknown; }
  bool may_read() const { return state_ != kNothing; }

 private:
  enum State { kUnknown, kSomething, kNothing };
  State state_ = kUnknown;
};

}  // namespace c4
