#include "traces/kineto_proposal.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "traces/kineto_launches.h"
#include "traces/kineto_mapping.h"

namespace c4::traces {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kMarks[] = "user_annotation";
constexpr char kFunctions[] = "python_function";  // of profiles with stacks
constexpr char kOperators[] = "cpu_op";
constexpr char kKernels[] = "kernel";
constexpr char kDescription[] = "Process Group Description";

enum class Framework : uint8_t { kMegatron, kDeepSpeed, kFsdp, kDdp, kOwnMarks, kAny };
constexpr const char* kFrameworks[] = {"Megatron", "DeepSpeed", "FSDP", "DDP", "marks of the program", ""};

// How an operation may be called; of those of one type the first counts that a profile has.
struct Pattern {
  const char* type;
  Framework framework;
  const char* category;
  const char* regex;
  bool runs = false;
  int micro_batch = 0;  // group of the regex
  int chunk = 0;
};

constexpr char kOwnForward[] = "(?i)^\\W*(?:forward|fwd)(?:[ _-]?(?:pass|step|compute))?(?:\\W*[0-9]+)?\\W*$";
constexpr char kOwnBackward[] =
    "(?i)^\\W*(?:backward|bwd)(?:[ _-]?(?:pass|step|compute))?(?:\\W*[0-9]+)?\\W*$";

constexpr Pattern kPatterns[] = {
    {"forward-compute", Framework::kMegatron, kMarks,
     "^forward-compute(?: mb=([0-9]+))?(?: chunk=([0-9]+))?$", false, 1, 2},
    {"forward-compute", Framework::kMegatron, kFunctions,
     "megatron/core/pipeline_parallel/schedules\\.py\\([0-9]+\\): forward_step$"},
    {"forward-compute", Framework::kDeepSpeed, kFunctions,
     "deepspeed/runtime/pipe/engine\\.py\\([0-9]+\\): _exec_forward_pass$"},
    {"forward-compute", Framework::kDeepSpeed, kMarks, "DeepSpeedEngine\\.forward$"},
    {"forward-compute", Framework::kDeepSpeed, kFunctions,
     "deepspeed/runtime/engine\\.py\\([0-9]+\\): forward$"},
    {"forward-compute", Framework::kFsdp, kMarks, "^FullyShardedDataParallel\\.forward$", true},
    {"forward-compute", Framework::kFsdp, kMarks, "^FSDP::(?:root_pre_forward|pre_forward|post_forward)",
     true},
    {"forward-compute", Framework::kDdp, kMarks, "^DistributedDataParallel\\.forward$"},
    {"forward-compute", Framework::kOwnMarks, kMarks, kOwnForward},
    {"backward-compute", Framework::kMegatron, kMarks,
     "^backward-compute(?: mb=([0-9]+))?(?: chunk=([0-9]+))?$", false, 1, 2},
    {"backward-compute", Framework::kMegatron, kFunctions,
     "megatron/core/pipeline_parallel/schedules\\.py\\([0-9]+\\): backward_step$"},
    {"backward-compute", Framework::kDeepSpeed, kFunctions,
     "deepspeed/runtime/pipe/engine\\.py\\([0-9]+\\): _exec_backward_pass$"},
    {"backward-compute", Framework::kDeepSpeed, kMarks, "DeepSpeedEngine\\.backward$"},
    {"backward-compute", Framework::kDeepSpeed, kFunctions,
     "deepspeed/runtime/engine\\.py\\([0-9]+\\): backward$"},
    {"backward-compute", Framework::kOwnMarks, kMarks, kOwnBackward},
    {"backward-compute", Framework::kAny, kOperators, "^autograd::engine::evaluate_function: ", true},
    {"forward-recv", Framework::kMegatron, kMarks, "^forward-recv$"},
    {"forward-recv", Framework::kMegatron, kFunctions, "p2p_communication\\.py\\([0-9]+\\): recv_forward$"},
    {"forward-recv", Framework::kDeepSpeed, kFunctions,
     "deepspeed/runtime/pipe/engine\\.py\\([0-9]+\\): _exec_recv_activations$"},
    {"forward-send", Framework::kMegatron, kMarks, "^forward-send$"},
    {"forward-send", Framework::kMegatron, kFunctions, "p2p_communication\\.py\\([0-9]+\\): send_forward$"},
    {"forward-send", Framework::kDeepSpeed, kFunctions,
     "deepspeed/runtime/pipe/engine\\.py\\([0-9]+\\): _exec_send_activations$"},
    {"backward-recv", Framework::kMegatron, kMarks, "^backward-recv$"},
    {"backward-recv", Framework::kMegatron, kFunctions, "p2p_communication\\.py\\([0-9]+\\): recv_backward$"},
    {"backward-recv", Framework::kDeepSpeed, kFunctions,
     "deepspeed/runtime/pipe/engine\\.py\\([0-9]+\\): _exec_recv_grads$"},
    {"backward-send", Framework::kMegatron, kMarks, "^backward-send$"},
    {"backward-send", Framework::kMegatron, kFunctions, "p2p_communication\\.py\\([0-9]+\\): send_backward$"},
    {"backward-send", Framework::kDeepSpeed, kFunctions,
     "deepspeed/runtime/pipe/engine\\.py\\([0-9]+\\): _exec_send_grads$"},
    {"optimizer", Framework::kMegatron, kMarks, "^optimizer$"},
    {"optimizer", Framework::kDeepSpeed, kFunctions,
     "deepspeed/runtime/pipe/engine\\.py\\([0-9]+\\): _exec_optimizer_step$"},
    {"optimizer", Framework::kDeepSpeed, kMarks, "DeepSpeedEngine\\.step$"},
    {"optimizer", Framework::kDeepSpeed, kFunctions, "deepspeed/runtime/engine\\.py\\([0-9]+\\): step$"},
    {"optimizer", Framework::kAny, kMarks, "^Optimizer\\.step#"},
    {"optimizer", Framework::kOwnMarks, kMarks, "(?i)^\\W*optim(?:izer)?(?:[ _.-]?step)?\\W*$"},
    {"gc", Framework::kAny, kMarks, "^gc$"},
};

// Collectives of data parallelism; of those of one type the first counts.
struct Collective {
  const char* type;
  const char* category;
  const char* regex;
};
constexpr Collective kCollectives[] = {
    {"grads-reduce-scatter", kMarks, "^grads-reduce-scatter$"},
    {"grads-reduce-scatter", kKernels, "^nccl\\w*Kernel_ReduceScatter"},
    {"grads-reduce-scatter", kKernels, "^nccl\\w*Kernel_AllReduce"},
    {"grads-reduce-scatter", kMarks, "^(?:gloo|nccl):_?reduce_scatter"},
    {"grads-reduce-scatter", kMarks, "^(?:gloo|nccl):_?all_?reduce"},
    {"params-all-gather", kMarks, "^params-all-gather$"},
    {"params-all-gather", kKernels, "^nccl\\w*Kernel_AllGather"},
};

struct Steps {
  const char* regex;
  bool usual;
};
constexpr Steps kSteps[] = {
    {"^ProfilerStep#([0-9]+)$", true},
    {"(?i)^\\W*(?:iteration|iter|train[ _-]?step|global[ _-]?step|step|batch)[ _#:=-]*([0-9]+)\\W*$", false}};

// REQUIRES: it is one of those above.
TextPattern Compiled(const char* regex) {
  return *TextPattern::Regex(regex);
}

std::string WithoutNumbers(const std::string& name) {
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool digit = name[i] >= '0' && name[i] <= '9';
    if (!digit) text.push_back(name[i]);
    if (digit && (text.empty() || text.back() != '#')) text.push_back('#');
  }
  return text;
}

}  // namespace

// One proposal in the making.
class KinetoRuleFinder {
 public:
  explicit KinetoRuleFinder(const KinetoProposal& seen) : seen_(seen) {}

  absl::StatusOr<KinetoProposal::Proposal> Find(size_t files) {
    FindSteps();
    FindMarks();
    if (!types_.contains("forward-compute") || !types_.contains("backward-compute")) return Nothing();
    FindCollectives();
    FindLayout(files);
    SayWhatIsUsual();
    return Write();
  }

 private:
  void Unsure(std::string sentence) { unsure_.push_back(std::move(sentence)); }

  // A name of that category that the pattern finds.
  const std::string* Example(const char* category, const char* regex) const {
    const TextPattern pattern = Compiled(regex);
    const auto first = seen_.names_.lower_bound({category, ""});
    for (auto at = first; at != seen_.names_.end() && at->first.first == category; ++at) {
      if (pattern.Matches(at->second.name)) return &at->second.name;
    }
    return nullptr;
  }

  void FindSteps() {
    for (const Steps& steps : kSteps) {
      const TextPattern pattern = Compiled(steps.regex);
      std::vector<std::string> categories;
      for (const auto& [key, seen] : seen_.names_) {
        if (key.first.empty()) continue;  // a mapping has no word for it
        const bool known = !categories.empty() && categories.back() == key.first;
        if (!known && pattern.Matches(seen.name)) categories.push_back(key.first);
      }
      if (categories.empty()) continue;
      // What is mirrored on the GPU goes first.
      std::stable_sort(categories.begin(), categories.end(),
                       [](const auto& a, const auto& b) { return IsOnGpu(a) && !IsOnGpu(b); });
      steps_ = {{"regex", steps.regex}, {"category", categories}};
      if (!steps.usual) {
        Unsure(absl::StrCat("steps are taken from names like ", steps.regex,
                            ", as there is no ProfilerStep#: do these enclose whole steps?"));
      }
      return;
    }
    Unsure(
        "no event's name looks like a step: give profile() a schedule and call profiler.step() after every "
        "step, or correct steps.regex");
  }

  void FindMarks() {
    for (const Pattern& pattern : kPatterns) {
      if (types_.contains(pattern.type)) continue;
      const std::string* const example = Example(pattern.category, pattern.regex);
      if (example == nullptr) continue;
      types_.insert(pattern.type);
      frameworks_.insert(pattern.framework);
      Json rule = {{"type", pattern.type}, {"regex", pattern.regex}};
      const bool gc = std::string_view(pattern.type) == "gc";
      if (gc) {
        rule["category"] = pattern.category;
      } else {
        rule["category"] = {kLaunched, pattern.category};
      }
      if (pattern.micro_batch > 0) rule["micro_batch"] = {{"group", pattern.micro_batch}};
      if (pattern.chunk > 0) rule["chunk"] = {{"group", pattern.chunk}};
      if (pattern.runs) rule["runs"] = true;
      if (gc) rule["optional"] = true;
      rule["comment"] = absl::StrCat("as '", *example, "'");
      if (pattern.framework == Framework::kOwnMarks) {
        Unsure(absl::StrCat(pattern.type, " is taken from the mark '", *example,
                            "': is it that computation, without transfers and collectives?"));
      }
      rules_.push_back(std::move(rule));
    }
    const bool by_autograd = Example(kOperators, "^autograd::engine::evaluate_function: ") != nullptr &&
                             !rules_.empty() && IsRun("backward-compute");
    if (by_autograd) {
      Unsure(
          "no mark encloses the backward pass; it is taken from the first to the last function that autograd "
          "evaluates without another computation between: with pipeline stages, mark it instead");
    }
  }

  bool IsRun(const std::string& type) const {
    return std::any_of(rules_.begin(), rules_.end(),
                       [&type](const Json& rule) { return rule["type"] == type && rule.contains("runs"); });
  }

  void FindCollectives() {
    const bool sharded = frameworks_.contains(Framework::kFsdp);
    for (const Collective& one : kCollectives) {
      const bool gathers = std::string_view(one.type) == "params-all-gather";
      if (types_.contains(one.type) || (gathers && sharded)) continue;
      const std::string* const example = Example(one.category, one.regex);
      if (example == nullptr) continue;
      types_.insert(one.type);
      Json rule = {{"type", one.type}, {"regex", one.regex}, {"category", one.category}};
      const bool own_mark = example->starts_with(one.type);
      if (own_mark) rule["category"] = {kLaunched, one.category};
      if (!own_mark && one.category == std::string_view(kKernels)) Narrow(&rule);
      if (!gathers && !own_mark) {
        rule["last"] = true;
        Unsure(
            "reductions of gradients overlap with the backward pass, of which the replay knows nothing: only "
            "the last of each step is taken");
      }
      if (gathers) rule["optional"] = true;
      rule["comment"] = absl::StrCat("as '", *example, "'");
      rules_.push_back(std::move(rule));
    }
    if (!types_.contains("grads-reduce-scatter")) {
      Unsure(
          "no collective that reduces gradients was found: data-parallel ranks look as if they did not wait "
          "for each other");
    }
    if (sharded) {
      Unsure(
          "FSDP gathers parameters within the computations: a rank that is late makes the computations of "
          "all "
          "others long, so that these figures show what the job loses, but hardly by whom");
    }
  }

  // Only of data parallelism, where descriptions tell.
  void Narrow(Json* rule) {
    for (const auto& [description, size] : seen_.groups_) {
      if (!description.starts_with("DATA_PARALLEL_GROUP")) continue;
      (*rule)["args"] = {{kDescription, "DATA_PARALLEL_GROUP*"}};
      return;
    }
    if (seen_.groups_.size() > 1) {
      Unsure(absl::StrCat("collectives of all groups (", GroupNames(),
                          ") are taken for those of data parallelism: narrow them by args"));
    }
  }

  std::string GroupNames() const {
    std::vector<std::string> names;
    for (const auto& [description, size] : seen_.groups_) {
      if (names.size() == 6) break;
      names.push_back(absl::StrCat("'", description, "' of ", size));
    }
    return absl::StrCat(absl::StrJoin(names, ", "), seen_.groups_.size() > names.size() ? ", ..." : "");
  }

  int GroupSize(std::string_view description) const {
    const auto found = seen_.groups_.find(std::string(description));
    return found == seen_.groups_.end() ? 0 : found->second;
  }

  void FindLayout(size_t files) {
    const int world = seen_.world_size_ > 0 ? seen_.world_size_ : static_cast<int>(files);
    if (seen_.world_size_ == 0) {
      Unsure(absl::StrCat("no profile says how many ranks the job has: ", files, " files are taken for all"));
    } else if (static_cast<size_t>(world) != files) {
      Unsure(absl::StrCat("the job has ", world, " ranks, but ", files,
                          " profiles are here: all that the layout wants have to be there"));
    }
    Json sizes = Json::object();
    const std::pair<const char*, const char*> axes[] = {{"tp", "TENSOR_MODEL_PARALLEL_GROUP"},
                                                        {"cp", "CONTEXT_PARALLEL_GROUP"},
                                                        {"dp", "DATA_PARALLEL_GROUP"},
                                                        {"pp", "PIPELINE_MODEL_PARALLEL_GROUP"}};
    int64_t product = 1;
    for (const auto& [axis, description] : axes) {
      const int size = GroupSize(description);
      if (size == 0) continue;
      sizes[axis] = size;
      product *= size;
    }
    const bool pipelines =
        types_.contains("forward-send") || types_.contains("forward-recv") || sizes.value("pp", 1) > 1;
    if (!sizes.empty()) {
      for (const auto& [axis, description] : axes) {
        if (!sizes.contains(axis)) sizes[axis] = 1;
      }
      layout_ = {{"order", "tp-cp-dp-pp"}, {"sizes", sizes}};
      if (product != world) {
        Unsure(absl::StrCat("the sizes of the process groups make ", product, " ranks, not ", world,
                            ": correct layout.sizes"));
      }
    } else if (pipelines) {
      const bool deepspeed = frameworks_.contains(Framework::kDeepSpeed);
      layout_ = {{"order", deepspeed ? "tp-dp-pp" : "tp-cp-dp-pp"}};
      Unsure(
          "no process group says how many stages there are: give the sizes by --metadata (tp_size, dp_size, "
          "pp_size), or in layout.sizes");
    } else {
      layout_ = {{"order", "dp"}, {"sizes", {{"dp", world}}}};
      if (seen_.groups_.size() > 1) {
        Unsure(
            absl::StrCat("all ranks are taken for data-parallel ones, but there are several process groups: ",
                         GroupNames()));
      }
    }
    if (sizes.value("pp", 1) > 1 && !types_.contains("forward-send")) {
      Unsure(
          "there are stages, but no marks of their sends and receives: kernels do not tell a forward from a "
          "backward one, so that stages look as if they did not wait for each other; mark the calls "
          "(docs/formats/kineto-mapping.md)");
    }
  }

  void SayWhatIsUsual() {
    if (!types_.contains("optimizer")) Unsure("no optimizer was found: a step ends with its last operation");
    const bool kernels = std::any_of(seen_.names_.begin(), seen_.names_.end(),
                                     [](const auto& entry) { return IsGpuWork(entry.first.first); });
    if (!kernels)
      Unsure("there are no kernels: times are those of the CPU, which is right for jobs without GPUs only");
    if (seen_.left_out_) {
      Unsure(absl::StrCat("there are more than ", KinetoProposal::kMostNames, " names, or ",
                          KinetoProposal::kMostOfCategory,
                          " of one category; the others were not looked at"));
    }
  }

  absl::StatusOr<KinetoProposal::Proposal> Nothing() const {
    std::vector<std::pair<uint64_t, std::string>> marks;
    for (const auto& [key, seen] : seen_.names_) {
      if (key.first == kMarks) marks.emplace_back(seen.count, key.second);
    }
    std::sort(marks.rbegin(), marks.rend());
    std::vector<std::string> names;
    for (size_t i = 0; i < std::min<size_t>(marks.size(), 8); ++i)
      names.push_back(absl::StrCat("'", marks[i].second, "'"));
    const char* const missing = types_.contains("forward-compute") ? "backward" : "forward";
    return absl::FailedPreconditionError(absl::StrCat(
        "no event has a name that is known for a ", missing, " computation; ",
        names.empty() ? "there are no marks of the program at all"
                      : absl::StrCat("the program marks ", absl::StrJoin(names, ", ")),
        ": enclose the computations by torch.profiler.record_function(\"forward-compute\") and "
        "(\"backward-compute\"), or write a mapping for your names (docs/formats/kineto-mapping.md)"));
  }

  KinetoProposal::Proposal Write() const {
    std::vector<std::string> known;
    for (const Framework framework : frameworks_) {
      if (framework != Framework::kAny) known.emplace_back(kFrameworks[static_cast<size_t>(framework)]);
    }
    Json comment = Json::array();
    comment.push_back(
        absl::StrCat("proposed from ", seen_.files_.front(),
                     seen_.files_.size() > 1 ? absl::StrCat(" and ", seen_.files_.size() - 1, " more") : "",
                     "; recognised: ", known.empty() ? "nothing" : absl::StrJoin(known, ", ")));
    for (const std::string& sentence : unsure_) comment.push_back(absl::StrCat("unsure: ", sentence));
    Json mapping = {{"comment", std::move(comment)}, {"layout", layout_}};
    if (!steps_.is_null()) mapping["steps"] = steps_;
    mapping["rules"] = rules_;
    return {mapping.dump(2, ' ', false, Json::error_handler_t::replace) + "\n", unsure_};
  }

  const KinetoProposal& seen_;
  std::set<std::string> types_;
  std::set<Framework> frameworks_;
  std::vector<Json> rules_;
  Json steps_;
  Json layout_;
  std::vector<std::string> unsure_;
};

absl::Status KinetoProposal::Read(const std::string& file, ByteSource* source) {
  static const std::set<std::string> kArgs = {kDescription, "Group size"};
  KinetoEvents events(source, kArgs);
  KinetoEvent event;
  for (;;) {
    const absl::StatusOr<bool> more = events.Next(&event);
    if (!more.ok()) return {more.status().code(), absl::StrCat(file, ": ", more.status().message())};
    if (!*more) break;
    if (event.phase == "X" || event.phase == "B") Take(event);
  }
  const KinetoHeader& header = events.header();
  world_size_ = std::max(world_size_, header.world_size.value_or(0));
  for (const auto& [description, size] : header.groups) {
    if (groups_.size() < kMostNames) groups_[description] = std::max(groups_[description], size);
  }
  files_.push_back(file.substr(file.find_last_of('/') + 1));
  return absl::OkStatus();
}

void KinetoProposal::Take(const KinetoEvent& event) {
  const auto key = std::pair(event.category, WithoutNumbers(event.name));
  const auto found = names_.find(key);
  if (found != names_.end()) {
    ++found->second.count;
  } else if (names_.size() < kMostNames && of_category_[event.category] < kMostOfCategory) {
    ++of_category_[event.category];
    names_[key] = {event.name, 1};
  } else {
    left_out_ = true;
  }
  const std::string* const description = event.Arg(kDescription);
  const std::string* const size = event.Arg("Group size");
  int ranks = 0;
  if (description == nullptr || size == nullptr || !absl::SimpleAtoi(*size, &ranks)) return;
  if (groups_.size() < kMostNames) groups_[*description] = std::max(groups_[*description], ranks);
}

absl::StatusOr<KinetoProposal::Proposal> KinetoProposal::Propose(size_t files) const {
  return KinetoRuleFinder(*this).Find(files);
}

}  // namespace c4::traces
