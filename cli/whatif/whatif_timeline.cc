#include "cli/whatif/whatif_timeline.h"

#include <algorithm>
#include <cmath>

namespace c4::cli {
namespace {

using whatif::Job;
using whatif::OperationType;
using whatif::Trace;

// Rows of a worker in the timeline.
int Stream(OperationType type) {
  switch (type) {
    case OperationType::kForwardSend:
      return 1;
    case OperationType::kForwardRecv:
      return 2;
    case OperationType::kBackwardSend:
      return 3;
    case OperationType::kBackwardRecv:
      return 4;
    case OperationType::kParamsAllGather:
    case OperationType::kGradsReduceScatter:
    case OperationType::kSeparateGradsAllReduce:
      return 5;
    default:
      return 0;
  }
}

constexpr const char* kStreams[] = {"compute",       "forward-send",  "forward-recv",
                                    "backward-send", "backward-recv", "data-parallel"};
constexpr int kStreamsOfWorker = 6;
constexpr size_t kMaxEvents = 200000;

class TimelineWriter {
 public:
  TimelineWriter(const Job& job, FILE* file) : job_(job), trace_(job.trace), file_(file) {}

  bool Write() {
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", file_);
    Names();
    const whatif::Simulator simulator(trace_, job_.graph, job_.durations);
    const whatif::Scenario ideal = whatif::KeepOnly(job_, {});
    const size_t of_step = trace_.operations.size() * static_cast<size_t>(trace_.dp_size);
    double begin_s = 0;
    for (size_t step = 0; step < trace_.steps.size(); ++step) {
      if (step > 0 && 2 * (step + 1) * of_step > kMaxEvents) break;
      Recorded(step, begin_s);
      Replayed(simulator.Replay(ideal, step), step, begin_s);
      begin_s += trace_.measured_step_s[step] * 1.02;
    }
    fputs("\n]}\n", file_);
    return fflush(file_) == 0 && ferror(file_) == 0;
  }

 private:
  void Comma() {
    if (!first_) fputs(",\n", file_);
    first_ = false;
  }

  void Names() {
    const char* names[] = {"recorded", "ideal"};
    for (int process = 0; process < 2; ++process) {
      Comma();
      fprintf(file_,
              "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}},\n"
              "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}",
              process, names[process], process, process);
      for (int worker = 0; worker < trace_.workers(); ++worker) {
        for (int stream = 0; stream < kStreamsOfWorker; ++stream) {
          Comma();
          fprintf(file_,
                  "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"rank %d "
                  "%s\"}}",
                  process, Thread(worker, stream), trace_.ranks[static_cast<size_t>(worker)],
                  kStreams[stream]);
        }
      }
    }
  }

  static int Thread(int worker, int stream) { return worker * kStreamsOfWorker + stream + 1; }

  void Event(int process, size_t operation, int dp, size_t step, double start_s, double duration_s) {
    const whatif::TemplateOperation& one = trace_.operations[operation];
    Comma();
    fprintf(file_,
            "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":"
            "%d,\"seq\":%d,"
            "\"micro_batch\":%d}}",
            process, Thread(one.stage * trace_.dp_size + dp, Stream(one.type)),
            whatif::OperationName(one.type), start_s * 1e6, duration_s * 1e6, trace_.steps[step], one.index,
            one.micro_batch);
  }

  void Recorded(size_t step, double begin_s) {
    double first_s = HUGE_VAL;
    for (int dp = 0; dp < trace_.dp_size; ++dp) {
      for (size_t i = 0; i < trace_.operations.size(); ++i) {
        const double start_s = trace_.start_s[i * trace_.lanes() + trace_.Lane(step, dp)];
        if (start_s < first_s) first_s = start_s;  // NaN is not
      }
    }
    for (int dp = 0; dp < trace_.dp_size; ++dp) {
      for (size_t i = 0; i < trace_.operations.size(); ++i) {
        const size_t at = i * trace_.lanes() + trace_.Lane(step, dp);
        if (std::isnan(trace_.start_s[at])) continue;
        Event(0, i, dp, step, begin_s + trace_.start_s[at] - first_s,
              static_cast<double>(trace_.duration_s[at]));
      }
    }
  }

  void Replayed(const whatif::Simulator::Times& times, size_t step, double begin_s) {
    for (int dp = 0; dp < trace_.dp_size; ++dp) {
      for (size_t i = 0; i < trace_.operations.size(); ++i) {
        const size_t at = i * static_cast<size_t>(trace_.dp_size) + static_cast<size_t>(dp);
        Event(1, i, dp, step, begin_s + times.start_s[at],
              std::max(0.0, times.end_s[at] - times.start_s[at]));
      }
    }
  }

  const Job& job_;
  const Trace& trace_;
  FILE* file_;
  bool first_ = true;
};

}  // namespace

bool WriteTimeline(const Job& job, FILE* file) {
  return TimelineWriter(job, file).Write();
}

}  // namespace c4::cli
