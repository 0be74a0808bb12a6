// One end of a connection over the network plugin, as NCCL's core would have it, in a process of its own:
// `plugin_end receive|send FOLDER`. The two find each other by FOLDER/handle; messages of many lengths go
// from one to the other, with a pattern that tells each byte of each message, until FOLDER/stop is there.
// The receiver keeps in FOLDER/received how many were right, and looks whether bytes come late into buffers
// that it has taken back. Several devices are merged into one. Exit code 0: all went, and no call failed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "ccl/base/clock.h"
#include "ccl/plugins/net/tables.h"

namespace c4::net {
namespace {

constexpr int kAhead = 4;
constexpr int kBuffers = 2 * kAhead;
constexpr size_t kMostBytes = 400000;
constexpr uint64_t kSayNs = 10000000;
constexpr useconds_t kPauseUs = 50;  // two ends share two processors with the fabric between them
constexpr char kUntouched = '~';

[[noreturn]] void Die(const std::string& what) {
  fprintf(stderr, "plugin_end: %s\n", what.c_str());
  exit(1);  // NOLINT(concurrency-mt-unsafe)
}
void Check(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) Die(std::string(call) + " failed: " + std::to_string(result));
}

// Never 0: an empty message is the last.
size_t BytesOf(uint64_t number) {
  return number % 3 == 0 ? kMostBytes : 1 + number * 7919 % kMostBytes;
}
char ByteOf(uint64_t number, size_t at) {
  return static_cast<char>((number * 131 + at * 7 + (at >> 8)) & 0xff);
}

class End {
 public:
  explicit End(std::string folder) : folder_(std::move(folder)) {
    abi::CommConfig config{-1};
    Check(table_.init(&context_, 1, &config, nullptr, nullptr), "init");
    int count = 0;
    Check(table_.devices(&count), "devices");
    if (count == 0) Die("there is no device");
    if (count == 1) return;
    abi::VirtualDevice12 members{};
    members.count = count;
    for (int i = 0; i < count; ++i) members.devices[i] = i;
    Check(table_.make_virtual(&device_, &members), "makeVDevice");
  }

  void Receive() {
    char handle[abi::kHandleBytes] = {};
    void* listen = nullptr;
    void* comm = nullptr;
    Check(table_.listen(context_, device_, handle, &listen), "listen");
    std::ofstream(folder_ + "/handle.new", std::ios::binary).write(handle, sizeof handle);
    if (rename((folder_ + "/handle.new").c_str(), (folder_ + "/handle").c_str()) != 0) Die("no handle");
    while (comm == nullptr) {
      Check(table_.accept(listen, &comm, nullptr), "accept");
      usleep(kPauseUs);
    }
    buffers_.assign(kBuffers, std::vector<char>(kMostBytes, kUntouched));
    for (bool over = false; !over;) {
      while (posted_ < received_ + kAhead && PostReceive(comm)) {
      }
      int done = 0;
      int bytes = 0;
      Check(table_.test(requests_.front(), &done, &bytes), "test");
      if (done == 0) {
        usleep(kPauseUs);
        continue;
      }
      requests_.pop_front();
      over = bytes == 0;
      if (!over) Take(static_cast<size_t>(bytes));
      Say(over);
    }
    std::ofstream(folder_ + "/over") << received_ << "\n";
    Check(table_.close_receive(comm), "closeRecv");
    Check(table_.close_listen(listen), "closeListen");
  }

  void Send() {
    char handle[abi::kHandleBytes] = {};
    while (access((folder_ + "/handle").c_str(), R_OK) != 0) usleep(1000);
    std::ifstream(folder_ + "/handle", std::ios::binary).read(handle, sizeof handle);
    void* comm = nullptr;
    while (comm == nullptr) {
      Check(table_.connect(context_, device_, handle, &comm, nullptr), "connect");
      usleep(kPauseUs);
    }
    buffers_.assign(kAhead, std::vector<char>(kMostBytes));
    bool ends = false;
    while (!ends || !requests_.empty()) {
      while (!ends && requests_.size() < kAhead && PostSend(comm, &ends)) {
      }
      int done = 0;
      if (!requests_.empty()) Check(table_.test(requests_.front(), &done, nullptr), "test");
      if (done == 0) {
        usleep(kPauseUs);
      } else {
        requests_.pop_front();
      }
    }
    // The receiver has receives posted that nothing will come for: whoever left now would be missed.
    while (access((folder_ + "/over").c_str(), F_OK) != 0) usleep(1000);
    Check(table_.close_send(comm), "closeSend");
  }

  void Leave() { Check(table_.finalize(context_), "finalize"); }

 private:
  bool PostReceive(void* comm) {
    std::vector<char>& buffer = buffers_[posted_ % kBuffers];
    if (std::any_of(buffer.begin(), buffer.end(), [](char c) { return c != kUntouched; })) {
      Die("a late byte in the buffer for message " + std::to_string(posted_));
    }
    void* data = buffer.data();
    size_t bytes = buffer.size();
    int tag = 0;
    void* memory = nullptr;
    void* nothing = nullptr;
    void* request = nullptr;
    Check(table_.receive(comm, 1, &data, &bytes, &tag, &memory, &nothing, &request), "irecv");
    if (request == nullptr) return false;
    requests_.push_back(request);
    ++posted_;
    return true;
  }
  void Take(size_t bytes) {
    std::vector<char>& buffer = buffers_[received_ % kBuffers];
    if (bytes != BytesOf(received_)) Die("message " + std::to_string(received_) + " is of another length");
    for (size_t at = 0; at < buffer.size(); ++at) {
      if (buffer[at] != (at < bytes ? ByteOf(received_, at) : kUntouched)) {
        Die("byte " + std::to_string(at) + " of message " + std::to_string(received_) + " is wrong");
      }
    }
    std::fill(buffer.begin(), buffer.end(), kUntouched);
    ++received_;
  }
  void Say(bool now) {
    if (!now && MonotonicNs() < said_ns_ + kSayNs) return;
    said_ns_ = MonotonicNs();
    std::ofstream(folder_ + "/received.new") << received_ << "\n";
    if (rename((folder_ + "/received.new").c_str(), (folder_ + "/received").c_str()) != 0) Die("no count");
  }
  bool PostSend(void* comm, bool* ends) {
    std::vector<char>& data = buffers_[posted_ % kAhead];
    *ends = access((folder_ + "/stop").c_str(), F_OK) == 0;
    const size_t bytes = *ends ? 0 : BytesOf(posted_);
    for (size_t at = 0; at < bytes; ++at) data[at] = ByteOf(posted_, at);
    void* request = nullptr;
    Check(table_.send(comm, data.data(), bytes, 0, nullptr, nullptr, &request), "isend");
    if (request == nullptr) {
      *ends = false;
      return false;
    }
    requests_.push_back(request);
    ++posted_;
    return true;
  }

  abi::Net12& table_ = ncclNetPlugin_v12;
  const std::string folder_;
  void* context_ = nullptr;
  int device_ = 0;
  std::vector<std::vector<char>> buffers_;
  std::deque<void*> requests_;
  uint64_t posted_ = 0;
  uint64_t received_ = 0;
  uint64_t said_ns_ = 0;
};

}  // namespace
}  // namespace c4::net

int main(int argc, char** argv) {
  const std::string role = argc == 3 ? argv[1] : "";
  if (role != "receive" && role != "send") c4::net::Die("usage: plugin_end receive|send FOLDER");
  c4::net::End end(argv[2]);
  if (role == "receive") {
    end.Receive();
  } else {
    end.Send();
  }
  end.Leave();
  return 0;
}
