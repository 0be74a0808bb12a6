#include "examples/lm/trainer.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <utility>

#include "examples/checkpoint.h"
#include "examples/lm/mix.h"

namespace c4::examples::lm {
namespace {

constexpr int kDied = 9;

double NowS() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Layout LayoutOf(const Options& options, int ranks) {
  return {ranks / (options.pipeline * options.tensor), options.pipeline, options.tensor};
}

ModelPart PartFor(const Options& options, const Worker& worker) {
  return PartOf(options.model, worker.stage, options.pipeline, worker.tensor_rank, options.tensor);
}

TensorSum<float> SumOver(const Groups& groups, int tensor_ranks) {
  if (tensor_ranks == 1) return {};
  return [&groups](float* values, size_t count) { return groups.Sum(values, count, Group::kTensor); };
}

}  // namespace

Trainer::Trainer(const Options& options, std::string text, const World& world)
    : options_(options),
      text_(std::move(text)),
      world_(world),
      layout_(LayoutOf(options, world.size)),
      worker_(WorkerOf(layout_, world.rank)),
      groups_(world),
      model_(options.model, PartFor(options, worker_), SumOver(groups_, options.tensor)),
      adam_(model_.weights().size()) {
  // As evenly as it goes, the first replicas one more.
  const int each = options.micro_batches / layout_.data;
  const int more = options.micro_batches % layout_.data;
  first_micro_batch_ = worker_.replica * each + std::min(worker_.replica, more);
  group_micro_batches_ = each + (worker_.replica < more ? 1 : 0);
}

bool Trainer::Connect() {
  return groups_.Connect() && groups_.Join(layout_, worker_);
}

void Trainer::Declare() const {
  c4Worker worker{};
  worker.size = sizeof worker;
  worker.dp_rank = worker_.replica;
  worker.stage = worker_.stage;
  worker.tp_rank = worker_.tensor_rank;
  worker.dp_size = layout_.data;
  worker.pp_size = layout_.pipeline;
  worker.tp_size = layout_.tensor;
  worker.layers = options_.model.layers;
  marks_.worker(&worker);
}

Samples Trainer::SamplesFor(int micro_batch) const {
  return SamplesOf(text_, options_.model.sequence, static_cast<size_t>(options_.batch),
                   static_cast<uint64_t>(iteration_),
                   static_cast<uint64_t>(first_micro_batch_ + micro_batch));
}

// What began then lasts as long as it would on a device, and longer on the slow one.
void Trainer::Linger(double began_s, double least_ms) const {
  const bool slow = world_.rank == options_.slow_rank && iteration_ >= options_.slow_from &&
                    (options_.slow_until == 0 || iteration_ < options_.slow_until);
  const double now_s = NowS();
  double factor = slow ? options_.slow_factor : 1;
  for (const SlowSpan& span : options_.slow_spans) {
    const bool lasts = now_s - started_s_ >= span.from_s && now_s - started_s_ < span.until_s;
    if (span.rank == world_.rank && lasts) factor = std::max(factor, span.factor);
  }
  const double taken_s = now_s - began_s;
  const double rest_s = std::max(taken_s, least_ms / 1e3) * factor - taken_s;
  if (rest_s > 0) usleep(static_cast<useconds_t>(std::min(rest_s, 10.0) * 1e6));
}

bool Trainer::Compute(const Pass& pass, const std::vector<float>& input, std::vector<float>* made) {
  const uint64_t began = marks_.begin();
  const double began_s = NowS();
  *made = input;
  if (pass.backward) {
    const auto flight = flights_.find(pass.micro_batch);
    if (!model_.Backward(flight->second, made)) return false;
    flights_.erase(flight);
    if (first_stage()) made->clear();  // nobody wants it
    Linger(began_s, 2 * options_.device_ms);
    marks_.operation(C4_BACKWARD_COMPUTE, pass.micro_batch, 0, began);
    return true;
  }
  Model<float>::Kept& kept = flights_[pass.micro_batch];
  const Samples samples =
      first_stage() || last_stage() ? SamplesFor(pass.micro_batch) : Samples{};  // others see no bytes
  if (!model_.Forward(samples.bytes, &kept, made)) return false;
  if (last_stage()) {
    const double weight = 1.0 / options_.micro_batches;
    loss_ += weight * model_.Loss(*made, samples.next, weight, &kept);
    made->clear();
  }
  Linger(began_s, options_.device_ms);
  marks_.operation(C4_FORWARD_COMPUTE, pass.micro_batch, 0, began);
  return true;
}

// Behind each pass its result goes to one neighbour, while the input of the next pass comes from one: both at
// once, since the neighbour may do the same.
bool Trainer::Passes() {
  const std::vector<Pass> passes =
      OneForwardOneBackward(worker_.stage, layout_.pipeline, group_micro_batches_);
  const size_t between = static_cast<size_t>(options_.batch) * options_.model.sequence * options_.model.width;
  std::vector<float> made;
  for (size_t i = 0; i <= passes.size(); ++i) {
    std::vector<float> input;
    int from = 0;
    if (i < passes.size()) {
      const bool is_end = passes[i].backward ? last_stage() : first_stage();
      if (!is_end) input.resize(between);
      from = worker_.stage + (passes[i].backward ? 1 : -1);
    }
    const int to = i == 0 ? 0 : worker_.stage + (passes[i - 1].backward ? -1 : 1);
    if (!groups_.Exchange(made, to, &input, from)) return false;
    if (i == passes.size()) break;
    const double began_s = NowS();
    if (!Compute(passes[i], input, &made)) return false;
    computed_s_ += NowS() - began_s;
  }
  return true;
}

bool Trainer::Update() {
  std::vector<float>& gradients = model_.gradients();
  if (!groups_.Sum(gradients.data(), gradients.size(), Group::kData)) return false;
  const uint64_t began = marks_.begin();
  adam_.Step(iteration_, options_.learning_rate, &model_.weights(), &gradients);
  marks_.operation(C4_OPTIMIZER, -1, -1, began);
  return true;
}

bool Trainer::Iterate() {
  const uint64_t began = marks_.begin();
  loss_ = 0;
  computed_s_ = 0;
  if (!Passes() || !Update()) return false;
  marks_.step(iteration_, began);
  ReportStep();
  ++iteration_;
  return true;
}

void Trainer::ReportStep() const {
  c4Step step{};
  step.size = sizeof step;
  step.step = iteration_;
  step.micro_batches = options_.micro_batches;
  step.group_micro_batches = group_micro_batches_;
  step.micro_batch_ns = static_cast<uint64_t>(computed_s_ * 1e9 / group_micro_batches_);
  mitigation_.report(&step);
}

bool Trainer::FollowPlan() {
  c4Plan plan{};
  plan.size = sizeof plan;
  const uint64_t number = mitigation_.poll(&plan) != 0 ? plan.number : 0;
  // The least number, and the complement of the greatest.
  uint64_t numbers[] = {number, ~number};
  if (!groups_.Reduce(numbers, 2, ncclMin, Group::kAll)) return false;
  if (numbers[0] == 0 || numbers[0] != ~numbers[1]) return true;
  if (plan.strategy == C4_PLAN_MICRO_BATCHES) return DealOut(plan);
  return ChangePlaces(plan);
}

// All ranks hold the same plan here, so they come to the same answer.
bool Trainer::DealOut(const c4Plan& plan) {
  if (plan.micro_batches != options_.micro_batches) {
    mitigation_.answer(plan.number, C4_PLAN_REFUSED, 0);
    return true;
  }
  const double began_s = NowS();
  first_micro_batch_ = plan.first_micro_batch;
  group_micro_batches_ = plan.group_micro_batches;
  if (world_.rank == 0) {
    printf("plan %" PRIu64 ", before iteration %d: %d of %d micro-batches in the first replica\n",
           plan.number, iteration_, group_micro_batches_, options_.micro_batches);
    fflush(stdout);
  }
  mitigation_.answer(plan.number, C4_PLAN_DONE, static_cast<uint64_t>((NowS() - began_s) * 1e9));
  return true;
}

// State goes from rank to rank through memory into buffers of its own: until all ranks have theirs, every
// rank is what it was.
bool Trainer::ChangePlaces(const c4Plan& plan) {
  if (plan.micro_batches != options_.micro_batches) {
    mitigation_.answer(plan.number, C4_PLAN_REFUSED, 0);
    return true;
  }
  uint64_t before = 0;
  if (!HashAll(&before)) return false;
  const double began_s = NowS();
  const Worker next = {plan.next_dp_rank, plan.next_stage, plan.next_tp_rank};
  Model<float> model(options_.model, PartFor(options_, next), SumOver(groups_, options_.tensor));
  Adam adam(model.weights().size());
  std::vector<float> state = PackState(model_.weights(), adam_);
  if (plan.send_to >= 0) {
    std::vector<float> received(3 * model.weights().size());
    if (!groups_.Swap(state, plan.send_to, &received, plan.receive_from)) return false;
    state = std::move(received);
  }
  uint64_t fits = UnpackState(state, &model.weights(), &adam) ? 1 : 0;
  if (!groups_.Reduce(&fits, 1, ncclMin, Group::kAll)) return false;
  if (fits == 0) {
    mitigation_.answer(plan.number, C4_PLAN_REFUSED, 0);
    return true;
  }
  if (!groups_.Part() || !groups_.Join(layout_, next)) return false;
  worker_ = next;
  model_ = std::move(model);
  adam_ = std::move(adam);
  first_micro_batch_ = plan.first_micro_batch;
  group_micro_batches_ = plan.group_micro_batches;
  Declare();
  const double cost_s = NowS() - began_s;
  mitigation_.answer(plan.number, C4_PLAN_DONE, static_cast<uint64_t>(cost_s * 1e9));
  uint64_t after = 0;
  if (!HashAll(&after)) return false;
  if (world_.rank == 0) {
    printf("plan %" PRIu64 ", before iteration %d: places changed in %.1f ms, state %016" PRIx64
           " before, %016" PRIx64 " after\n",
           plan.number, iteration_, cost_s * 1e3, before, after);
    fflush(stdout);
  }
  return true;
}

bool Trainer::HashAll(uint64_t* hash) const {
  *hash = HashState(PackState(model_.weights(), adam_), static_cast<uint64_t>(NumberOf(layout_, worker_)));
  return groups_.Reduce(hash, 1, ncclSum, Group::kAll);
}

// The loss of the iteration that is over, and whether to stop: rank 0 looks at the clock for all.
bool Trainer::Report(bool* stop) {
  const bool over = options_.seconds > 0 && NowS() - started_s_ >= options_.seconds;
  float figures[] = {last_stage() && worker_.tensor_rank == 0 ? static_cast<float>(loss_) : 0.0F,
                     world_.rank == 0 && over ? 1.0F : 0.0F};
  if (!groups_.Sum(figures, 2, Group::kAll)) return false;
  *stop = figures[1] > 0;
  last_loss_ = static_cast<double>(figures[0]);
  if (iteration_ == 1) first_loss_ = last_loss_;
  const double now_s = NowS();
  if (world_.rank == 0) {
    printf("iteration %d: loss %.5f, %.1f ms an iteration\n", iteration_ - 1, last_loss_,
           (now_s - reported_s_) * 1e3 / (iteration_ - reported_));
    fflush(stdout);
  }
  reported_s_ = now_s;
  reported_ = iteration_;
  return true;
}

// All shards, and then the word that they are whole.
bool Trainer::Save() {
  const Shard shard = {worker_.stage, worker_.tensor_rank};
  const std::string& directory = options_.resume_dir;
  const bool written =
      worker_.replica != 0 ||
      WriteShard(directory, shard, {iteration_, first_loss_, PackState(model_.weights(), adam_)});
  float failed = written ? 0.0F : 1.0F;
  if (!groups_.Sum(&failed, 1, Group::kAll)) return false;
  if (failed > 0) return true;  // said; the job goes on, with the checkpoint of before
  if (worker_.replica == 0) DropOlderShards(directory, shard, iteration_);
  if (world_.rank == 0) (void)WriteLatest(directory, iteration_);  // it says what went wrong
  return true;
}

// What has to be the same for a copy to be of this job.
uint64_t Trainer::JobHash() const {
  const ModelShape& model = options_.model;
  uint64_t hash = 0;
  for (const size_t part :
       {static_cast<size_t>(model.layers), model.heads, model.width, model.hidden, model.sequence,
        static_cast<size_t>(model.seed), text_.size(), static_cast<size_t>(options_.batch),
        static_cast<size_t>(options_.micro_batches), static_cast<size_t>(options_.pipeline),
        static_cast<size_t>(options_.tensor), static_cast<size_t>(world_.size)}) {
    hash = Mix(hash, part);
  }
  const char* const name = getenv("C4_JOB_ID");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  for (const char* at = name == nullptr ? "" : name; *at != 0; ++at)
    hash = Mix(hash, static_cast<uint64_t>(*at));
  return hash;
}

bool Trainer::BeginWith(const CheckpointContent& content) {
  if (!UnpackState(content.weights, &model_.weights(), &adam_)) return false;
  first_loss_ = content.first_loss;
  iteration_ = content.iteration;
  return true;
}

// Rank 0 looks for all. What is in memory is taken where it is newer than what is on disk.
bool Trainer::Resume() {
  float newest = 0;
  if (world_.rank == 0 && !options_.resume_dir.empty()) {
    newest = static_cast<float>(FindCheckpoint(options_.resume_dir, layout_.pipeline, layout_.tensor));
  }
  if (!groups_.Sum(&newest, 1, Group::kAll)) return false;
  bool found = false;
  if (copies_.has_value() && !ResumeFromMemory(static_cast<int>(newest), &found)) return false;
  if (found || newest < 1) return true;
  const int iteration = static_cast<int>(newest);
  CheckpointContent content;
  if (!ReadShard(options_.resume_dir, {worker_.stage, worker_.tensor_rank}, iteration, &content) ||
      !BeginWith(content)) {
    fprintf(stderr, "lm_trainer: rank %d: the checkpoint of iteration %d in %s is not of this job\n",
            world_.rank, iteration, options_.resume_dir.c_str());
    return false;
  }
  if (world_.rank == 0) {
    printf("begins with the checkpoint before iteration %d\n", iteration);
    fflush(stdout);
  }
  return true;
}

bool Trainer::ResumeFromMemory(int newer_than, bool* found) {
  CheckpointContent content;
  bool here = false;
  const double began_s = NowS();
  const Shard shard = {worker_.stage, worker_.tensor_rank};
  if (!copies_->Restore(shard, layout_.pipeline, layout_.tensor, newer_than, &content, &here)) return false;
  *found = content.iteration > 0;
  if (!*found) return true;
  uint64_t near = here ? 1 : 0;
  uint64_t hash = 0;
  if (!BeginWith(content) || !groups_.Reduce(&near, 1, ncclSum, Group::kAll) || !HashAll(&hash)) return false;
  if (world_.rank == 0) {
    printf("begins with the copies in memory before iteration %d: %" PRIu64
           " ranks' of their own host, %" PRIu64 " from a neighbour, %.1f ms; state %016" PRIx64 "\n",
           iteration_, near, static_cast<uint64_t>(world_.size) - near, (NowS() - began_s) * 1e3, hash);
    fflush(stdout);
  }
  return true;
}

bool Trainer::KeepCopy() {
  const double began_s = NowS();
  const bool begun = copies_->Begin({worker_.stage, worker_.tensor_rank},
                                    {iteration_, first_loss_, PackState(model_.weights(), adam_)});
  copying_s_ += NowS() - began_s;
  return begun;
}

bool Trainer::Train() {
  Declare();
  if (!options_.memory_dir.empty()) {
    uint64_t most = 3 * model_.weights().size();
    if (!groups_.Reduce(&most, 1, ncclMax, Group::kAll)) return false;
    copies_.emplace(groups_, world_, options_.memory_dir, JobHash());
    if (!copies_->Open(most)) return false;
  }
  if (!Resume()) return false;
  started_s_ = reported_s_ = NowS();
  reported_ = iteration_;
  const int first = iteration_;
  bool stop = false;
  while (!stop && (options_.iterations == 0 || iteration_ < options_.iterations)) {
    if (world_.rank == options_.die_rank && iteration_ == options_.die_at) _exit(kDied);
    if (!FollowPlan() || !Iterate()) return false;
    const bool is_last = iteration_ == options_.iterations;
    if ((iteration_ % options_.report_every == 0 || iteration_ == first + 1 || is_last) && !Report(&stop)) {
      return false;
    }
    const bool saves = options_.checkpoint_every > 0 && iteration_ % options_.checkpoint_every == 0;
    if (saves && !options_.resume_dir.empty() && !Save()) return false;
    if (copies_.has_value() && !is_last && iteration_ % options_.memory_every == 0 && !KeepCopy())
      return false;
  }
  return Summarize();
}

// Whoever compares two runs finds the last loss and the state of all workers to the bit. Replicas have to be
// equal to the bit, too.
bool Trainer::Summarize() {
  uint64_t hash =
      HashState(PackState(model_.weights(), adam_),
                static_cast<uint64_t>(NumberOf(layout_, {0, worker_.stage, worker_.tensor_rank})));
  uint64_t least = hash;
  uint64_t most = hash;
  if (!groups_.Reduce(&least, 1, ncclMin, Group::kData) || !groups_.Reduce(&most, 1, ncclMax, Group::kData)) {
    return false;
  }
  if (least != most) {
    fprintf(stderr, "lm_trainer: rank %d: the replicas of stage %d, tensor rank %d differ\n", world_.rank,
            worker_.stage, worker_.tensor_rank);
    return false;
  }
  if (worker_.replica != 0) hash = 0;
  if (!groups_.Reduce(&hash, 1, ncclSum, Group::kAll)) return false;
  if (copies_.has_value()) {
    if (!copies_->Settle()) return false;
    if (world_.rank == 0 && copies_->copies() > 0) {
      const double iterations_s = NowS() - started_s_;
      printf("%" PRIu64 " copies in memory%s, %.3f ms each for the training, %.3f %% of the time\n",
             copies_->copies(), copies_->leaves_the_host() ? " and in a neighbour's" : ", of this host alone",
             copying_s_ * 1e3 / static_cast<double>(copies_->copies()), 100 * copying_s_ / iterations_s);
    }
    copies_->Remove();
  }
  if (world_.rank == 0) {
    printf("%d iterations, loss %.5f -> %.5f (%a), state %016" PRIx64 "\n", iteration_, first_loss_,
           last_loss_, last_loss_, hash);
  }
  return true;
}

}  // namespace c4::examples::lm
