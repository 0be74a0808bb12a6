// The HTTP side of the operator's page (docs/page.md): its files, and GET api/v1/NAME as Protobuf's JSON.
// Reads only. One client gets so many replies a second and no more; what many pages ask for is asked of a
// master once. Routes run on the server's threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "page/fleet.h"
#include "page/fleet_source.h"
#include "page/page_files.h"
#include "page/rate_limit.h"
#include "page/reply_cache.h"
#include "service/clock.h"
#include "service/http_server.h"

namespace c4::page {

inline constexpr int kMostVerdicts = 2000;                // of a job, in one reply
inline constexpr size_t kMostRecordingBytes = 64U << 20;  // of a file that is dropped onto the page

class PageApi {
 public:
  struct Options {
    RateLimit::Options rate;
    int64_t refresh_ns = 1'000'000'000;
    int64_t unwatched_after_ns =
        15'000'000'000;                        // the source is left alone when nobody has looked for so long
    int64_t beat_ns = 5'000'000'000;           // a stream says at least so often that it lives
    int64_t stream_life_ns = 600'000'000'000;  // then the client asks again, and shows who it is again
  };
  // All outlive it.
  PageApi(FleetSource* source, const service::Clock* clock, const std::vector<PageFile>* files);
  PageApi(FleetSource* source, const service::Clock* clock, const std::vector<PageFile>* files,
          Options options);
  ~PageApi();  // stops

  // REQUIRES: before server->Start; the server is stopped before this ends.
  void AddRoutes(service::HttpServer* server);
  // POST api/v1/recordings?name=FILE with a recording as the body: `take` is given its name and content, and
  // gives the id of the job that shows it, or a sentence why not. REQUIRES as above.
  using TakeRecording =
      std::function<absl::StatusOr<std::string>(const std::string& name, std::string_view content)>;
  void TakeRecordings(service::HttpServer* server, TakeRecording take);

  // POST api/v1/past?job=ID: `open` takes in what was recorded of that job's last minutes, and gives the id
  // of the job that shows it, or a sentence why not. REQUIRES as above.
  using OpenPast = std::function<absl::StatusOr<std::string>(const std::string& id)>;
  void OpenPasts(service::HttpServer* server, OpenPast open);

  // A thread that keeps what is known up to date while somebody looks.
  void Start();
  void Stop();

  // What the routes answer; also for tests.
  service::HttpReply File(const service::HttpRequest& request);
  service::HttpReply Answer(const service::HttpRequest& request);

 private:
  struct Question;
  Moment Now() const;
  void KeepUp();
  // Makes sure that the fleet is as new as a page expects.
  void Freshen(bool at_least_once);
  // The id of a recording that the page shows from now on.
  service::HttpReply Shown(const absl::StatusOr<std::string>& id);
  absl::StatusOr<JobAt> JobOf(const service::HttpRequest& request) const;
  absl::StatusOr<std::string> FleetJson(const std::string& only_job);
  service::HttpReply Events(const service::HttpRequest& request);
  absl::StatusOr<std::string> Ask(const Question& question, const service::HttpRequest& request);

  FleetSource* const source_;
  const service::Clock* const clock_;
  const std::vector<PageFile>* const files_;
  const Options options_;
  RateLimit rate_;
  ReplyCache cache_;
  Fleet fleet_;
  std::mutex refresh_mutex_;  // held while the fleet is refreshed
  int64_t refreshed_ns_ = 0;  // guarded by it; 0: never
  std::atomic<int64_t> looked_ns_ = 0;
  std::mutex json_mutex_;  // guards what follows: the fleet's JSON, made once for all streams
  uint64_t json_of_ = 0;
  std::shared_ptr<const std::string> json_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace c4::page
