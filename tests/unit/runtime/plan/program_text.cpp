#include "tests/unit/runtime/plan/program_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/graph/listing.h"

namespace attn::plan {
namespace {

struct SourceText {
  std::string operator()(const TensorOperand& source) const {
    std::string text = "tensor " + attn::quoted(source.name);
    if (source.offset != 0 || source.advance != 0) text += fmt::format(" from {}", source.offset);
    if (source.advance != 0) text += fmt::format(" by {}", source.advance);
    return text;
  }
  std::string operator()(const ConstantOperand& source) const {
    // The shortest digits that read back as the same double.
    return fmt::format("constant {} {}", to_string(source.dtype), source.value);
  }
  std::string operator()(const ParamOperand& source) const {
    return "param " + attn::quoted(source.name);
  }
  std::string operator()(const IotaOperand& source) const {
    return fmt::format("counting {}", source.count);
  }
};

std::string addressing(const TensorInfo& tensor) {
  if (tensor.addressed_by.empty()) return "";
  return " addressed by " + attn::quoted(tensor.addressed_by);
}

// Indents each line by two columns.
std::string indented(std::string_view lines) {
  std::string text;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    text += fmt::format("  {}\n", lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return text;
}

std::string turns_text(std::int64_t turns) {
  return turns == 1 ? "" : fmt::format(", {} turns", turns);
}

std::string head_of(const CudnnStep& step) {
  return fmt::format("cudnn{}\n", turns_text(step.turns));
}

std::string text_of(const CudnnStep& step) {
  std::string text = head_of(step);
  for (const Operand& operand : step.operands) {
    text += fmt::format("  %{} <- {}\n", operand.uid, std::visit(SourceText{}, operand.source));
  }
  return text + indented(graph::to_text(step.graph));
}

std::string head_of(const DeriveStep& step) {
  const std::string turns = turns_text(step.turns);
  if (step.amends > 0) return fmt::format("amend by {} threads{}\n", step.amends, turns);
  return fmt::format("{}{}\n", step.once ? "derive once" : "derive", turns);
}

std::string text_of(const DeriveStep& step) {
  std::string text = head_of(step);
  for (std::size_t i = 0; i < step.outputs.size(); ++i) {
    text += fmt::format("  {} <- {}\n", escaped(step.outputs[i]), escaped(step.expressions[i]));
  }
  for (const OperandSource& input : step.inputs) {
    text += fmt::format("  reads {}\n", std::visit(SourceText{}, input));
  }
  return text + indented(step.source);
}

struct ArgumentText {
  std::string operator()(const TensorMapArgument& map) const {
    const std::string promotion = map.promotion == TensorMapArgument().promotion
                                      ? ""
                                      : fmt::format(" promotion {}", map.promotion);
    const std::string axes =
        map.axes.empty() ? "" : fmt::format(" axes [{}]", fmt::join(map.axes, ","));
    const char* packed = map.packed ? " packed" : "";
    return fmt::format("map of {} [{}] strides [{}]{}{} box [{}] swizzle {}{}",
                       SourceText{}(map.tensor), fmt::join(map.dims, ","),
                       fmt::join(map.strides, ","), axes, packed, fmt::join(map.box, ","),
                       map.swizzle, promotion);
  }
  std::string operator()(const StrideArgument& stride) const {
    return fmt::format("stride {} of tensor {}", stride.axis, attn::quoted(stride.tensor));
  }
  std::string operator()(const auto& source) const { return SourceText{}(source); }
};

std::string text_of(const Launch& launch) {
  std::string text = fmt::format("{} grid {} block {} cluster {} shared {}{}\n",
                                 attn::quoted(launch.kernel), fmt::join(launch.grid, "x"),
                                 fmt::join(launch.block, "x"), fmt::join(launch.cluster, "x"),
                                 launch.shared_bytes, launch.overlaps ? " overlaps" : "");
  for (const KernelArgument& argument : launch.arguments) {
    text += fmt::format("  {}\n", std::visit(ArgumentText{}, argument));
  }
  return text;
}

std::string text_of(const Schedule& schedule) {
  return fmt::format(
      "  schedule {} options {} parts {}: {} slots of {} words and {} elements, {} sequences, {} "
      "units, tiles of {} rows and {} keys{}{}\n",
      attn::quoted(schedule.tensor), attn::quoted(schedule.options), attn::quoted(schedule.parts),
      schedule.slots, schedule.slot_words, schedule.slot_elements, schedule.sequences,
      schedule.units, schedule.tile_rows, schedule.tile_keys,
      schedule.shares_keys ? ", which may be shared" : "", schedule.unshared);
}

std::string text_of(const KernelStep& step) {
  std::string text = fmt::format("kernel{}\n", turns_text(step.turns));
  for (const std::string& output : step.outputs)
    text += fmt::format("  writes {}\n", attn::quoted(output));
  for (const std::string& zeroed : step.zeroed)
    text += fmt::format("  zeroes {}\n", attn::quoted(zeroed));
  for (const Launch& launch : step.launches) text += indented(text_of(launch));
  if (step.schedule) text += text_of(*step.schedule);
  return text + indented(step.source);
}

std::string text_of(const IndexCheck& check) {
  std::string text =
      fmt::format("check: {} quickly, [{}] exactly\n", check.quick, fmt::join(check.scores, ","));
  for (const IndexCheck::Fault& fault : check.faults) {
    text += fmt::format("  {}: {}\n", escaped(fault.expression), escaped(fault.what));
  }
  for (const OperandSource& input : check.inputs) {
    text += fmt::format("  reads {}\n", std::visit(SourceText{}, input));
  }
  return text + indented(check.source);
}

std::string tensor_line(const TensorInfo& tensor) {
  return fmt::format("{} {} {} align {}{}{}{}\n", to_string(tensor.role), escaped(tensor.name),
                     type_text(tensor.dtype, tensor.dims, tensor.strides), tensor.alignment,
                     addressing(tensor), tensor.bound_strides ? " strides bound" : "",
                     tensor.rows.empty() ? "" : " rows " + tensor.rows);
}

}  // namespace

std::string to_text(const Program& program) {
  std::string text;
  for (const TensorInfo& tensor : program.tensors) text += tensor_line(tensor);
  for (const ParamInfo& param : program.params) {
    text += fmt::format("param {} {}\n", escaped(param.name), to_string(param.dtype));
  }
  for (const TensorInfo& tensor : program.internals) text += tensor_line(tensor);
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    text += fmt::format("step {}: ", i);
    text += std::visit([](const auto& step) { return text_of(step); }, program.steps[i]);
  }
  if (program.check) text += text_of(*program.check);
  return text;
}

}  // namespace attn::plan
