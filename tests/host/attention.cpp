#include "tests/host/attention.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/engines/engines.h"
#include "runtime/base/check.h"
#include "tests/host/machine.h"
#include "tools/placement.h"

namespace attn::host {

ir::Attention attention_of(const std::string& text, const sema::Bindings& bindings) {
  const support::Source source("test", text);
  diag::Sink sink(source);
  const auto attention = driver::front_end(source, bindings, sink);
  ATTN_CHECK(attention.has_value(), text + '\n' + diag::to_text(sink));
  return *attention;
}

namespace {

Result<tools::Outputs> run(const plan::Program& planned, const Kernels& kernels,
                           const reference::Inputs& inputs, const Pair& pair) {
  const plan::Program program = tools::with_other_strides(planned);
  ATTN_ASSIGN(const tools::Placement placement,
              tools::Placement::create(program, inputs, pair.unused));
  Machine machine(program, kernels, pair.order);
  for (const plan::TensorInfo& info : program.tensors) {
    if (info.is_output()) continue;
    ATTN_ASSIGN(machine.memory(info.name), placement.bytes_of(info));
  }
  for (const auto& [name, value] : inputs.params) machine.set_param(name, value);
  ATTN_RETURN_IF_ERROR(machine.run());
  tools::Outputs outputs;
  for (const plan::TensorInfo& info : program.tensors) {
    if (!info.is_output()) continue;
    ATTN_ASSIGN(outputs[info.name], placement.logical(info, machine.memory(info.name)));
  }
  return outputs;
}

Result<tools::Outputs> run(const Pair& pair, const Kernels& kernels, reference::Inputs inputs) {
  ATTN_ASSIGN(tools::Outputs outputs, run(pair.forward, kernels, inputs, pair));
  if (!pair.backward) return outputs;
  for (const plan::TensorInfo& info : pair.backward->tensors) {
    if (info.role == plan::TensorRole::saved) inputs.tensors[info.name] = outputs.at(info.name);
  }
  ATTN_ASSIGN(tools::Outputs gradients, run(*pair.backward, kernels, inputs, pair));
  outputs.merge(gradients);
  return outputs;
}

void add_programs(const std::vector<Pair>& pairs, std::vector<const plan::Program*>& programs) {
  for (const Pair& pair : pairs) {
    programs.push_back(&pair.forward);
    if (pair.backward) programs.push_back(&*pair.backward);
  }
}

// The reference's outputs, and its gradients if the pair has a backward.
tools::Outputs expected_of(const Pair& pair, const tools::ReferenceGradients& reference) {
  tools::Outputs expected;
  for (const auto& [name, tensor] : reference.outputs) {
    const bool is_gradient = reference.sizes.contains(name);
    if (pair.backward || !is_gradient) expected[name] = tensor;
  }
  return expected;
}

Result<tools::ReferenceGradients> reference_of(const ir::Attention& attention,
                                               const reference::Inputs& inputs, bool gradients) {
  reference::Options options;
  options.sizes = true;
  if (gradients) return tools::run_reference_gradients(attention, inputs, true, options);
  ATTN_ASSIGN(tools::Outputs outputs, tools::run_reference(attention, inputs, options));
  return tools::ReferenceGradients{std::move(outputs), {}};
}

void expect_reference(const Subject& subject, const Kernels& kernels) {
  SCOPED_TRACE(subject.text);
  const bool gradients = std::ranges::any_of(
      subject.pairs, [](const Pair& pair) { return pair.backward.has_value(); });
  const auto inputs =
      tools::make_inputs(subject.attention, {}, tools::Missing::pattern,
                         gradients ? tools::Needs::gradients : tools::Needs::forward);
  ASSERT_TRUE(inputs.ok()) << inputs.error().to_text();
  const auto reference = reference_of(subject.attention, inputs->values, gradients);
  ASSERT_TRUE(reference.ok()) << reference.error().to_text();
  for (const Pair& pair : subject.pairs) {
    const auto outputs = run(pair, kernels, inputs->values);
    if (!outputs.ok()) {
      ADD_FAILURE() << pair.lowering << ": " << outputs.error().to_text();
      continue;
    }
    for (const tools::Comparison& each :
         tools::compare(*outputs, expected_of(pair, *reference), tools::Types(subject.attention),
                        reference->sizes)) {
      EXPECT_TRUE(each.agrees()) << pair.lowering << ": " << each.name << ": " << each.why;
    }
  }
}

}  // namespace

std::vector<std::string> strategies_on_host() {
  std::vector<std::string> names;
  for (const engines::Strategy& strategy : engines::strategies()) {
    if (strategy.own_kernels || strategy.name == "unified" || strategy.name == "block_sparse") {
      continue;
    }
    names.emplace_back(strategy.name);
  }
  return names;
}

Result<tools::Outputs> outputs_of(const Pair& pair, const reference::Inputs& inputs) {
  ATTN_ASSIGN(std::vector<tools::Outputs> all, outputs_of(std::vector{pair}, inputs));
  return std::move(all.front());
}

Result<std::vector<tools::Outputs>> outputs_of(const std::vector<Pair>& pairs,
                                               const reference::Inputs& inputs) {
  std::vector<const plan::Program*> programs;
  add_programs(pairs, programs);
  ATTN_ASSIGN(const Kernels kernels, Kernels::compile(programs));
  std::vector<tools::Outputs> all;
  for (const Pair& pair : pairs) {
    ATTN_ASSIGN(tools::Outputs outputs, run(pair, kernels, inputs));
    all.push_back(std::move(outputs));
  }
  return all;
}

void expect_reference(const std::vector<Subject>& subjects) {
  std::vector<const plan::Program*> programs;
  for (const Subject& subject : subjects) add_programs(subject.pairs, programs);
  const Result<Kernels> kernels = Kernels::compile(programs);
  ASSERT_TRUE(kernels.ok()) << kernels.error().to_text();
  for (const Subject& subject : subjects) expect_reference(subject, *kernels);
}

}  // namespace attn::host
