#include "tests/unit/runtime/plan/sample_plans.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "runtime/graph/extent.h"
#include "runtime/graph/operands.h"
#include "tests/support/program_shape.h"

namespace attn::plan::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TensorRole role_of(const graph::BackendGraph& graph, const graph::Tensor& tensor) {
  if (graph::is_written(graph, tensor.uid)) return TensorRole::output;
  if (tensor.name == "q") return TensorRole::query;
  if (tensor.name == "k") return TensorRole::key;
  return tensor.name == "v" ? TensorRole::value : TensorRole::captured;
}

OperandSource random_scalar(Program& program, const std::string& name, Random& random) {
  static const std::vector<double> kValues = {0.0, -0.0, 0.1, -kInfinity, kInfinity, 1e-300, 3e38};
  if (!random.chance(3)) return ConstantOperand{DType::f32, random.pick(kValues)};
  program.params.push_back({"param " + name, DType::f32});
  return ParamOperand{"param " + name};
}

void add_step(Program& program, Random& random) {
  CudnnStep step;
  step.graph = graph::testing::random_graph(random);
  const std::string prefix = std::to_string(program.steps.size()) + '.';
  for (const graph::Tensor& tensor : step.graph.tensors) {
    if (tensor.storage == graph::Storage::virtual_value) continue;
    const std::string name = prefix + std::to_string(tensor.uid) + tensor.name;
    if (tensor.storage == graph::Storage::host_scalar) {
      step.operands.push_back({tensor.uid, random_scalar(program, name, random)});
      continue;
    }
    program.tensors.push_back({name, role_of(step.graph, tensor), tensor.dtype, tensor.dims,
                               tensor.strides, tensor.alignment * (random.chance(2) ? 1 : 4)});
    step.operands.push_back({tensor.uid, TensorOperand{name}});
  }
  program.steps.emplace_back(std::move(step));
}

void add_derive_step(Program& program, Random& random) {
  const std::string name = "made " + std::to_string(program.steps.size());
  const auto size = static_cast<std::int64_t>(1 + random.below(9));
  DeriveStep step = {random.chance(2), {name}, {"q_idx"}, {}, "source\n"};
  if (!step.once && !program.params.empty()) {
    step.inputs.emplace_back(ParamOperand{program.params.back().name});
  }
  program.internals.push_back({name,
                               TensorRole::internal,
                               random.chance(2) ? DType::f32 : DType::i32,
                               {2, size},
                               {size, 1},
                               kInternalAlignment});
  program.steps.emplace_back(std::move(step));
}

std::string random_bytes(Random& random, std::size_t limit) {
  std::string bytes;
  // Runs of equal bytes, so that compression has an effect.
  for (std::size_t i = random.below(limit); i > 0; --i) {
    bytes.append(1 + random.below(9), static_cast<char>(random.bits()));
  }
  return bytes;
}

CompiledStep random_step(Random& random) {
  CompiledStep step;
  step.heuristic = random.chance(2) ? "A" : "FALLBACK";
  step.engine = static_cast<std::int64_t>(random.bits());
  for (std::size_t i = random.below(4); i > 0; --i) {
    step.knobs.push_back(
        {static_cast<std::int64_t>(random.bits()), static_cast<std::int64_t>(random.bits())});
  }
  step.workspace_bytes = static_cast<std::int64_t>(random.bits() >> 4);  // at most 2^60
  step.cudnn_plan = random_bytes(random, 500);
  return step;
}

}  // namespace

Program sample_program() {
  Program program;
  const auto f32 = DType::f32, bf16 = DType::bf16;
  program.tensors = {
      {"q", TensorRole::query, bf16, {2, 4, 3, 8}, {96, 8, 32, 1}, 16},
      {"k", TensorRole::key, bf16, {2, 2, 5, 8}, {80, 8, 16, 1}, 16},
      {"v", TensorRole::value, bf16, {2, 2, 5, 8}, {80, 8, 16, 1}, 16},
      {"o", TensorRole::output, bf16, {2, 4, 3, 8}, {96, 8, 32, 1}, 16},
      {"lse", TensorRole::stats, f32, {2, 4, 3}, {12, 3, 1}, 16},
  };
  program.params = {{"cap", f32}};
  CudnnStep step;
  step.graph = graph::testing::sample_graph();
  step.operands = {{1, TensorOperand{"q"}},
                   {2, TensorOperand{"k"}},
                   {3, ConstantOperand{f32, 0.35355339059327379}},
                   {4, ParamOperand{"cap"}},
                   {5, ConstantOperand{f32, -kInfinity}},
                   {20, TensorOperand{"lse"}},
                   {22, TensorOperand{"v"}},
                   {23, TensorOperand{"o"}}};
  program.steps = {step};
  return program;
}

Plan sample_plan() {
  Plan plan;
  plan.spec_name = "sample";
  plan.spec_text = "attention sample(cap = 50) {\n  # caf\xC3\xA9\n}\n";
  plan.bindings = {{"B", "2"}, {"Sq", "3"}};
  plan.target = {"h200", 90, "{\"deviceVer\": 900}"};
  plan.cudnn_version = 91900;
  plan.program = sample_program();
  plan.compiled = {{"A", 5, {{2, 3}, {24, -1}}, 4096, "{\"kernel\": \"0000000000000000\"}"}};
  plan.shape = attn::testing::shape_of(plan.program);
  plan.strategy = "composite";
  return signed_again(plan);
}

Plan decided_plan() {
  Plan plan = sample_plan();
  plan.shape.padded = {Dim::Sq};
  plan.choice = {{"parts", 0.5, 0.4}, {"composite", 0.75, 0.9}, {"unified", 0.75, {}, "no engine"}};
  plan.strategy = "parts";
  plan.parts = {"rows [0, 2), columns [0, 5): everything", "rows [2, 3), columns [0, 4): \x1b"};
  plan.without = {"reals"};
  return plan;
}

Program like_padding_program() {
  Program program = sample_program();
  for (graph::Node& node : std::get<CudnnStep>(program.steps[0]).graph.nodes) {
    auto* comparison = std::get_if<graph::Pointwise>(&node);
    if (comparison != nullptr && comparison->mode == graph::PointwiseMode::cmp_ge)
      comparison->mode = graph::PointwiseMode::cmp_lt;
  }
  return program;
}

Plan like_padding_plan() {
  Plan plan = sample_plan();
  plan.program = like_padding_program();
  return signed_again(plan);
}

Program kernel_program() {
  Program program = sample_program();
  const TensorMapArgument q{
      .tensor = {"q"}, .dims = {8, 3, 4, 2}, .strides = {32, 8, 96}, .box = {8, 3, 1, 1}};
  program.internals = {
      {"counter", TensorRole::internal, DType::i32, {1}, {1}, kInternalAlignment},
      {"partial", TensorRole::internal, DType::f32, {3, 8}, {8, 1}, kInternalAlignment}};
  KernelStep step;
  step.outputs = {"partial", "o", "lse"};
  step.zeroed = {"counter"};
  step.source = "// first\n// second\n";
  step.launches = {{.kernel = "first",
                    .grid = {6, 4, 1},
                    .block = {128, 1, 1},
                    .cluster = {2, 1, 1},
                    .shared_bytes = 65536,
                    .arguments = {q, TensorOperand{"counter"}, TensorOperand{"partial"},
                                  ConstantOperand{DType::i32, 3}}},
                   {.kernel = "second",
                    .grid = {1, 2, 3},
                    .arguments = {TensorOperand{"partial"}, TensorOperand{"o"},
                                  TensorOperand{"lse"}, ParamOperand{"cap"}}}};
  step.facts = KernelFacts{.launch = 1,
                           .tile = 128,
                           .block = 64,
                           .depth = 8,
                           .width = 8,
                           .groups = 2,
                           .stages = 2,
                           .parts = 3,
                           .items = 24,
                           .gathers = true,
                           .blocks = BlockCounts{.full = 1, .partial = 2, .skipped = 5}};
  program.steps = {step};
  return program;
}

Plan kernel_plan() {
  Plan plan = sample_plan();
  plan.program = kernel_program();
  plan.compiled.clear();
  plan.kernels = {"cubin of first and second"};
  return signed_again(plan);
}

Plan promoting_plan() {
  Plan plan = kernel_plan();
  auto& step = std::get<KernelStep>(plan.program.steps[0]);
  std::get<TensorMapArgument>(step.launches[0].arguments[0]).promotion = 128;
  step.launches[1].overlaps = true;
  plan.choice = {{"native", 0.5},
                 {"composite", 0.4, {}, "no engine", "0123456789abcdef0123456789abcdef"}};
  return signed_again(plan);
}

Program scheduled_program() {
  Program program = sample_program();
  program.tensors.push_back({"lengths_kv", TensorRole::captured, DType::i32, {2}, {1}, 4});
  program.params.push_back({"window", DType::i32});
  const auto internal = [](const char* name, DType dtype, std::int64_t size) {
    return TensorInfo{name, TensorRole::internal, dtype, {size}, {1}, kInternalAlignment};
  };
  program.internals = {internal("schedule", DType::i32, 40 + 4 * 6),
                       internal("options", DType::i32, 12), internal("parts", DType::f32, 4 * 32),
                       internal("turns", DType::i32, 4)};
  KernelStep step;
  step.outputs = {"schedule", "parts", "o", "lse"};
  step.zeroed = {"turns", "options"};
  step.source = "// schedule\n";
  step.launches = {{.kernel = "schedule",
                    .block = {256, 1, 1},
                    .arguments = {TensorOperand{"lengths_kv"}, ParamOperand{"window"},
                                  TensorOperand{"options"}, TensorOperand{"schedule"}}},
                   {.kernel = "scheduled",
                    .grid = {8, 1, 1},
                    .block = {128, 1, 1},
                    .overlaps = true,
                    .arguments = {TensorOperand{"schedule"}, TensorOperand{"parts"},
                                  TensorOperand{"turns"}, TensorOperand{"q"}, TensorOperand{"o"},
                                  TensorOperand{"lse"}, ParamOperand{"cap"}}}};
  step.schedule = Schedule{.tensor = "schedule",
                           .options = "options",
                           .parts = "parts",
                           .slots = 4,
                           .slot_words = 6,
                           .slot_elements = 32,
                           .sequences = 2,
                           .units = 2,
                           .tile_rows = 2,
                           .tile_keys = 2,
                           .shares_keys = true};
  program.steps = {step};
  return program;
}

Plan scheduled_plan() {
  Plan plan = kernel_plan();
  plan.program = scheduled_program();
  plan.kernels = {"cubin of both"};
  return signed_again(plan);
}

Program quantized_program() {
  Program program = sample_program();
  auto& step = std::get<CudnnStep>(program.steps[0]);
  const auto narrow = [](auto& tensor) {
    if (tensor.dtype == DType::bf16) tensor.dtype = DType::e4m3;
  };
  std::ranges::for_each(program.tensors, narrow);
  std::ranges::for_each(step.graph.tensors, narrow);
  program.tensors.push_back({"descale_q", TensorRole::captured, DType::f32, {1}, {1}, 4});
  program.tensors.push_back({"amax_s", TensorRole::amax, DType::f32, {1}, {1}, 4});
  constexpr graph::Uid kScores = 6, kScale = 24, kScaled = 25, kLargest = 26;
  const std::vector<std::int64_t> one(4, 1);
  step.graph.tensors.push_back(
      {kScale, "descale_q", DType::f32, one, one, graph::Storage::device, 4, {}});
  const graph::Tensor scores = *step.graph.find(kScores);
  step.graph.tensors.push_back({kScaled,
                                "",
                                DType::f32,
                                scores.dims,
                                scores.strides,
                                graph::Storage::virtual_value,
                                16,
                                {}});
  step.graph.tensors.push_back(
      {kLargest, "amax_s", DType::f32, one, one, graph::Storage::device, 4, {}});
  graph::Pointwise scale;
  scale.mode = graph::PointwiseMode::mul;
  scale.x = kScores;
  scale.b = kScale;
  scale.y = kScaled;
  step.graph.nodes.emplace_back(scale);
  step.graph.nodes.emplace_back(
      graph::Reduction{graph::ReduceOp::amax, DType::f32, kScaled, kLargest, {}});
  step.operands.push_back({kScale, TensorOperand{"descale_q"}});
  step.operands.push_back({kLargest, TensorOperand{"amax_s"}});
  return program;
}

Plan quantized_plan() {
  Plan plan = sample_plan();
  plan.program = quantized_program();
  return signed_again(plan);
}

Program looping_program() {
  Program program = sample_program();
  const auto internal = [&](const char* name, DType dtype, std::vector<std::int64_t> dims) {
    const std::vector<std::int64_t> strides = row_major_strides(dims);
    program.internals.push_back(
        {name, TensorRole::internal, dtype, std::move(dims), strides, kInternalAlignment});
  };
  internal("rows", DType::bf16, {3, 8, 8});
  internal("tile", DType::f32, {8, 8});
  internal("sum", DType::f32, {8});
  internal("first", DType::i64, {3});
  CudnnStep product;
  for (const auto& [uid, name, dtype] :
       {std::tuple(graph::Uid{1}, "a", DType::bf16), std::tuple(graph::Uid{2}, "b", DType::bf16),
        std::tuple(graph::Uid{3}, "c", DType::f32)}) {
    product.graph.tensors.push_back(
        {uid, name, dtype, {1, 8, 8}, {64, 8, 1}, graph::Storage::device, 16, {}});
  }
  graph::Matmul matmul;
  matmul.a = 1;
  matmul.b = 2;
  matmul.c = 3;
  product.graph.nodes.emplace_back(matmul);
  product.operands = {{1, TensorOperand{"rows", 0, 64}},
                      {2, TensorOperand{"rows", 64}},
                      {3, TensorOperand{"tile"}}};
  product.turns = 3;
  DeriveStep first{true, {"first"}, {"i"}, {}, "source"};
  DeriveStep begin{false, {"rows", "sum"}, {"x", "0"}, {TensorOperand{"q"}}, "source"};
  DeriveStep add{false, {"sum"}, {"more"}, {TensorOperand{"tile"}}, "source", 8};
  add.inputs.emplace_back(TensorOperand{"first", 0, 1});
  add.inputs.emplace_back(TensorOperand{"sum"});
  add.turns = 3;
  const DeriveStep end{false, {"o"}, {"o + sum"}, {TensorOperand{"sum"}}, "source", 8};
  for (Step step : {Step(first), Step(begin), Step(product), Step(add), Step(end)}) {
    program.steps.push_back(std::move(step));
  }
  return program;
}

Plan looping_plan() {
  Plan plan = sample_plan();
  plan.program = looping_program();
  plan.compiled.push_back(plan.compiled.front());
  plan.kernels = {"cubin of first", "cubin of begin", "cubin of add", "cubin of end"};
  return signed_again(plan);
}

// The graph cannot take another operand, so the cuDNN step does not read them: steps need not read
// everything that is computed.
Program derived_program() {
  Program program = sample_program();
  const auto internal = TensorRole::internal;
  program.tensors.push_back({"table", TensorRole::captured, DType::f32, {7}, {1}, 16});
  program.internals = {{"places", internal, DType::i32, {3}, {1}, kInternalAlignment},
                       {"bias", internal, DType::f32, {2, 5}, {5, 1}, kInternalAlignment}};
  const DeriveStep once = {true, {"places"}, {"q_idx // 2"}, {}, "// places\n"};
  const DeriveStep each = {false,
                           {"bias"},
                           {"table[q_idx // 2] * cap"},
                           {TensorOperand{"table"}, TensorOperand{"places"}, ParamOperand{"cap"}},
                           "// bias\nline two\n"};
  program.steps = {once, each, program.steps[0]};
  program.check = {{{"table[q_idx // 2]", "an index is outside the tensor"}},
                   {TensorOperand{"table"}, ParamOperand{"cap"}},
                   3,
                   {1, 1, 3, 5},
                   "// check\n"};
  return program;
}

Plan derived_plan() {
  Plan plan = sample_plan();
  plan.program = derived_program();
  plan.nvrtc_version = "13.0";
  plan.kernels = {"cubin one", std::string("cubin\0two", 9), "cubin of the check"};
  return signed_again(plan);
}

Program controlled_program() {
  const auto f16 = DType::f16;
  const auto control = TensorRole::control;
  Program program;
  program.tensors = {
      {"q", TensorRole::query, f16, {2, 2, 3, 8}, {48, 24, 8, 1}, 16, "cu_seqlens_q"},
      {"k", TensorRole::key, f16, {4, 2, 4, 8}, {64, 32, 8, 1}, 16, "page_table"},
      {"v", TensorRole::value, f16, {2, 2, 5, 8}, {80, 40, 8, 1}},
      {"lengths_kv", TensorRole::captured, DType::i32, {2}, {1}},
      {"cu_seqlens_q", control, DType::i32, {3}, {1}, 4},
      {"page_table", control, DType::i32, {2, 2}, {2, 1}},
      {"seed", control, DType::i64, {1}, {1}},
      {"offset", control, DType::i64, {1}, {1}},
      {"o", TensorRole::output, f16, {2, 2, 3, 8}, {48, 24, 8, 1}, 16, "cu_seqlens_q"}};
  DeriveStep derive{
      false, {}, {"", "", ""}, {TensorOperand{"cu_seqlens_q"}}, "// offsets of q and o, lengths\n"};
  CudnnStep step;
  step.graph = graph::testing::controlled_graph();
  const auto internal = [&](const char* name, DType dtype, std::int64_t extent) {
    program.internals.push_back(
        {name, TensorRole::internal, dtype, {extent}, {1}, kInternalAlignment});
    derive.outputs.emplace_back(name);
  };
  internal("offsets_q", DType::i32, 3);
  internal("lengths_q", DType::i32, 2);
  internal("offsets_o", DType::i64, 3);
  for (const graph::Tensor& tensor : step.graph.tensors) {
    if (tensor.storage != graph::Storage::device) continue;
    step.operands.push_back({tensor.uid, TensorOperand{tensor.name}});
  }
  program.steps = {derive, step};
  return program;
}

Plan controlled_plan() {
  Plan plan = sample_plan();
  plan.program = controlled_program();
  plan.shape = attn::testing::shape_of(plan.program);
  plan.kernels = {"cubin"};
  return signed_again(plan);
}

Program bound_program() {
  const auto f16 = DType::f16;
  const auto control = TensorRole::control;
  Program program;
  program.tensors = {
      {"q", TensorRole::query, f16, {2, 2, 1, 8}, {16, 8, 16, 1}, 16, "cu_seqlens_q", true},
      {"k", TensorRole::key, f16, {4, 2, 4, 8}, {64, 32, 8, 1}, 16, "page_table", true},
      {"v", TensorRole::value, f16, {4, 2, 4, 8}, {64, 32, 8, 1}, 16, "page_table", true},
      {"cu_seqlens_q", control, DType::i32, {3}, {1}, 4},
      {"page_table", control, DType::i32, {2, 2}, {2, 1}, 4, "", true},
      {"o", TensorRole::output, f16, {2, 2, 1, 8}, {16, 8, 16, 1}, 16, "cu_seqlens_q", true}};
  const TensorMapArgument k{.tensor = {"k"},
                            .dims = {8, 4, 2, 4},
                            .strides = {1, 1, 1},
                            .box = {8, 4, 1, 1},
                            .axes = {2, 1, 0}};
  const TensorMapArgument q{.tensor = {"q"},
                            .dims = {8, 2, 1, 1},
                            .strides = {1, 16, 16},
                            .box = {8, 2, 1, 1},
                            .axes = {1, TensorMapArgument::kNoAxis, TensorMapArgument::kNoAxis}};
  KernelStep step;
  step.outputs = {"o"};
  step.source = "// bound\n";
  step.launches = {
      {.kernel = "bound",
       .arguments = {q, StrideArgument{"q", 2}, k, TensorOperand{"v"}, StrideArgument{"v", 0},
                     TensorOperand{"page_table"}, StrideArgument{"page_table", 0},
                     TensorOperand{"o"}, StrideArgument{"o", 1}}}};
  program.steps = {step};
  return program;
}

Program stepped_program() {
  Program program = bound_program();
  auto& arguments = std::get<KernelStep>(program.steps[0]).launches[0].arguments;
  auto& map = std::get<TensorMapArgument>(arguments[2]);
  map.dims = {8, 4, 1};
  map.strides = {1, 1};
  map.box = {8, 1, 1};
  map.axes = {2, TensorMapArgument::kPagesAndHeads};
  arguments.emplace_back(StrideArgument{"k", 0, true});
  return program;
}

Plan bound_plan() {
  Plan plan = kernel_plan();
  plan.program = bound_program();
  plan.shape = attn::testing::shape_of(plan.program);
  return signed_again(plan);
}

// The steps are those of the sample, so they compute no real gradient.
Program backward_program() {
  Program program = sample_program();
  TensorInfo lse = program.tensors[4], o = program.tensors[3], rows = lse;
  lse.role = o.role = TensorRole::saved;
  TensorInfo cotangent = o, gradient = o;
  cotangent.name = "do";
  cotangent.role = TensorRole::cotangent;
  gradient.name = "dq";
  gradient.role = TensorRole::gradient;
  rows.name = "rows";
  rows.role = TensorRole::internal;
  rows.alignment = kInternalAlignment;
  program.tensors.resize(3);
  program.tensors.insert(program.tensors.end(), {o, lse, cotangent, gradient});
  program.internals = {rows};
  for (Operand& operand : std::get<CudnnStep>(program.steps[0]).operands) {
    if (operand.source == OperandSource(TensorOperand{"lse"}))
      operand.source = TensorOperand{"rows"};
    if (operand.source == OperandSource(TensorOperand{"o"})) operand.source = TensorOperand{"dq"};
  }
  return program;
}

Plan backward_plan() {
  Plan plan = sample_plan();
  plan.program = backward_program();
  plan.compiled[0].cudnn_plan = "{\"kernel\": \"2222222222222222\"}";
  return signed_again(plan);
}

Bundle sample_pair() { return {{derived_plan(), backward_plan()}}; }

std::vector<Plan> sample_plans() {
  return {sample_plan(),     decided_plan(), like_padding_plan(), derived_plan(),
          looping_plan(),    kernel_plan(),  promoting_plan(),    quantized_plan(),
          controlled_plan(), bound_plan(),   backward_plan(),     scheduled_plan()};
}

Program random_program(Random& random) {
  Program program;
  for (std::size_t i = 1 + random.below(3); i > 0; --i) {
    if (random.chance(3)) add_derive_step(program, random);
    add_step(program, random);
  }
  return program;
}

Plan random_plan(Random& random) {
  Plan plan;
  plan.spec_name = random_bytes(random, 8);
  plan.spec_text = random_bytes(random, 100);
  for (std::size_t i = random.below(4); i > 0; --i) {
    plan.bindings.emplace(random_bytes(random, 8), random_bytes(random, 8));
  }
  plan.target = {random_bytes(random, 8), static_cast<std::int64_t>(random.bits()),
                 random_bytes(random, 60)};
  plan.cudnn_version = static_cast<std::int64_t>(random.bits());
  plan.program = random_program(random);
  plan.shape = attn::testing::shape_of(plan.program);
  plan.strategy = random_bytes(random, 8);
  for (const Step& step : plan.program.steps) {
    if (std::holds_alternative<CudnnStep>(step)) {
      plan.compiled.push_back(random_step(random));
    } else {
      plan.kernels.push_back(random_bytes(random, 500));
    }
  }
  return signed_again(plan);
}

Plan signed_again(Plan plan) {
  plan.signature = signature_of(plan);
  return plan;
}

namespace {

std::uint64_t number_at(const std::string& bytes, std::size_t offset, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[offset + i]);
  }
  return value;
}

void put_hash(std::string& bytes, std::size_t offset, const Hash128& hash) {
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[offset + i] = static_cast<char>(hash.high >> (8 * i));
    bytes[offset + 8 + i] = static_cast<char>(hash.low >> (8 * i));
  }
}

}  // namespace

std::string resealed(std::string bytes) {
  constexpr std::size_t kBlock = 64;  // of the header, and of an entry of the table
  if (bytes.size() < kBlock) return bytes;
  const std::size_t room = bytes.size() / kBlock - 1;
  const std::size_t sections = std::min<std::size_t>(number_at(bytes, 12, 4), room);
  for (std::size_t entry = kBlock; entry < kBlock * (sections + 1); entry += kBlock) {
    const std::size_t offset = number_at(bytes, entry + 8, 8);
    const std::size_t length = number_at(bytes, entry + 16, 8);
    if (offset > bytes.size() || length > bytes.size() - offset) continue;
    put_hash(bytes, entry + 48, hash128(std::string_view(bytes).substr(offset, length)));
  }
  put_hash(bytes, 32, hash128(std::string_view(bytes).substr(kBlock, kBlock * sections)));
  put_hash(bytes, 48, hash128(std::string_view(bytes).substr(0, 48)));
  return bytes;
}

}  // namespace attn::plan::testing
