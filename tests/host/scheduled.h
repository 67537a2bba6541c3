// An attention whose work a schedule divides, on the emulated GPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tests/host/attention.h"
#include "tests/host/machine.h"

namespace attn::host::scheduled_tests {

struct Lengths {
  std::vector<double> q;  // none: all rows
  std::vector<double> kv;
};

// What is wanted of a schedule, as plan::ScheduleOptions.
struct Options {
  const int* sequences_at = nullptr;
  int sequences = 0, most_parts = 0, split_keys = 0, blocks = 0, shared_keys = 0;

  plan::ScheduleOptions words() const {
    return {sequences_at, sequences, most_parts, split_keys, blocks, 0, shared_keys};
  }
};

// The header of a schedule (attn/schedule.cuh).
struct Header {
  int first, end, workers, flags, taken, last, sequences, prefix;
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

  // The header of a schedule of these lengths.
  Header header_of(const Lengths& lengths, const Options& options) const {
    Machine layer = machine(inputs(lengths, false));
    ScheduleMemory schedule = layer.schedule_memory(options.words());
    expect_done(layer.make_schedule(schedule));
    return header(schedule);
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
  // Executes of sequences that begin with the same keys, of which a schedule is told: where these
  // are read once, others than the first have NaN in memory instead. Runs one, two and three blocks
  // of threads at once. Returns its header.
  Header expect_shared(const Lengths& lengths, int shared, bool once,
                       const Options& options = {}) const {
    reference::Inputs of[] = {inputs(lengths, false), inputs(lengths, true)};
    const auto keys = static_cast<int>(step().schedule->tile_keys);
    const int hidden = once ? shared / keys * keys : 0;
    std::vector<Machine> layers;
    for (reference::Inputs& each : of) {
      share(each, shared);
      reference::Inputs in_memory = each;
      hide(in_memory, hidden);
      layers.push_back(machine(in_memory));
    }
    ScheduleMemory schedule = layers[0].schedule_memory(options.words());
    expect_done(layers[0].make_schedule(schedule));
    const Header made = header(schedule);
    EXPECT_EQ((made.flags & plan::kScheduleNotShared) != 0, !once);
    EXPECT_EQ(made.prefix > 0, hidden > 0);
    unsigned at_once = 1;
    for (const std::size_t layer : {0, 1, 0}) {
      layers[layer].set_blocks_at_once(at_once++);
      expect_done(layers[layer].run(schedule));
      expect_reference(take_outputs(layers[layer], of[layer]), of[layer]);
    }
    EXPECT_EQ(header(schedule).prefix, made.prefix + (made.prefix > 0)) << "after three runs";
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
  // Gives all batches the first keys and values of the first one.
  static void share(reference::Inputs& inputs, int keys) {
    change(inputs, keys, [](double first, double& value) { value = first; });
  }
  // Takes them from others.
  static void hide(reference::Inputs& inputs, int keys) {
    change(inputs, keys, [](double, double& value) { value = std::nan(""); });
  }
  template <typename Change>
  static void change(reference::Inputs& inputs, int keys, const Change& change) {
    for (const char* name : {"k", "v"}) {
      io::HostTensor& tensor = inputs.tensors.at(name);
      const auto columns = static_cast<std::size_t>(tensor.dims[3]);
      const std::size_t of_head = static_cast<std::size_t>(tensor.dims[2]) * columns;
      const std::size_t of_batch = static_cast<std::size_t>(tensor.dims[1]) * of_head;
      for (std::size_t i = of_batch; i < tensor.values.size(); ++i) {
        if (i % of_head / columns >= static_cast<std::size_t>(keys)) continue;
        change(tensor.values[i % of_batch], tensor.values[i]);
      }
    }
  }

  const ir::Attention attention_;
  const gpu::Order order_;
  plan::Program program_;
  std::optional<Kernels> kernels_;
  reference::Inputs inputs_;
};

}  // namespace attn::host::scheduled_tests
