// Attentions of several ranks, which are threads that share one GPU: compiled for it, and compared
// with the reference. The program needs no other files: it may be copied to a machine with a GPU.
#include "tools/ranks.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "compiler/driver/ranks/compile_ranks.h"
#include "runtime/execute/executable_cache.h"
#include "runtime/graph/extent.h"
#include "runtime/ranks/distributed.h"
#include "runtime/ranks/kernels.h"
#include "runtime/ranks/program_json.h"
#include "tests/gpu/gpu_test.h"
#include "tests/support/local_transport.h"
#include "tools/compare.h"
#include "tools/inputs.h"
#include "tools/target_option.h"

namespace attn::testing {
namespace {

using plan::Direction;
using ranks::Divided;
using ranks::Intervals;

struct Case {
  const char* name;
  const char* clauses;
  const char* lowering = "auto";
  std::size_t most_parts = 40;  // compiling the plans of more takes minutes
};

void PrintTo(const Case& what, std::ostream* out) { *out << what.name; }

const Case kCases[] = {
    {"full", "dims B = 1, Hq = 4, Hkv = 4, Sq = 512, Skv = 512, D = 64;"},
    {"causal",
     "dims B = 1, Hq = 4, Hkv = 2, Sq = 1024, Skv = 1024, D = 128; mask q_idx >= kv_idx;"},
    {"causal_two_batches",
     "dims B = 2, Hq = 4, Hkv = 2, Sq = 640, Skv = 640, D = 64; mask q_idx >= kv_idx;"},
    {"causal_heads",
     "dims B = 1, Hq = 8, Hkv = 8, Sq = 512, Skv = 512, D = 64; shard heads; mask q_idx >= "
     "kv_idx;"},
    {"causal_both",
     "dims B = 2, Hq = 8, Hkv = 4, Sq = 768, Skv = 768, D = 64; shard both; mask q_idx >= kv_idx;"},
    {"causal_sequence_f16",
     "dims B = 1, Hq = 8, Hkv = 8, Sq = 768, Skv = 768, D = 64; dtype f16; shard sequence; "
     "mask q_idx >= kv_idx;"},
    {"window",
     "dims B = 1, Hq = 4, Hkv = 2, Sq = 2048, Skv = 2048, D = 128; "
     "mask q_idx >= kv_idx && q_idx - kv_idx < 200;"},
    {"window_bhsd",
     "dims B = 2, Hq = 4, Hkv = 4, Sq = 1024, Skv = 1024, D = 64; "
     "mask abs(q_idx - kv_idx) < 100;"},
    {"prefix",
     "dims B = 1, Hq = 4, Sq = 768, Skv = 768, D = 64; mask q_idx >= kv_idx || kv_idx < 150;"},
    {"documents",
     "dims B = 1, Hq = 4, Hkv = 2, Sq = 1024, Skv = 1024, D = 64; "
     "tensor doc: i32[Skv] = i0 // 97; mask doc[q_idx] == doc[kv_idx] && q_idx >= kv_idx;"},
    // Half of the ranks exchange nothing.
    {"documents_apart",
     "dims B = 1, Hq = 4, Hkv = 2, Sq = 1024, Skv = 1024, D = 64; shard sequence; "
     "mask q_idx // 256 == kv_idx // 256 || (q_idx >= 512 && kv_idx >= 512);"},
    {"softcap",
     "dims B = 1, Hq = 4, Sq = 600, Skv = 600, D = 64; score 30.0 * tanh(score / 30.0); "
     "mask q_idx >= kv_idx;"},
    {"sink",
     "dims B = 2, Hq = 6, Hkv = 2, Sq = 512, Skv = 512, D = 64; learn s: f32[Hq]; sink s[h]; "
     "mask q_idx >= kv_idx && q_idx - kv_idx < 130;"},
    {"alibi",
     "dims B = 1, Hq = 8, Sq = 512, Skv = 512, D = 64; "
     "score score + exp2(-8 * (h + 1) / Hq) * (kv_idx - q_idx); "
     "mask q_idx >= kv_idx;"},
    {"longformer",
     "dims B = 1, Hq = 4, Sq = 2048, Skv = 2048, D = 64; "
     "mask abs(q_idx - kv_idx) <= 64 || kv_idx < 16 || q_idx < 16;"},
    {"bigbird",
     "dims B = 1, Hq = 4, Sq = 1024, Skv = 1024, D = 64; "
     "mask abs(q_idx // 64 - kv_idx // 64) <= 1 || kv_idx // 64 == 0 || q_idx // 64 == 0 "
     "|| (q_idx // 64 * 7 + kv_idx // 64 * 3) % 11 == 0;"},
    // The reference draws the numbers of attnc's kernels.
    {"dropout",
     "dims B = 2, Hq = 4, Hkv = 2, Sq = 512, Skv = 512, D = 64; shard sequence; dropout 0.3; "
     "mask q_idx >= kv_idx;",
     "native"},
    {"dropout_heads",
     "dims B = 1, Hq = 8, Hkv = 8, Sq = 320, Skv = 320, D = 64; shard heads; dropout 0.3;",
     "native"},
    {"gqa_5", "dims B = 1, Hq = 10, Hkv = 2, Sq = 512, Skv = 512, D = 64; mask q_idx >= kv_idx;"},
    {"lengths",
     "dims B = 3, Hq = 4, Hkv = 2, Sq = 400, Skv = 512, D = 64; "
     "lengths q = [400, 0, 123], kv = [512, 300, 1];"},
    {"lengths_and_sink",
     "dims B = 2, Hq = 4, Hkv = 4, Sq = 256, Skv = 256, D = 64; "
     "lengths q = [256, 100], kv = [100, 256]; tensor s: f32[Hq]; sink s[h];"},
    {"sigmoid",
     "dims B = 1, Hq = 4, Sq = 384, Skv = 512, D = 64; normalize sigmoid; "
     "score score - 6.0; mask q_idx + Skv - Sq >= kv_idx;"},
    {"learned_bias",
     "dims B = 1, Hq = 4, Sq = 256, Skv = 320, D = 64; learn t: bf16[Hq, Sq, Skv]; "
     "score score + t[h, q_idx, kv_idx];",
     "auto", 24},
    {"learned_table",
     "dims B = 2, Hq = 4, Sq = 320, Skv = 320, D = 64; learn t: f32[Hq, 2 * Skv - 1]; "
     "score score + t[h, q_idx - kv_idx + Skv - 1]; mask q_idx >= kv_idx;"},
    {"cross", "dims B = 2, Hq = 8, Hkv = 2, Sq = 100, Skv = 2000, D = 64;"},
    {"odd_sizes",
     "dims B = 1, Hq = 5, Hkv = 5, Sq = 777, Skv = 1001, D = 40; "
     "mask q_idx + Skv - Sq >= kv_idx;"},
    {"widths", "dims B = 1, Hq = 4, Hkv = 2, Sq = 300, Skv = 300, Dqk = 96, Dv = 64;"},
    {"decode", "dims B = 2, Hq = 8, Hkv = 2, Sq = 3, Skv = 4000, D = 128;"},
};

constexpr int kRanks[] = {1, 2, 3, 4, 8};

struct Compiled {
  tools::Spec spec;
  plan::Family family;
};

Result<tools::Spec> read(const Case& given) {
  auto source = std::make_shared<const support::Source>(
      "ranks.attn", fmt::format("attention a {{ {} }}", given.clauses));
  tools::SpecOutcome outcome = tools::analyze_spec(source, {}, tools::Format::text);
  if (!outcome.spec) return Error{ErrorCode::invalid_spec, "the spec has errors"};
  return std::move(*outcome.spec);
}

sharding::Sharding any_sharding(const driver::Sharded& sharded, const Case& given) {
  const int ranks = sharded.choice.sharding.ranks;
  const auto all = sharding::shardings(sharded.attention, ranks, sharded.map);
  std::size_t turn = std::strlen(given.clauses) * 7;
  const auto parts = [&](const sharding::Sharding& sharding) {
    std::size_t count = 0;
    for (int team = 0; team < sharding.teams(); ++team) {
      count += sharding::parts_of(sharding, team, sharded.map, sharded.attention.sink.has_value())
                   .size();
    }
    return count;
  };
  for (std::size_t i = 0; i < all.size(); ++i, ++turn) {
    if (parts(all[turn % all.size()]) <= given.most_parts) return all[turn % all.size()];
  }
  throw std::runtime_error("all shardings have too many parts");
}

// Forward and backward.
Result<Compiled> compile(const Case& given, tools::Spec spec, int count) {
  tools::RankOptions options;
  options.ranks = count;
  ATTN_ASSIGN(const auto sharded, tools::shard(spec, options, tools::kDefaultTarget));
  // Small sizes would all be divided alike.
  if (count == 3 || count == 4) sharded->choice.sharding = any_sharding(*sharded, given);
  driver::RanksOptions how_to_compile{.both = true, .split = true};
  driver::CompileOptions& how = how_to_compile.how;
  how.lowering = given.lowering;
  ATTN_ASSIGN(how.target, tools::native_target(""));
  how.worker = tools::worker_options("");
  ATTN_ASSIGN(const auto compiled, driver::compile_ranks(spec.attention, *spec.source,
                                                         spec.bindings, *sharded, how_to_compile));
  plan::Family family{driver::bundle_of(compiled.plans), ranks::to_json(compiled.division),
                      compiled.kernels};
  return Compiled{std::move(spec), std::move(family)};
}

// Where the rows of [B, H, indices, ..] of a rank are in the whole tensor.
template <typename Move>
void for_rows(const std::vector<std::int64_t>& dims, const Intervals& home, const Move& move) {
  const std::int64_t width = dims.size() > 3 ? dims[3] : 1;
  const std::vector<std::int64_t> numbers = ranks::numbers(home);
  for (std::int64_t outer = 0; outer < dims[0] * dims[1]; ++outer) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      move((outer * dims[2] + numbers[i]) * width,
           (outer * static_cast<std::int64_t>(numbers.size()) + static_cast<std::int64_t>(i)) *
               width,
           width);
    }
  }
}

// One rank, in a thread of its own.
class Rank {
 public:
  Rank(const cuda::Device& device, const Compiled& compiled, const reference::Inputs& inputs,
       std::shared_ptr<LocalGroup> group, int rank)
      : device_(device),
        compiled_(compiled),
        inputs_(inputs),
        group_(std::move(group)),
        rank_(rank) {}

  Status run(bool other_strides) {
    ATTN_ASSIGN(auto runtime, execute::Runtime::open());
    execute::ExecutableCache executables(runtime);
    ATTN_ASSIGN(const ranks::Distributed opened,
                ranks::Distributed::open(executables, compiled_.family,
                                         std::make_unique<LocalTransport>(group_, rank_, device_)));
    ATTN_RETURN_IF_ERROR(run_direction(opened, Direction::forward, other_strides));
    if (opened.has(Direction::backward))
      ATTN_RETURN_IF_ERROR(run_direction(opened, Direction::backward, other_strides));
    return {};
  }

  // Results of this rank, in logical order.
  const std::map<std::string, io::HostTensor>& results() const { return results_; }
  // Outputs whose bits were others in a later execute.
  const std::vector<std::string>& unsteady() const { return unsteady_; }

 private:
  Status run_direction(const ranks::Distributed& opened, Direction direction, bool other_strides) {
    const auto& whole =
        direction == Direction::forward ? opened.division().forward : opened.division().backward;
    plan::Program bound;
    for (plan::TensorInfo tensor : opened.tensors(direction)) {
      if (std::ranges::find(tensor.dims, 0) != tensor.dims.end()) continue;
      const auto about = std::ranges::find(whole, tensor.name, &ranks::WholeTensor::name);
      if (other_strides && about->divided != Divided::no)
        tensor.strides = row_major_strides(tensor.dims);  // bhsd
      bound.tensors.push_back(tensor);
    }
    ATTN_ASSIGN(execute::DeviceTensors tensors, execute::DeviceTensors::allocate(device_, bound));
    for (const plan::TensorInfo& tensor : bound.tensors) {
      if (tensor.is_output()) continue;
      const auto about = std::ranges::find(whole, tensor.name, &ranks::WholeTensor::name);
      ATTN_RETURN_IF_ERROR(upload(tensors, opened.program(), *about));
    }
    execute::Arguments arguments = tensors.arguments();
    for (const plan::ParamInfo& param : opened.params(direction))
      arguments.scalar(param.name, param.dtype, inputs_.params.at(param.name));
    ATTN_ASSIGN(ranks::DistributedBinding binding, opened.bind(direction, arguments));
    ATTN_ASSIGN(const cuda::Stream stream, cuda::Stream::create(device_));
    constexpr int kRuns = 3;
    std::map<std::string, std::vector<std::byte>> first;
    for (int run = 0; run < kRuns; ++run) {
      for (const plan::TensorInfo& tensor : bound.tensors) {
        if (tensor.is_output()) ATTN_RETURN_IF_ERROR(tensors.fill(tensor.name, 0xff));
      }
      ATTN_RETURN_IF_ERROR(binding.execute(stream.handle()));
      ATTN_RETURN_IF_ERROR(stream.synchronize());
      ATTN_RETURN_IF_ERROR(opened.status());
      for (const plan::TensorInfo& tensor : bound.tensors) {
        if (!tensor.is_output()) continue;
        ATTN_ASSIGN(auto bytes, tensors.download_bytes(tensor.name));
        // Gradients are sums in no fixed order.
        const bool is_ordered = direction == Direction::forward;
        if (run > 0 && is_ordered && bytes != first[tensor.name]) unsteady_.push_back(tensor.name);

        if (run == 0) first[tensor.name] = std::move(bytes);
        ATTN_ASSIGN(results_[tensor.name], tensors.download(tensor.name));
      }
    }
    return {};
  }

  Status upload(execute::DeviceTensors& tensors, const ranks::Program& program,
                const ranks::WholeTensor& whole) const {
    if (const auto made = results_.find(whole.name); made != results_.end())
      return tensors.upload(whole.name, made->second);  // o and lse in the backward
    const auto found = inputs_.tensors.find(whole.name);
    const auto scalar = inputs_.params.find(whole.name);  // seed and offset
    if (scalar != inputs_.params.end())
      return tensors.upload(whole.name, {whole.dtype, whole.dims, {scalar->second}});
    if (found == inputs_.tensors.end())
      return Status(ErrorCode::invalid_argument, "there is no value of " + whole.name);
    if (whole.divided == Divided::no) return tensors.upload(whole.name, found->second);
    const Intervals& home = whole.divided == Divided::rows ? program.rows : program.keys;
    io::HostTensor part{found->second.dtype, whole.dims, {}};
    part.dims[2] = ranks::count(home);
    part.values.resize(static_cast<std::size_t>(io::element_count(part.dims)));
    for_rows(whole.dims, home, [&](std::int64_t from, std::int64_t to, std::int64_t width) {
      std::copy_n(found->second.values.begin() + from, width, part.values.begin() + to);
    });
    return tensors.upload(whole.name, part);
  }

  const cuda::Device& device_;
  const Compiled& compiled_;
  const reference::Inputs& inputs_;
  std::shared_ptr<LocalGroup> group_;
  const int rank_;
  std::map<std::string, io::HostTensor> results_;
  std::vector<std::string> unsteady_;
};

// Whole tensors from those of ranks. Empty after an error, which fails the test.
tools::Outputs run_all(const cuda::Device& device, const Compiled& compiled,
                       const reference::Inputs& inputs, int count, bool other_strides) {
  auto group = std::make_shared<LocalGroup>(count);
  std::vector<Rank> all;
  for (int rank = 0; rank < count; ++rank) all.emplace_back(device, compiled, inputs, group, rank);
  std::vector<Status> statuses(all.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < all.size(); ++i)
    threads.emplace_back([&, i] { statuses[i] = all[i].run(other_strides); });
  for (std::thread& thread : threads) thread.join();
  bool good = true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    good = good && statuses[i].ok();
    EXPECT_TRUE(statuses[i].ok()) << "rank " << i << ": " << statuses[i].error().to_text();
    EXPECT_THAT(all[i].unsteady(), ::testing::IsEmpty()) << "rank " << i << ", other bits";
  }
  if (!good) return {};
  const ranks::Division division = ranks::parse(compiled.family.ranks).value();
  tools::Outputs outputs;
  for (const auto* list : {&division.forward, &division.backward}) {
    for (const ranks::WholeTensor& whole : *list) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        const auto found = all[i].results().find(whole.name);
        if (found == all[i].results().end()) continue;
        io::HostTensor& output = outputs[whole.name];
        if (whole.divided == Divided::no) {
          output = found->second;
          continue;
        }
        output.dims = whole.dims;
        output.values.resize(static_cast<std::size_t>(io::element_count(whole.dims)), NAN);
        const Intervals& home =
            whole.divided == Divided::rows ? division.ranks[i].rows : division.ranks[i].keys;
        for_rows(whole.dims, home, [&](std::int64_t to, std::int64_t from, std::int64_t width) {
          std::copy_n(found->second.values.begin() + from, width, output.values.begin() + to);
        });
      }
    }
  }
  return outputs;
}

// The first elements that differ.
std::string first_differences(const io::HostTensor& found, const io::HostTensor& right) {
  std::string text;
  int listed = 0;
  for (std::size_t i = 0; i < right.values.size() && listed < 5; ++i) {
    const double x = found.values[i], r = right.values[i];
    if (x == r || std::abs(x - r) <= 0.05 * std::max(1.0, std::abs(r))) continue;
    std::string place;
    std::size_t left = i;
    for (std::size_t axis = right.dims.size(); axis-- > 0;) {
      place = std::to_string(left % static_cast<std::size_t>(right.dims[axis])) +
              (place.empty() ? "" : ", ") + place;
      left /= static_cast<std::size_t>(right.dims[axis]);
    }
    text += "\n    [" + place + "]: " + std::to_string(x) + ", not " + std::to_string(r);
    ++listed;
  }
  return text;
}

class RanksOnDevice : public GpuTest,
                      public ::testing::WithParamInterface<std::tuple<Case, int>> {};

TEST_P(RanksOnDevice, AgreesWithTheReference) {
  const auto& [which, count] = GetParam();
  auto spec = read(which);
  ASSERT_TRUE(spec.ok()) << spec.error().to_text();
  const Status divides = sharding::check_shardable(spec->attention, count);
  if (!divides.ok()) {
    ASSERT_TRUE(spec->attention.shard) << divides.error().to_text();
    GTEST_SKIP() << "its `shard` clause does not allow it: " << divides.error().to_text();
  }
  const auto compiled = compile(which, std::move(*spec), count);
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_text();
  const ir::Attention& attention = compiled->spec.attention;
  const auto division = ranks::parse(compiled->family.ranks, 0);
  ASSERT_TRUE(division.ok()) << division.error().to_text();
  std::printf("  %s\n", division->sharding.c_str());
  const bool backward = !division->backward.empty();
  auto made = tools::make_inputs(attention, {}, tools::Missing::pattern,
                                 backward ? tools::Needs::gradients : tools::Needs::forward);
  ASSERT_TRUE(made.ok()) << made.error().to_text();
  const reference::Inputs& inputs = made->values;

  tools::ReferenceGradients right;
  if (backward) {
    auto found = tools::run_reference_gradients(attention, inputs, true, {.sizes = true});
    ASSERT_TRUE(found.ok()) << found.error().to_text();
    right = std::move(*found);
  } else {
    auto found = tools::run_reference(attention, inputs, {});
    ASSERT_TRUE(found.ok()) << found.error().to_text();
    right.outputs = std::move(*found);
  }
  for (const bool other_strides : {false, true}) {
    SCOPED_TRACE(other_strides ? "bhsd" : "bshd");
    const tools::Outputs outputs = run_all(device(), *compiled, inputs, count, other_strides);
    if (outputs.empty()) return;
    for (const tools::Comparison& each :
         tools::compare(outputs, right.outputs, tools::Types(attention), right.sizes)) {
      std::printf("  %-8s %s %.2e (bound %.2e)\n", each.name.c_str(), each.measure.c_str(),
                  each.measure == "max abs" ? each.max_abs : each.relative_l2, each.bound);
      EXPECT_TRUE(each.agrees()) << each.name << ": " << each.why
                                 << first_differences(outputs.at(each.name),
                                                      right.outputs.at(each.name));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, RanksOnDevice,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(kRanks)),
                         [](const auto& given) {
                           return std::string(std::get<0>(given.param).name) + "_" +
                                  std::to_string(std::get<1>(given.param));
                         });

}  // namespace
}  // namespace attn::testing
