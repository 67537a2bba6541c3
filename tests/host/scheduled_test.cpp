// Kernels whose work a schedule divides, on the emulated GPU: executes that make it, and others
// that use one that was made for both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>

#include "tests/host/attention.h"
#include "tests/host/machine.h"

namespace attn::host::scheduled_tests {
namespace {

using ::testing::HasSubstr;

struct Lengths {
  std::vector<double> q;  // none: all rows
  std::vector<double> kv;
};

// What is wanted of a schedule, as plan::ScheduleOptions.
struct Options {
  const int* sequences_at = nullptr;
  int sequences = 0, most_parts = 0, split_keys = 0, blocks = 0;

  plan::ScheduleOptions words() const {
    return {sequences_at, sequences, most_parts, split_keys, blocks, 0, 0};
  }
};

// The header of a schedule (attn/schedule.cuh).
struct Header {
  int first, end, workers, flags;
};

// An attention, and its program for a GPU of few multiprocessors.
class Scheduled {
 public:
  Scheduled(const std::string& text, int multiprocessors, gpu::Order order)
      : attention_(attention_of(text)), order_(order) {
    target::Context context;
    context.gpu.multiprocessors = multiprocessors;
    context.direction = plan::Direction::forward;
    program_ = tools::with_other_strides(driver::lower(attention_, "native", context).value());
    kernels_.emplace(Kernels::compile({&program_}).value());
    inputs_ = tools::make_inputs(attention_, {}, tools::Missing::pattern).value().values;
  }

  const plan::KernelStep& step() const { return *plan::scheduled_step(program_); }

  // Inputs with these lengths; q of one layer is that of the other, with the opposite sign.
  reference::Inputs inputs(const Lengths& lengths, bool second) const {
    reference::Inputs inputs = inputs_;
    if (!lengths.q.empty()) inputs.tensors.at("lengths_q").values = lengths.q;
    inputs.tensors.at("lengths_kv").values = lengths.kv;
    if (second) {
      for (double& value : inputs.tensors.at("q").values) value = -value;
    }
    return inputs;
  }

  // A machine with the inputs in its memory.
  Machine machine(const reference::Inputs& inputs) const {
    const auto placement =
        tools::Placement::create(program_, inputs, tools::Unused::anything).value();
    Machine made(program_, *kernels_, order_);
    for (const plan::TensorInfo& info : program_.tensors) {
      if (!info.is_output()) made.memory(info.name) = placement.bytes_of(info).value();
    }
    return made;
  }

  // What the machine's last run left, which is then forgotten.
  tools::Outputs take_outputs(Machine& machine, const reference::Inputs& inputs) const {
    const auto placement = tools::Placement::create(program_, inputs).value();
    tools::Outputs outputs;
    for (const plan::TensorInfo& info : program_.tensors) {
      if (!info.is_output()) continue;
      std::vector<std::byte>& memory = machine.memory(info.name);
      outputs[info.name] = placement.logical(info, memory).value();
      std::ranges::fill(memory, std::byte{0xff});
    }
    return outputs;
  }

  // Compares them with the reference's.
  void expect_reference(const tools::Outputs& outputs, const reference::Inputs& inputs) const {
    reference::Options options;
    options.sizes = true;
    const auto expected = tools::run_reference(attention_, inputs, options).value();
    for (const tools::Comparison& each :
         tools::compare(outputs, expected, tools::Types(attention_), {})) {
      EXPECT_TRUE(each.agrees()) << each.name << ": " << each.why;
    }
  }

  Header header(const ScheduleMemory& schedule) const {
    Header header;
    std::memcpy(&header, schedule.at(step().schedule->tensor).data(), sizeof header);
    return header;
  }

  // Executes of two layers: the first makes a schedule of its own; then one is made of its lengths
  // that both use, and the first once more. Returns the header of that.
  Header expect_reference(const Lengths& lengths, const Options& options = {}) const {
    const reference::Inputs of[] = {inputs(lengths, false), inputs(lengths, true)};
    Machine layers[] = {machine(of[0]), machine(of[1])};
    expect_done(layers[0].run());
    const tools::Outputs alone = take_outputs(layers[0], of[0]);
    expect_reference(alone, of[0]);
    ScheduleMemory schedule = layers[0].schedule_memory(options.words());
    expect_done(layers[0].make_schedule(schedule));
    const Header made = header(schedule);
    for (const std::size_t layer : {0, 1, 0}) {
      expect_done(layers[layer].run(schedule));
      expect_reference(take_outputs(layers[layer], of[layer]), of[layer]);
    }
    return made;
  }
  static void expect_done(const Status& status) {
    EXPECT_TRUE(status.ok()) << status.error().to_text();
  }

  // The outputs of a layer, with a schedule of its lengths.
  tools::Outputs outputs(const Lengths& lengths, const Options& options) const {
    const reference::Inputs of = inputs(lengths, false);
    Machine layer = machine(of);
    ScheduleMemory schedule = layer.schedule_memory(options.words());
    expect_done(layer.make_schedule(schedule));
    expect_done(layer.run(schedule));
    return take_outputs(layer, of);
  }

 private:
  const ir::Attention attention_;
  const gpu::Order order_;
  plan::Program program_;
  std::optional<Kernels> kernels_;
  reference::Inputs inputs_;
};

class HostSchedules : public ::testing::TestWithParam<gpu::Order> {};

constexpr const char* kDecode =
    "attention decode { dims B = 3, Hq = 2, Hkv = 1, Sq = 1, Skv = 24000, D = 16; dtype bf16; "
    "lengths kv; outputs o, lse; }";

// One unit of heads, so that two blocks of threads have more than a long share of two sequences,
// and less of one.
TEST_P(HostSchedules, OfLongPartsInTurnsAndOnALine) {
  const Scheduled decode(kDecode, 2, GetParam());
  EXPECT_THAT(decode.step().source, HasSubstr("kLongShare = 120;"));
  const Header turns = decode.expect_reference({{}, {24000, 700, 23000}});
  EXPECT_EQ(turns.first, turns.workers);
  EXPECT_GT(turns.end, 6) << "parts of three tiles";
  const Header line = decode.expect_reference({{}, {5, 0, 24000}});
  EXPECT_GT(line.first, line.workers);
  EXPECT_EQ(line.flags, 0);
}

TEST_P(HostSchedules, OfNoKeysAndOfEqualSequences) {
  const Scheduled decode(kDecode, 2, GetParam());
  decode.expect_reference({{}, {0, 0, 0}});
  decode.expect_reference({{}, {900, 900, 900}});
}

TEST_P(HostSchedules, WithOptions) {
  const Scheduled decode(kDecode, 4, GetParam());
  const Lengths lengths{{}, {9000, 700, 5000}};
  const Header whole = decode.expect_reference(lengths, {.most_parts = 1});
  EXPECT_EQ(whole.end, 3);
  const Header of_two = decode.expect_reference(lengths, {.most_parts = 2, .blocks = 3});
  EXPECT_EQ(of_two.workers, 3);
  const Header split = decode.expect_reference(lengths, {.split_keys = 1100});
  EXPECT_EQ(split.end, 9 + 1 + 5) << "parts of 1024 keys";
  const Header many = decode.expect_reference({{}, {6000, 0, 100}}, {.split_keys = 128});
  EXPECT_EQ(many.flags, plan::kScheduleTooManyParts);
  EXPECT_EQ(many.end, 3);
}

// A sequence with parts of so many keys has the same bits beside any others.
TEST_P(HostSchedules, OfPartsOfEqualLengthAreInvariant) {
  const Scheduled decode(kDecode, 4, GetParam());
  const Options options{.split_keys = 2048};
  const tools::Outputs first = decode.outputs({{}, {9000, 7000, 5000}}, options);
  const tools::Outputs second = decode.outputs({{}, {9000, 0, 12000}}, options);
  for (const auto& [name, tensor] : first) {
    const std::vector<double>& other = second.at(name).values;
    const std::size_t of_batch = other.size() / 3;
    EXPECT_TRUE(std::equal(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(of_batch),
                           tensor.values.begin()))
        << name;
  }
}

// Rows of sequences from the number on are left as they are.
TEST_P(HostSchedules, OfFewerSequences) {
  const Scheduled decode(kDecode, 4, GetParam());
  const Lengths lengths{{}, {900, 5000, 700}};
  const tools::Outputs all = decode.outputs(lengths, {});
  const int count = 2;
  for (const Options& options : {Options{.sequences_at = &count}, Options{.sequences = count + 1},
                                 Options{.sequences = 1}}) {
    const tools::Outputs some = decode.outputs(lengths, options);
    const std::size_t used = options.sequences == 1 ? 0 : count;
    for (const auto& [name, tensor] : some) {
      const std::size_t end = tensor.values.size() / 3 * used;
      for (std::size_t i = 0; i < tensor.values.size(); ++i) {
        const double value = tensor.values[i];
        ASSERT_TRUE(i < end ? std::abs(value - all.at(name).values[i]) < 1e-2 : std::isnan(value))
            << name << i;
      }
    }
  }
}

// Tiles without rows are stored, too.
TEST_P(HostSchedules, OfRowsPastTheEnd) {
  const Scheduled padded(
      "attention padded { dims B = 4, Hq = 2, Hkv = 2, Sq = 150, Skv = 400, D = 32; dtype f16; "
      "layout bshd; align bottom_right; lengths q, kv; mask 0 <= q_idx - kv_idx < 130; "
      "outputs o, lse, max, sum_exp; }",
      3, GetParam());
  padded.expect_reference({{150, 1, 0, 70}, {400, 333, 90, 60}});
  padded.expect_reference({{0, 0, 0, 129}, {400, 0, 1, 400}}, {.split_keys = 128, .blocks = 2});
}

// Warp groups pass tiles of which they have no rows, before and after others.
TEST_P(HostSchedules, OfTwoWarpGroups) {
  const Scheduled packed(
      "attention packed { dims B = 5, Hq = 4, Hkv = 2, Sq = 64, Skv = 500, D = 64; dtype f16; "
      "layout thd; lengths q, kv; mask q_idx >= kv_idx; outputs o, lse; }",
      3, GetParam());
  EXPECT_THAT(packed.step().source, HasSubstr("kGroups = 2;"));
  const double all = 64;
  for (const Lengths& lengths : {Lengths{{1, 1, 1, 1, 1}, {500, 0, 3, 499, 130}},
                                 Lengths{{1, all, 1, all, 64}, {9, 500, 77, 300, 64}},
                                 Lengths{{all, 32, 33, 0, 2}, {400, 32, 33, 500, 1}},
                                 Lengths{{0, 1, all, 0, all / 2}, {7, 200, all, 0, 500}},
                                 Lengths{{0, 0, 0, 0, 0}, {500, 500, 0, 1, 2}}}) {
    packed.expect_reference(lengths);
    packed.expect_reference(lengths, {.split_keys = 256, .blocks = 1});
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, HostSchedules,
                         ::testing::Values(gpu::Order::early_copies, gpu::Order::late_copies));

}  // namespace
}  // namespace attn::host::scheduled_tests
