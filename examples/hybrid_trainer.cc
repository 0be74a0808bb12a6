// A training loop as large jobs have it, small enough for one machine: tensor groups that share a block,
// pipeline stages that send activations and gradients to each other, data replicas that reduce gradients. The
// arithmetic is real: the loss falls, and replicas stay equal, or the exit code says so.
//
// It uses nothing of C4 but the public headers, and tells by their marks what it does itself: `c4 whatif`
// needs that (docs/whatif.md).
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

#include "ccl/include/c4/marks.h"
#include "ccl/include/c4/stream.h"
#include "ccl/include/nccl.h"
#include "examples/block.h"
#include "examples/checkpoint.h"
#include "examples/rendezvous.h"
#include "examples/trainer_options.h"

namespace c4::examples {
namespace {

constexpr int kMeetingTimeoutS = 120;
constexpr float kLearningRate = 0.02F;

volatile std::sig_atomic_t call_another_count = 0;

void OnMismatchSignal(int) {
  call_another_count = 1;
}

double NowS() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Trainer {
 public:
  Trainer(const TrainerOptions& options, const World& world)
      : options_(options),
        world_(world),
        tensor_rank_(world.rank % options.tensor),
        stage_(world.rank / options.tensor % options.pipeline),
        replica_(world.rank / (options.tensor * options.pipeline)),
        replicas_(world.size / (options.tensor * options.pipeline)),
        block_(options.width, options.hidden / static_cast<size_t>(options.tensor),
               static_cast<unsigned>(1 + stage_ * options.tensor + tensor_rank_)) {}

  bool Connect();
  void Declare() const;
  bool Train();
  bool Disconnect();

 private:
  bool last_stage() const { return stage_ + 1 == options_.pipeline; }
  size_t activations() const { return options_.batch * options_.width; }

  // Says what failed and where; true when nothing did.
  bool Check(ncclResult_t code, const char* call, ncclComm_t comm) const;
  bool Wait(const char* call, ncclComm_t comm) const;
  bool Join(const char* name, int size, int rank, const ncclUniqueId& id, ncclComm_t* comm) const;
  bool Sum(std::vector<float>* values, size_t count, const char* what, ncclComm_t comm) const;
  bool Send(const std::vector<float>& values, int stage) const;
  bool Receive(std::vector<float>* values, int stage) const;

  std::vector<float> Sample(int iteration, int micro_batch) const;
  bool Forward(int iteration, int micro_batch, Block::Kept* kept, std::vector<float>* dy);
  bool Backward(int micro_batch, const Block::Kept& kept, std::vector<float> dy);
  bool Iterate(int iteration);
  bool Evaluate(int iteration);
  bool Update();
  bool Report(int iteration, double* began_s, bool* stop);
  void Compile() const;
  void Linger(double began_s) const;
  bool Checkpoint() const;
  bool Save(int next_iteration);
  bool Resume(int* iteration);
  bool ReplicasAgree() const;

  const TrainerOptions options_;
  const World world_;
  const int tensor_rank_;
  const int stage_;
  const int replica_;
  const int replicas_;
  Block block_;
  const c4Marks marks_ = c4FindMarks();
  double loss_ = 0;
  double first_loss_ = 0;
  double last_loss_ = 0;
  double started_s_ = 0;
  ncclComm_t all_ = nullptr;
  ncclComm_t tensor_ = nullptr;
  ncclComm_t pipeline_ = nullptr;
  ncclComm_t data_ = nullptr;
};

bool Trainer::Check(ncclResult_t code, const char* call, ncclComm_t comm) const {
  if (code == ncclSuccess) return true;
  // Who is gone, the library has said.
  const std::string sentence = code == ncclRemoteError ? "a peer is gone" : ncclGetLastError(comm);
  fprintf(stderr, "hybrid_trainer: rank %d: %s: %s\n", world_.rank, call,
          sentence.empty() ? ncclGetErrorString(code) : sentence.c_str());
  return false;
}

bool Trainer::Wait(const char* call, ncclComm_t comm) const {
  return Check(c4StreamSynchronize(nullptr), call, comm);
}

bool Trainer::Join(const char* name, int size, int rank, const ncclUniqueId& id, ncclComm_t* comm) const {
  if (size == 1) return true;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = name;
  return Check(ncclCommInitRankConfig(comm, size, id, rank, &config), "ncclCommInitRankConfig", *comm);
}

// The groups' unique ids travel in a sum over the whole world, to which each group's first rank gives its
// own.
bool Trainer::Connect() {
  // It would be every group's. NOLINTNEXTLINE(concurrency-mt-unsafe): before any other thread
  unsetenv("NCCL_COMM_ID");
  ncclUniqueId id;
  if (!ShareUniqueId(world_, kMeetingTimeoutS, &id)) return false;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = "world";
  if (!Check(ncclCommInitRankConfig(&all_, world_.size, id, world_.rank, &config), "ncclCommInitRankConfig",
             all_)) {
    return false;
  }
  struct Group {
    const char* name;
    int index;
    int size;
    int rank;
    ncclComm_t* comm;
  };
  const int tensor_groups = world_.size / options_.tensor;
  const int pipelines = replicas_ * options_.tensor;
  const int data_groups = options_.pipeline * options_.tensor;
  const Group groups[] = {{"tensor", world_.rank / options_.tensor, options_.tensor, tensor_rank_, &tensor_},
                          {"pipeline", tensor_groups + replica_ * options_.tensor + tensor_rank_,
                           options_.pipeline, stage_, &pipeline_},
                          {"data", tensor_groups + pipelines + stage_ * options_.tensor + tensor_rank_,
                           replicas_, replica_, &data_}};
  std::vector<float> ids(static_cast<size_t>(tensor_groups + pipelines + data_groups) * sizeof id.internal);
  for (const Group& group : groups) {
    if (group.rank != 0 || group.size == 1) continue;
    ncclUniqueId own;
    if (!Check(ncclGetUniqueId(&own), "ncclGetUniqueId", nullptr)) return false;
    for (size_t i = 0; i < sizeof own.internal; ++i) {
      ids[static_cast<size_t>(group.index) * sizeof own.internal + i] =
          static_cast<float>(static_cast<unsigned char>(own.internal[i]));
    }
  }
  if (!Sum(&ids, ids.size(), "the exchange of unique ids", all_)) return false;
  for (const Group& group : groups) {
    ncclUniqueId own;
    for (size_t i = 0; i < sizeof own.internal; ++i) {
      own.internal[i] = static_cast<char>(
          static_cast<unsigned char>(ids[static_cast<size_t>(group.index) * sizeof own.internal + i]));
    }
    if (!Join(group.name, group.size, group.rank, own, group.comm)) return false;
  }
  return true;
}

void Trainer::Declare() const {
  c4Worker worker{};
  worker.size = sizeof worker;
  worker.dp_rank = replica_;
  worker.stage = stage_;
  worker.tp_rank = tensor_rank_;
  worker.dp_size = replicas_;
  worker.pp_size = options_.pipeline;
  worker.tp_size = options_.tensor;
  worker.layers = options_.pipeline;
  marks_.worker(&worker);
}

// Of the slow rank: what began then lasts longer than it would.
void Trainer::Linger(double began_s) const {
  if (world_.rank != options_.slow_rank) return;
  const double rest_s = (NowS() - began_s) * (options_.slow_factor - 1);
  usleep(static_cast<useconds_t>(std::min(rest_s, 10.0) * 1e6));
}

bool Trainer::Disconnect() {
  bool all = true;
  for (ncclComm_t comm : {data_, pipeline_, tensor_, all_}) {
    all = Check(ncclCommDestroy(comm), "ncclCommDestroy", comm) && all;
  }
  return all;
}

bool Trainer::Sum(std::vector<float>* values, size_t count, const char* what, ncclComm_t comm) const {
  if (comm == nullptr) return true;  // a group of one
  return Check(ncclAllReduce(values->data(), values->data(), count, ncclFloat, ncclSum, comm, nullptr), what,
               comm) &&
         Wait(what, comm);
}

bool Trainer::Send(const std::vector<float>& values, int stage) const {
  return Check(ncclSend(values.data(), values.size(), ncclFloat, stage, pipeline_, nullptr), "ncclSend",
               pipeline_) &&
         Wait("ncclSend", pipeline_);
}

bool Trainer::Receive(std::vector<float>* values, int stage) const {
  values->resize(activations());
  return Check(ncclRecv(values->data(), values->size(), ncclFloat, stage, pipeline_, nullptr), "ncclRecv",
               pipeline_) &&
         Wait("ncclRecv", pipeline_);
}

// Equal for all ranks of a replica, different for each replica: what a data loader would give.
std::vector<float> Trainer::Sample(int iteration, int micro_batch) const {
  std::mt19937 random(static_cast<unsigned>((iteration * 64 + micro_batch) * 1024 + replica_));
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> x(activations());
  for (float& value : x) value = uniform(random);
  return x;
}

// In the last stage `dy` becomes the gradient of the loss: to learn is half of the input.
bool Trainer::Forward(int iteration, int micro_batch, Block::Kept* kept, std::vector<float>* dy) {
  std::vector<float> x;
  if (stage_ == 0) {
    x = Sample(iteration, micro_batch);
  } else if (!Receive(&x, stage_ - 1)) {
    return false;
  }
  const uint64_t began = marks_.begin();
  const double began_s = NowS();
  std::vector<float> y;
  block_.Forward(x, options_.batch, kept, &y);
  Linger(began_s);
  if (!Sum(&y, y.size(), "the sum of activations", tensor_)) return false;
  for (size_t i = 0; i < y.size(); ++i) y[i] += x[i];
  marks_.operation(C4_FORWARD_COMPUTE, micro_batch, 0, began);
  if (!last_stage()) return Send(y, stage_ + 1);
  const std::vector<float> input = stage_ == 0 ? x : Sample(iteration, micro_batch);
  const auto samples = static_cast<float>(options_.batch * static_cast<size_t>(options_.micro_batches));
  for (size_t i = 0; i < y.size(); ++i) {
    const float error = y[i] - 0.5F * input[i];
    loss_ += 0.5 * error * error / (static_cast<double>(samples) * static_cast<double>(options_.width));
    y[i] = error / samples;
  }
  *dy = std::move(y);
  return true;
}

bool Trainer::Backward(int micro_batch, const Block::Kept& kept, std::vector<float> dy) {
  if (!last_stage() && !Receive(&dy, stage_ + 1)) return false;
  const uint64_t began = marks_.begin();
  const double began_s = NowS();
  std::vector<float> dx;
  block_.Backward(dy, options_.batch, kept, &dx);
  Linger(began_s);
  if (!Sum(&dx, dx.size(), "the sum of activation gradients", tensor_)) return false;
  for (size_t i = 0; i < dx.size(); ++i) dx[i] += dy[i];
  marks_.operation(C4_BACKWARD_COMPUTE, micro_batch, 0, began);
  return stage_ == 0 || Send(dx, stage_ - 1);
}

bool Trainer::Update() {
  std::vector<float>& gradients = block_.gradients();
  size_t count = gradients.size();
  if (call_another_count != 0) {
    call_another_count = 0;
    fprintf(stderr, "hybrid_trainer: rank %d: one element fewer in the next reduction of gradients\n",
            world_.rank);
    --count;
  }
  if (!Sum(&gradients, count, "the reduction of gradients", data_)) return false;
  const uint64_t began = marks_.begin();
  const float step = kLearningRate / static_cast<float>(replicas_);
  for (size_t i = 0; i < gradients.size(); ++i) {
    block_.weights()[i] -= step * gradients[i];
    gradients[i] = 0;
  }
  marks_.operation(C4_OPTIMIZER, -1, -1, began);
  return true;
}

bool Trainer::Iterate(int iteration) {
  const uint64_t began = marks_.begin();
  const auto micro_batches = static_cast<size_t>(options_.micro_batches);
  std::vector<Block::Kept> kept(micro_batches);
  std::vector<std::vector<float>> dy(micro_batches);
  loss_ = 0;
  if (options_.device_ms > 0) usleep(static_cast<useconds_t>(options_.device_ms * 1e3));
  for (size_t m = 0; m < micro_batches; ++m) {
    if (!Forward(iteration, static_cast<int>(m), &kept[m], &dy[m])) return false;
  }
  for (size_t m = micro_batches; m-- > 0;) {
    if (!Backward(static_cast<int>(m), kept[m], std::move(dy[m]))) return false;
  }
  if (!Update()) return false;
  marks_.step(iteration, began);
  return true;
}

// Forward only, three times as many micro-batches.
bool Trainer::Evaluate(int iteration) {
  const double training_loss = loss_;
  for (int m = 0; m < 3 * options_.micro_batches; ++m) {
    Block::Kept kept;
    std::vector<float> dy;
    if (!Forward(iteration, m, &kept, &dy)) return false;
  }
  loss_ = training_loss;
  return true;
}

void Trainer::Compile() const {
  std::vector<float> x(activations(), 1.0F);
  Block::Kept kept;
  const double until_s = NowS() + options_.first_iteration_s;
  while (NowS() < until_s) block_.Forward(x, options_.batch, &kept, &x);
}

bool Trainer::Checkpoint() const {
  const std::string path =
      options_.checkpoint_dir + "/hybrid_trainer." + std::to_string(getpid()) + ".checkpoint";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) {
    fprintf(stderr, "hybrid_trainer: cannot write %s\n", path.c_str());
    return false;
  }
  const std::vector<char> page(65536, 'w');
  const double until_s = NowS() + options_.checkpoint_s;
  do {
    if (pwrite(fd, page.data(), page.size(), 0) < 0) break;
    usleep(20000);
  } while (NowS() < until_s);
  close(fd);
  unlink(path.c_str());
  return true;
}

// All shards, and then the word that they are whole.
bool Trainer::Save(int next_iteration) {
  const bool written = replica_ != 0 || WriteShard(options_.resume_dir, {stage_, tensor_rank_},
                                                   {next_iteration, first_loss_, block_.weights()});
  std::vector<float> failed = {written ? 0.0F : 1.0F};
  if (!Sum(&failed, 1, "the end of a checkpoint", all_)) return false;
  if (failed[0] > 0) return true;  // said; the job goes on, with the checkpoint of before
  if (replica_ == 0) DropOlderShards(options_.resume_dir, {stage_, tensor_rank_}, next_iteration);
  if (world_.rank == 0) (void)WriteLatest(options_.resume_dir, next_iteration);  // it says what went wrong
  return true;
}

// Rank 0 looks for all.
bool Trainer::Resume(int* iteration) {
  std::vector<float> newest = {0};
  if (world_.rank == 0) {
    newest[0] = static_cast<float>(FindCheckpoint(options_.resume_dir, options_.pipeline, options_.tensor));
  }
  if (!Sum(&newest, 1, "the choice of a checkpoint", all_)) return false;
  if (newest[0] < 1) return true;
  CheckpointContent content;
  const bool read =
      ReadShard(options_.resume_dir, {stage_, tensor_rank_}, static_cast<int>(newest[0]), &content) &&
      content.weights.size() == block_.weights().size();
  if (!read) {
    fprintf(stderr, "hybrid_trainer: rank %d: the checkpoint of iteration %d in %s is not of this job\n",
            world_.rank, static_cast<int>(newest[0]), options_.resume_dir.c_str());
    return false;
  }
  block_.weights() = content.weights;
  first_loss_ = content.first_loss;
  *iteration = content.iteration;
  if (world_.rank == 0) {
    printf("begins with the checkpoint before iteration %d\n", *iteration);
    fflush(stdout);
  }
  return true;
}

// The mean loss over the replicas, and whether to stop: rank 0 looks at the clock for all.
bool Trainer::Report(int iteration, double* began_s, bool* stop) {
  const bool over = options_.seconds > 0 && NowS() - started_s_ >= options_.seconds;
  std::vector<float> figures = {last_stage() && tensor_rank_ == 0 ? static_cast<float>(loss_) : 0.0F,
                                world_.rank == 0 && over ? 1.0F : 0.0F};
  if (!Sum(&figures, figures.size(), "the sum of losses", all_)) return false;
  *stop = figures[1] > 0;
  last_loss_ = figures[0] / static_cast<float>(replicas_);
  if (iteration == 0) first_loss_ = last_loss_;
  const double now_s = NowS();
  if (world_.rank == 0) {
    const int done = iteration % options_.report_every != 0 || iteration == 0 ? 1 : options_.report_every;
    printf("iteration %d: loss %.5f, %.1f ms an iteration\n", iteration, last_loss_,
           (now_s - *began_s) * 1e3 / done);
    fflush(stdout);
  }
  *began_s = now_s;
  return true;
}

bool Trainer::ReplicasAgree() const {
  double sum = 0;
  for (const float weight : const_cast<Trainer*>(this)->block_.weights()) sum += std::abs(weight);
  std::vector<float> mean = {static_cast<float>(sum)};
  if (!Sum(&mean, 1, "the comparison of replicas", data_)) return false;
  const double expected = mean[0] / static_cast<float>(data_ == nullptr ? 1 : replicas_);
  if (std::abs(expected - sum) <= 1e-5 * sum) return true;
  fprintf(stderr, "hybrid_trainer: rank %d: the replicas' weights differ: %.6f here, %.6f on average\n",
          world_.rank, sum, expected);
  return false;
}

bool Trainer::Train() {
  Declare();
  started_s_ = NowS();
  double began_s = started_s_;
  int iteration = 0;
  if (!options_.resume_dir.empty() && !Resume(&iteration)) return false;
  const int first = iteration;
  for (bool stop = false; !stop; ++iteration) {
    if (options_.iterations > 0 && iteration == options_.iterations) break;
    if (iteration == 0) Compile();
    if (!Iterate(iteration)) return false;
    if ((iteration % options_.report_every == 0 || iteration == first) && !Report(iteration, &began_s, &stop))
      return false;
    if (options_.evaluate_every > 0 && (iteration + 1) % options_.evaluate_every == 0 &&
        !Evaluate(iteration)) {
      return false;
    }
    if (options_.checkpoint_every > 0 && (iteration + 1) % options_.checkpoint_every == 0 &&
        options_.resume_dir.empty() && world_.rank == 0 && !Checkpoint()) {
      return false;
    }
    if (options_.checkpoint_every > 0 && (iteration + 1) % options_.checkpoint_every == 0 &&
        !options_.resume_dir.empty() && !Save(iteration + 1)) {
      return false;
    }
  }
  if (!ReplicasAgree()) return false;
  if (iteration > 20 && last_loss_ > 0.9 * first_loss_) {
    fprintf(stderr, "hybrid_trainer: rank %d: the loss does not fall: %.5f, then %.5f\n", world_.rank,
            first_loss_, last_loss_);
    return false;
  }
  // The last one to the bit, for whoever compares two runs.
  if (world_.rank == 0) {
    printf("%d iterations, loss %.5f -> %.5f (%a)\n", iteration, first_loss_, last_loss_, last_loss_);
  }
  return true;
}

int Main(int argc, char** argv) {
  TrainerOptions options;
  if (const int code = ParseTrainerOptions(argc, argv, &options); code >= 0) return code;
  World world;
  if (!ReadWorld(&world)) return 2;
  if (world.size % (options.tensor * options.pipeline) != 0) {
    fprintf(stderr, "hybrid_trainer: %d ranks cannot be divided into tensor groups of %d and %d stages\n",
            world.size, options.tensor, options.pipeline);
    return 2;
  }
  struct sigaction action {};
  action.sa_handler = OnMismatchSignal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR2, &action, nullptr);
  Trainer trainer(options, world);
  return trainer.Connect() && trainer.Train() && trainer.Disconnect() ? 0 : 1;
}

}  // namespace
}  // namespace c4::examples

int main(int argc, char** argv) {
  return c4::examples::Main(argc, argv);
}
