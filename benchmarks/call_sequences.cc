#include "benchmarks/call_sequences.h"

#include <algorithm>
#include <random>

namespace c4::benchmarks {
namespace {

enum Function : uint64_t {
  kAllReduce = 1,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kSend,
  kReceive,
  kBroadcast
};
enum Group : uint64_t { kWorld = 1, kTensor, kPipeline, kData, kExpert, kEmbedding, kModel };

uint64_t Token(Function function, Group group, uint64_t bytes) {
  return static_cast<uint64_t>(function) << 56 | static_cast<uint64_t>(group) << 48 | bytes;
}

constexpr size_t kMostCalls = 2000;
constexpr uint64_t kActivation = 8 << 20;

// Appends the calls of one micro-batch's pass through this stage.
class Passes {
 public:
  Passes(const CallLayout& layout, std::vector<uint64_t>* calls) : layout_(layout), calls_(calls) {}

  void Forward() {
    if (layout_.stage > 0) Call(kReceive, kPipeline, kActivation);
    for (int layer = 0; layer < layout_.layers; ++layer) {
      if (layout_.sharded) Call(kAllGather, kData, Parameters(layer));
      for (int i = 0; i < layout_.tensor_calls; ++i) {
        Call(i % 2 == 0 ? kAllGather : kReduceScatter, kTensor, kActivation);
      }
      for (int i = 0; i < layout_.expert_calls; ++i) Call(kAllToAll, kExpert, kActivation);
    }
    if (layout_.stage + 1 < layout_.stages) Call(kSend, kPipeline, kActivation);
  }

  void Backward() {
    if (layout_.stage + 1 < layout_.stages) Call(kReceive, kPipeline, kActivation + 1);
    for (int layer = layout_.layers - 1; layer >= 0; --layer) {
      if (layout_.sharded) Call(kAllGather, kData, Parameters(layer));
      for (int i = 0; i < layout_.expert_calls; ++i) Call(kAllToAll, kExpert, kActivation);
      for (int i = 0; i < layout_.tensor_calls; ++i) {
        Call(i % 2 == 0 ? kReduceScatter : kAllGather, kTensor, kActivation + (i == 0 ? 1 : 0));
      }
      if (layout_.sharded) Call(kReduceScatter, kData, Parameters(layer));
    }
    if (layout_.stage > 0) Call(kSend, kPipeline, kActivation + 1);
  }

  void Call(Function function, Group group, uint64_t bytes) const {
    calls_->push_back(Token(function, group, bytes));
  }

 private:
  // The first layer holds the embedding too.
  static uint64_t Parameters(int layer) { return uint64_t{layer == 0 ? 96u : 64u} << 20; }

  const CallLayout& layout_;
  std::vector<uint64_t>* calls_;
};

void Optimize(const CallLayout& layout, const Passes& passes) {
  if (!layout.sharded) {
    for (int bucket = 0; bucket < layout.buckets; ++bucket) {
      const uint64_t bytes =
          (uint64_t{40} << 20) + (layout.equal_buckets ? 0 : static_cast<uint64_t>(bucket));
      passes.Call(layout.gathers_parameters ? kReduceScatter : kAllReduce, kData, bytes);
    }
  }
  if (layout.tensor_calls > 0) passes.Call(kAllReduce, kTensor, 4096);  // gradients of layer norms
  if (layout.stages > 1 && (layout.stage == 0 || layout.stage + 1 == layout.stages)) {
    passes.Call(kAllReduce, kEmbedding, uint64_t{64} << 20);
  }
  for (int i = 0; i < layout.norm_calls; ++i) passes.Call(kAllReduce, kModel, i == 0 ? 4 : 8);
  if (!layout.gathers_parameters) return;
  for (int bucket = 0; bucket < layout.buckets; ++bucket) {
    const uint64_t bytes = (uint64_t{20} << 20) + (layout.equal_buckets ? 0 : static_cast<uint64_t>(bucket));
    passes.Call(kAllGather, kData, bytes);
  }
}

}  // namespace

std::vector<uint64_t> IterationCalls(const CallLayout& layout) {
  std::vector<uint64_t> calls;
  Passes passes(layout, &calls);
  const int ahead = layout.all_forward_first
                        ? layout.micro_batches
                        : std::min(layout.micro_batches, layout.stages - 1 - layout.stage);
  for (int i = 0; i < ahead; ++i) passes.Forward();
  for (int i = ahead; i < layout.micro_batches; ++i) {
    passes.Forward();
    passes.Backward();
  }
  for (int i = 0; i < ahead; ++i) passes.Backward();
  Optimize(layout, passes);
  return calls;
}

const char* CallKindName(int kind) {
  static constexpr const char* kNames[kCallKinds] = {"data parallel",          "tensor, accumulation",
                                                     "tensor, pipeline, data", "sharded (FSDP)",
                                                     "experts, pipeline",      "GPipe order"};
  return kNames[kind];
}

CallLayout LayoutOfKind(int kind, uint64_t seed, size_t least, size_t most) {
  std::mt19937_64 random(seed);
  const auto between = [&random](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (;;) {
    CallLayout layout;
    layout.equal_buckets = between(0, 1) == 1;
    layout.gathers_parameters = between(0, 1) == 1;
    layout.norm_calls = between(1, 3);
    layout.buckets = between(1, 24);
    layout.layers = between(1, 40);
    layout.tensor_calls = 0;
    switch (kind) {
      case 0:
        layout.buckets = between(20, 1000);
        layout.equal_buckets = false;
        break;
      case 1:
        layout.tensor_calls = 2 * between(1, 2);
        layout.micro_batches = between(2, 32);
        break;
      case 2:
      case 5:
        layout.tensor_calls = 2 * between(0, 2);
        layout.stages = between(2, 8);
        layout.stage = between(0, layout.stages - 1);
        layout.micro_batches = between(4, 64);
        layout.all_forward_first = kind == 5;
        break;
      case 3:
        layout.sharded = true;
        layout.micro_batches = between(1, 8);
        break;
      case 4:
        layout.tensor_calls = 2 * between(0, 1);
        layout.expert_calls = 2;
        layout.stages = between(1, 4);
        layout.stage = between(0, layout.stages - 1);
        layout.micro_batches = between(2, 24);
        break;
      default:
        break;
    }
    const size_t calls = IterationCalls(layout).size();
    if (calls >= least && calls <= most) return layout;
  }
}

CallRun MakeCallRun(const CallLayout& layout, const CallEvents& events, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<uint64_t> iteration = IterationCalls(layout);
  std::vector<bool> changes(iteration.size());
  for (size_t i = 0; i < changes.size(); ++i) {
    changes[i] = std::uniform_real_distribution<double>(0, 1)(random) < events.changing_sizes;
  }
  CallRun run;
  int64_t now_ns = 1'000'000'000;
  const auto call = [&run, &now_ns](uint64_t token, int64_t takes_ns) {
    run.tokens.push_back(token);
    run.times_ns.push_back(now_ns);
    now_ns += takes_ns;
  };
  for (int i = 0; i < events.prologue; ++i)
    call(Token(kBroadcast, kWorld, static_cast<uint64_t>(i)), 1'000'000);
  for (int i = 0; i < events.iterations; ++i) {
    if (i > 0 && events.evaluate_every > 0 && i % events.evaluate_every == 0) {
      std::vector<uint64_t> forward;
      Passes passes(layout, &forward);
      passes.Forward();
      passes.Call(kAllReduce, kData, 16);  // the loss
      for (int step = 0; step < events.evaluate_steps; ++step) {
        for (const uint64_t token : forward) call(token, 1'000'000);
      }
    }
    if (i == events.shape_changes_at) {
      CallLayout grown = layout;
      ++grown.micro_batches;
      if (layout.micro_batches == 1 && layout.layers == 1) ++grown.buckets;
      if (IterationCalls(grown).size() > kMostCalls && layout.micro_batches > 1) grown.micro_batches -= 2;
      iteration = IterationCalls(grown);
      changes.resize(iteration.size(), false);
    }
    run.iteration_begins.push_back(run.tokens.size());
    const double takes_ns = 1e9 * std::max(0.1, 1 + events.noise * normal(random));
    const auto each_ns = static_cast<int64_t>(takes_ns / static_cast<double>(iteration.size()));
    for (size_t k = 0; k < iteration.size(); ++k) {
      call(changes[k] ? iteration[k] + 64 * (1 + random() % 100000) : iteration[k], each_ns);
    }
    if (events.log_every > 0 && (i + 1) % events.log_every == 0) call(Token(kAllGather, kWorld, 64), 100'000);
  }
  run.period = static_cast<uint32_t>(iteration.size());
  for (size_t i = 0; i + 1 < run.iteration_begins.size(); ++i) {
    const uint64_t calls = run.iteration_begins[i + 1] - run.iteration_begins[i];
    const bool whole = calls == run.period;
    run.iteration_ns.push_back(
        whole ? run.times_ns[run.iteration_begins[i + 1]] - run.times_ns[run.iteration_begins[i]] : 0);
  }
  return run;
}

}  // namespace c4::benchmarks
