// Runs backwards of parts of an attention on the host, each with its own keys and with o and lse of
// all, and compares what they add up to with the reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/driver/driver.h"
#include "compiler/sharding/part_attention.h"
#include "tests/host/machine.h"
#include "tools/compare.h"
#include "tools/inputs.h"
#include "tools/placement.h"
#include "tools/spec.h"

namespace attn::host {
namespace {

using ir::Dim;

// Elements [begin, end) of axis 2 of [B,H,S,..].
struct Rows {
  std::int64_t begin = 0, end = 0;
};

// Calls visit(place in the whole tensor, place in its rows).
template <typename Visit>
void visit_rows(const std::vector<std::int64_t>& dims, Rows rows, const Visit& visit) {
  const std::int64_t width = dims.size() > 3 ? dims[3] : 1;
  std::size_t i = 0;
  for (std::int64_t outer = 0; outer < dims[0] * dims[1]; ++outer) {
    const std::int64_t first = outer * dims[2];
    for (std::int64_t at = (first + rows.begin) * width; at < (first + rows.end) * width; ++at)
      visit(static_cast<std::size_t>(at), i++);
  }
}

io::HostTensor taken(const io::HostTensor& whole, Rows rows) {
  io::HostTensor some{whole.dtype, whole.dims, {}};
  some.dims[2] = rows.end - rows.begin;
  some.values.resize(static_cast<std::size_t>(io::element_count(some.dims)));
  visit_rows(whole.dims, rows,
             [&](std::size_t from, std::size_t to) { some.values[to] = whole.values[from]; });
  return some;
}

class Divided {
 public:
  explicit Divided(const std::string& text) {
    auto source = std::make_shared<const support::Source>("partial", text);
    tools::SpecOutcome outcome = tools::analyze_spec(source, {}, tools::Format::text);
    if (!outcome.spec) throw std::runtime_error(text);
    attention_ = driver::training_forward(outcome.spec->attention);
    inputs_ =
        value(tools::make_inputs(attention_, {}, tools::Missing::pattern, tools::Needs::gradients))
            .values;
    reference::Options options;
    options.sizes = true;
    expected_ = value(tools::run_reference_gradients(attention_, inputs_, true, options));
    for (const char* name : {"o", "lse"}) inputs_.tensors[name] = expected_.outputs.at(name);
  }

  void add(Rows rows, Rows keys) {
    sharding::Part part;
    part.rows = {{rows.begin, rows.end}};
    part.keys = {{keys.begin, keys.end}};
    part.sink = keys.begin == 0;
    parts_.push_back(
        {rows, keys,
         sharding::part_attention(attention_, part, {0, attention_.dims[Dim::Hkv]}).attention});
  }

  void expect_reference(std::string_view lowering, target::Rewrites rewrites = {}) const {
    SCOPED_TRACE(lowering);
    std::vector<plan::Program> programs;
    for (const One& part : parts_) {
      programs.push_back(
          value(driver::lower(part.attention, lowering, plan::Direction::backward, rewrites)));
    }
    std::vector<const plan::Program*> pointers;
    for (const plan::Program& program : programs) pointers.push_back(&program);
    const Kernels kernels = value(Kernels::compile(pointers));
    tools::Outputs sums, expected;
    for (const auto& [name, size] : expected_.sizes) {
      expected[name] = expected_.outputs.at(name);
      sums[name] = expected[name];
      std::ranges::fill(sums[name].values, 0);
    }
    for (std::size_t i = 0; i < parts_.size(); ++i) add_part(parts_[i], programs[i], kernels, sums);
    for (const tools::Comparison& each :
         tools::compare(sums, expected, tools::Types(attention_), expected_.sizes))
      EXPECT_TRUE(each.agrees()) << each.name << ": " << each.why;
  }

 private:
  struct One {
    Rows rows, keys;
    ir::Attention attention;
  };

  template <typename T>
  static T value(Result<T> result) {
    if (!result.ok()) throw std::runtime_error(result.error().to_text());
    return std::move(*result);
  }

  // Rows of the tensors that have them.
  static std::optional<Rows> rows_of(const One& part, std::string_view name) {
    for (const char* each : {"q", "o", "do", "lse", "dlse", "dq"}) {
      if (name == each) return part.rows;
    }
    for (const char* each : {"k", "v", "dk", "dv"}) {
      if (name == each) return part.keys;
    }
    return std::nullopt;
  }

  void add_part(const One& part, const plan::Program& program, const Kernels& kernels,
                tools::Outputs& sums) const {
    reference::Inputs inputs = inputs_;
    for (auto& [name, tensor] : inputs.tensors) {
      if (const auto rows = rows_of(part, name)) tensor = taken(tensor, *rows);
    }
    const tools::Placement placement = value(tools::Placement::create(program, inputs));
    Machine machine(program, kernels);
    for (const plan::TensorInfo& info : program.tensors) {
      if (!info.is_output()) machine.memory(info.name) = value(placement.bytes_of(info));
    }
    const Status ran = machine.run();
    ASSERT_TRUE(ran.ok()) << ran.error().to_text();
    for (const plan::TensorInfo& info : program.tensors) {
      if (!info.is_output()) continue;
      const io::HostTensor made = value(placement.logical(info, machine.memory(info.name)));
      std::vector<double>& sum = sums.at(info.name).values;
      if (const auto rows = rows_of(part, info.name)) {
        visit_rows(sums.at(info.name).dims, *rows,
                   [&](std::size_t to, std::size_t from) { sum[to] += made.values[from]; });
      } else {
        std::ranges::transform(sum, made.values, sum.begin(), std::plus());
      }
    }
  }

  ir::Attention attention_;
  reference::Inputs inputs_;
  tools::ReferenceGradients expected_;
  std::vector<One> parts_;
};

// Each part reads some elements of a learned tensor; the others get 0 from it.
TEST(HostPartial, LearnedTensors) {
  Divided divided(
      "attention partial { dims B = 1, Hq = 2, Sq = 70, Skv = 90, D = 16; dtype bf16; "
      "learn t: bf16[Hq, Sq, Skv]; learn s: f32[Hq]; score score + t[h, q_idx, kv_idx]; "
      "mask q_idx + 40 >= kv_idx; sink s[h]; grad q, k, v, t, s; }");
  divided.add({0, 30}, {0, 37});
  divided.add({0, 30}, {37, 90});
  divided.add({30, 70}, {0, 37});
  divided.add({30, 70}, {37, 90});
  for (const char* lowering : {"composite", "native", "unfused"})
    divided.expect_reference(lowering);
  target::Rewrites tiles;
  tiles.score_bytes = 4000;
  divided.expect_reference("unfused", tiles);
}

// dlse is of whole rows, of which each part has some keys.
TEST(HostPartial, GradientsThroughLse) {
  Divided divided(
      "attention partial { dims B = 1, Hq = 10, Hkv = 2, Sq = 70, Skv = 90, D = 16; dtype bf16; "
      "learn s: f32[Hq]; mask q_idx + 20 > kv_idx && q_idx % 7 != 2; sink s[h]; "
      "grad q, k, v, s, lse; }");
  divided.add({0, 30}, {0, 37});
  divided.add({0, 30}, {37, 90});
  divided.add({30, 70}, {0, 90});
  for (const char* lowering : {"native", "unfused"}) divided.expect_reference(lowering);
}

// Numbers are those of the weights of all rows and keys, wherever the part is; the number of a
// single key is a constant.
TEST(HostPartial, RandomDropout) {
  Divided divided(
      "attention partial { dims B = 2, Hq = 4, Hkv = 2, Sq = 96, Skv = 129, D = 16; dtype bf16; "
      "dropout 0.3; mask q_idx + 40 >= kv_idx; grad q, k, v; }");
  divided.add({0, 40}, {0, 64});
  divided.add({0, 40}, {64, 129});
  divided.add({40, 96}, {0, 32});
  divided.add({40, 96}, {32, 128});
  divided.add({40, 96}, {128, 129});
  divided.expect_reference("native");
}

}  // namespace
}  // namespace attn::host
