#include "runtime/plan/program_json.h"

#include "runtime/graph/graph_json.h"

namespace attn::plan {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const TensorInfo& tensor) {
  Json json = {{"name", json::of_text(tensor.name)}, {"role", to_string(tensor.role)},
               {"dtype", to_string(tensor.dtype)},   {"dims", tensor.dims},
               {"strides", tensor.strides},          {"alignment", tensor.alignment}};
  if (!tensor.addressed_by.empty()) json["addressed_by"] = json::of_text(tensor.addressed_by);
  return json;
}

TensorInfo read_tensor(const json::Value& value) {
  value.only({"name", "role", "dtype", "dims", "strides", "alignment", "addressed_by"});
  TensorInfo tensor;
  tensor.name = value["name"].text();
  tensor.role = value["role"].named(parse_tensor_role);
  tensor.dtype = value["dtype"].named(parse_dtype);
  tensor.dims = value["dims"].integers();
  tensor.strides = value["strides"].integers();
  tensor.alignment = value["alignment"].integer();
  if (value.has("addressed_by")) tensor.addressed_by = value["addressed_by"].text();
  return tensor;
}

Json json_of(const ParamInfo& param) {
  return {{"name", json::of_text(param.name)}, {"dtype", to_string(param.dtype)}};
}

ParamInfo read_param(const json::Value& value) {
  value.only({"name", "dtype"});
  return {value["name"].text(), value["dtype"].named(parse_dtype)};
}

struct SourceWriter {
  Json operator()(const TensorOperand& source) const {
    Json json = {{"tensor", json::of_text(source.name)}};
    if (source.offset != 0) json["offset"] = source.offset;
    if (source.advance != 0) json["advance"] = source.advance;
    return json;
  }
  Json operator()(const ConstantOperand& source) const {
    return {{"constant", json::of_number(source.value)}, {"dtype", to_string(source.dtype)}};
  }
  Json operator()(const ParamOperand& source) const {
    return {{"param", json::of_text(source.name)}};
  }
  Json operator()(const IotaOperand& source) const { return {{"counting", source.count}}; }
};

Json json_of(const OperandSource& source) { return std::visit(SourceWriter{}, source); }

Json json_of(const Operand& operand) {
  Json json = {{"uid", operand.uid}};
  json.update(json_of(operand.source));
  return json;
}

// `value` may also have a uid, which the caller reads.
OperandSource read_source(const json::Value& value) {
  if (value.has("constant")) {
    value.only({"uid", "constant", "dtype"});
    return ConstantOperand{value["dtype"].named(parse_dtype), value["constant"].number()};
  }
  if (value.has("param")) {
    value.only({"uid", "param"});
    return ParamOperand{value["param"].text()};
  }
  if (value.has("counting")) {
    value.only({"uid", "counting"});
    return IotaOperand{value["counting"].integer()};
  }
  value.only({"uid", "tensor", "offset", "advance"});
  TensorOperand operand{value["tensor"].text()};
  if (value.has("offset")) operand.offset = value["offset"].integer();
  if (value.has("advance")) operand.advance = value["advance"].integer();
  return operand;
}

Operand read_operand(const json::Value& value) {
  return {value["uid"].integer(), read_source(value)};
}

Json json_of(const CudnnStep& step) {
  Json operands = Json::array();
  for (const Operand& operand : step.operands) operands.push_back(json_of(operand));
  Json value = {{"step", "cudnn"}, {"operands", operands}, {"graph", graph::json_of(step.graph)}};
  if (step.turns != 1) value["turns"] = step.turns;
  return value;
}

Json json_of(const DeriveStep& step) {
  Json outputs = Json::array(), inputs = Json::array();
  for (std::size_t i = 0; i < step.outputs.size(); ++i) {
    outputs.push_back({{"tensor", json::of_text(step.outputs[i])},
                       {"expression", json::of_text(step.expressions[i])}});
  }
  for (const OperandSource& input : step.inputs) inputs.push_back(json_of(input));
  Json value = {{"step", "derive"},
                {"once", step.once},
                {"outputs", outputs},
                {"inputs", inputs},
                {"source", json::of_text(step.source)}};
  if (step.amends != 0) value["amends"] = step.amends;
  if (step.turns != 1) value["turns"] = step.turns;
  return value;
}

// Inputs of kernels have no uid.
OperandSource read_input(const json::Value& value) {
  if (value.has("uid")) value.fail("\"uid\" is not allowed here");
  return read_source(value);
}

std::vector<OperandSource> read_inputs(const json::Value& value) { return value.list(read_input); }

DeriveStep read_derive(const json::Value& value) {
  value.only({"step", "once", "outputs", "inputs", "source", "amends", "turns"});
  DeriveStep step;
  step.once = value["once"].boolean();
  (void)value["outputs"].list([&step](const json::Value& output) {
    output.only({"tensor", "expression"});
    step.outputs.push_back(output["tensor"].text());
    step.expressions.push_back(output["expression"].text());
    return 0;
  });
  step.inputs = read_inputs(value["inputs"]);
  step.source = value["source"].text();
  if (value.has("amends")) step.amends = value["amends"].integer();
  if (value.has("turns")) step.turns = value["turns"].integer();
  return step;
}

Json json_of(const TensorMapArgument& map) {
  Json value = {{"map", json_of(OperandSource(map.tensor))},
                {"dims", map.dims},
                {"strides", map.strides},
                {"box", map.box},
                {"swizzle", map.swizzle}};
  if (map.promotion != TensorMapArgument().promotion) value["promotion"] = map.promotion;
  return value;
}

struct ArgumentWriter {
  Json operator()(const TensorMapArgument& map) const { return json_of(map); }
  Json operator()(const auto& source) const { return json_of(OperandSource(source)); }
};

KernelArgument read_argument(const json::Value& value) {
  if (value.has("map")) {
    value.only({"map", "dims", "strides", "box", "swizzle", "promotion"});
    TensorMapArgument map;
    if (const auto source = read_input(value["map"]);
        !std::holds_alternative<TensorOperand>(source)) {
      value["map"].fail("is not a tensor");
    } else {
      map.tensor = std::get<TensorOperand>(source);
    }
    map.dims = value["dims"].integers();
    map.strides = value["strides"].integers();
    map.box = value["box"].integers();
    map.swizzle = value["swizzle"].integer();
    if (value.has("promotion")) map.promotion = value["promotion"].integer();
    return map;
  }
  const OperandSource source = read_input(value);
  if (const auto* tensor = std::get_if<TensorOperand>(&source)) return *tensor;
  if (const auto* param = std::get_if<ParamOperand>(&source)) return *param;
  if (const auto* constant = std::get_if<ConstantOperand>(&source)) return *constant;
  value.fail("is not an argument of a kernel");
  return {};
}

Json json_of(const Launch& launch) {
  Json arguments = Json::array();
  for (const KernelArgument& argument : launch.arguments) {
    arguments.push_back(std::visit(ArgumentWriter{}, argument));
  }
  Json value = {{"kernel", json::of_text(launch.kernel)},
                {"grid", launch.grid},
                {"block", launch.block},
                {"cluster", launch.cluster},
                {"shared_bytes", launch.shared_bytes},
                {"arguments", arguments}};
  if (launch.overlaps) value["overlaps"] = true;
  return value;
}

Extents read_extents(const json::Value& value) {
  const std::vector<std::int64_t> extents = value.integers();
  if (extents.size() != 3) {
    value.fail("does not have three numbers");
    return {};
  }
  return {extents[0], extents[1], extents[2]};
}

Launch read_launch(const json::Value& value) {
  value.only({"kernel", "grid", "block", "cluster", "shared_bytes", "overlaps", "arguments"});
  return {value["kernel"].text(),
          read_extents(value["grid"]),
          read_extents(value["block"]),
          read_extents(value["cluster"]),
          value["shared_bytes"].integer(),
          value.has("overlaps") && value["overlaps"].boolean(),
          value["arguments"].list(read_argument)};
}

Json texts(const std::vector<std::string>& names) {
  Json json = Json::array();
  for (const std::string& name : names) json.push_back(json::of_text(name));
  return json;
}

Json json_of(const KernelStep& step) {
  Json launches = Json::array();
  for (const Launch& launch : step.launches) launches.push_back(json_of(launch));
  Json value = {{"step", "kernel"},
                {"outputs", texts(step.outputs)},
                {"zeroed", texts(step.zeroed)},
                {"launches", launches},
                {"source", json::of_text(step.source)}};
  if (step.turns != 1) value["turns"] = step.turns;
  return value;
}

KernelStep read_kernel(const json::Value& value) {
  value.only({"step", "outputs", "zeroed", "launches", "source", "turns"});
  const auto text = [](const json::Value& each) { return each.text(); };
  KernelStep step;
  step.outputs = value["outputs"].list(text);
  step.zeroed = value["zeroed"].list(text);
  step.launches = value["launches"].list(read_launch);
  step.source = value["source"].text();
  if (value.has("turns")) step.turns = value["turns"].integer();
  return step;
}

Json json_of(const IndexCheck& check) {
  Json faults = Json::array(), inputs = Json::array();
  for (const IndexCheck::Fault& fault : check.faults) {
    faults.push_back(
        {{"expression", json::of_text(fault.expression)}, {"what", json::of_text(fault.what)}});
  }
  for (const OperandSource& input : check.inputs) inputs.push_back(json_of(input));
  return {{"faults", faults},
          {"inputs", inputs},
          {"quick", check.quick},
          {"scores", check.scores},
          {"source", json::of_text(check.source)}};
}

IndexCheck read_check(const json::Value& value) {
  value.only({"faults", "inputs", "quick", "scores", "source"});
  IndexCheck check;
  check.faults = value["faults"].list([](const json::Value& fault) {
    fault.only({"expression", "what"});
    return IndexCheck::Fault{fault["expression"].text(), fault["what"].text()};
  });
  check.inputs = read_inputs(value["inputs"]);
  check.quick = value["quick"].integer();
  check.scores = value["scores"].integers();
  check.source = value["source"].text();
  return check;
}

Step read_step(const json::Value& value) {
  if (value["step"].text() == "derive") return read_derive(value);
  if (value["step"].text() == "kernel") return read_kernel(value);
  value.only({"step", "operands", "graph", "turns"});
  if (value["step"].text() != "cudnn") value["step"].fail("is not a known name");
  CudnnStep step;
  step.operands = value["operands"].list(read_operand);
  step.graph = graph::read_graph(value["graph"]);
  if (value.has("turns")) step.turns = value["turns"].integer();
  return step;
}

}  // namespace

Json json_of(const Program& program) {
  Json json = {{"tensors", Json::array()}, {"params", Json::array()}, {"steps", Json::array()}};
  for (const TensorInfo& tensor : program.tensors) json["tensors"].push_back(json_of(tensor));
  for (const ParamInfo& param : program.params) json["params"].push_back(json_of(param));
  for (const TensorInfo& tensor : program.internals) json["internals"].push_back(json_of(tensor));
  for (const Step& step : program.steps) {
    json["steps"].push_back(
        std::visit([](const auto& alternative) { return json_of(alternative); }, step));
  }
  if (program.check) json["check"] = json_of(*program.check);
  return json;
}

Program read_program(const json::Value& value) {
  value.only({"tensors", "params", "internals", "steps", "check"});
  Program program;
  program.tensors = value["tensors"].list(read_tensor);
  program.params = value["params"].list(read_param);
  if (value.has("internals")) program.internals = value["internals"].list(read_tensor);
  program.steps = value["steps"].list(read_step);
  if (value.has("check")) program.check = read_check(value["check"]);
  return program;
}

std::string to_json(const Program& program) { return json_of(program).dump(); }

Result<Program> program_from_json(std::string_view text) {
  ATTN_ASSIGN(const nlohmann::json document, json::parse(text));
  json::Failure failure;
  Program program = read_program({document, failure});
  ATTN_RETURN_IF_ERROR(failure.status());
  return program;
}

}  // namespace attn::plan
