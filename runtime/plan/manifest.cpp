#include "runtime/plan/manifest.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/plan/container.h"
#include "runtime/plan/plan_members.h"

namespace attn::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostWorkspace = std::int64_t{1} << 60;  // bytes per step

Json json_of(const std::map<std::string, std::string>& bindings) {
  // A list, since object keys cannot represent every name.
  Json json = Json::array();
  for (const auto& [name, value] : bindings) {
    json.push_back({{"name", json::of_text(name)}, {"value", json::of_text(value)}});
  }
  return json;
}

std::map<std::string, std::string> read_bindings(const json::Value& value) {
  std::map<std::string, std::string> bindings;
  (void)value.list([&bindings](const json::Value& binding) {
    binding.only({"name", "value"});
    if (!bindings.emplace(binding["name"].text(), binding["value"].text()).second) {
      binding["name"].fail("occurs twice");
    }
    return 0;
  });
  return bindings;
}

Json json_of(const Shape& shape) {
  Json sizes = Json::object();
  for (const Dim dim : kDims) sizes[std::string(to_string(dim))] = shape.sizes[dim];
  Json padded = Json::array();
  for (const Dim dim : shape.padded) padded.push_back(to_string(dim));
  return {{"sizes", std::move(sizes)}, {"padded", std::move(padded)}};
}

Shape read_shape(const json::Value& value) {
  value.only({"sizes", "padded"});
  const json::Value sizes = value["sizes"];
  sizes.only({"B", "Hq", "Hkv", "Sq", "Skv", "Dqk", "Dv"});
  Shape shape;
  for (const Dim dim : kDims) {
    shape.sizes.set(dim, sizes[to_string(dim)].integer(dim == Dim::Skv ? 0 : 1));
  }
  shape.padded =
      value["padded"].list([](const json::Value& name) { return name.named(parse_dim); });
  for (std::size_t i = 0; i < shape.padded.size(); ++i) {
    const Dim dim = shape.padded[i];
    const bool may_be = dim == Dim::B || dim == Dim::Sq || dim == Dim::Skv;
    if (!may_be || (i > 0 && shape.padded[i - 1] >= dim))
      value["padded"].fail("is not one of B, Sq, Skv in this order");
  }
  return shape;
}

Json json_of(const CompiledStep& step) {
  return {{"heuristic", json::of_text(step.heuristic)},
          {"engine", step.engine},
          {"knobs", json::json_of(step.knobs)},
          {"workspace_bytes", step.workspace_bytes},
          {"plan_bytes", step.cudnn_plan.size()},
          {"plan_hash", hash128(step.cudnn_plan).to_hex()}};
}

CompiledStep read_compiled(const json::Value& value) {
  value.only({"heuristic", "engine", "knobs", "workspace_bytes", "plan_bytes", "plan_hash"});
  CompiledStep step;
  step.heuristic = value["heuristic"].text();
  step.engine = value["engine"].integer();
  json::Reader::read(value["knobs"], step.knobs);
  step.workspace_bytes = value["workspace_bytes"].integer(0, kMostWorkspace);
  return step;
}

PlanPart read_part(const json::Value& value) {
  return {static_cast<std::uint64_t>(
              value["plan_bytes"].integer(0, static_cast<std::int64_t>(kMaxPlanBytes))),
          value["plan_hash"].text()};
}

Json json_of_kernel(const std::string& image) {
  return {{"bytes", image.size()}, {"hash", hash128(image).to_hex()}};
}

PlanPart read_image(const json::Value& value) {
  value.only({"bytes", "hash"});
  return {static_cast<std::uint64_t>(
              value["bytes"].integer(0, static_cast<std::int64_t>(kMaxPlanBytes))),
          value["hash"].text()};
}

Json json_of(const Plan& plan) {
  Json json;
  json["format"] = kFormatVersion;
  json["spec"] = {{"name", json::of_text(plan.spec_name)}, {"text", json::of_text(plan.spec_text)}};
  json["bindings"] = json_of(plan.bindings);
  json["shape"] = json_of(plan.shape);
  if (!plan.choice.empty()) json["choice"] = json::json_of(plan.choice);
  json["strategy"] = json::of_text(plan.strategy);
  if (!plan.without.empty()) json["without"] = json::json_of(plan.without);
  if (!plan.parts.empty()) json["parts"] = json::json_of(plan.parts);
  json["target"] = json::json_of(plan.target);
  json["cudnn_version"] = plan.cudnn_version;
  if (!plan.nvrtc_version.empty()) json["nvrtc_version"] = json::of_text(plan.nvrtc_version);
  json["workspace_bytes"] = plan.workspace_bytes();
  json["program"] = json::json_of(plan.program);
  json["compiled"] = Json::array();
  for (const CompiledStep& step : plan.compiled) json["compiled"].push_back(json_of(step));
  for (const std::string& image : plan.kernels) json["kernels"].push_back(json_of_kernel(image));
  json["signature"] = plan.signature.hash.to_hex();
  return json;
}

// Checks only the form: nothing is looked up or computed until the program is known to be valid.
Manifest read(const json::Value& value) {
  value.only({"format", "spec", "bindings", "shape", "choice", "strategy", "without", "parts",
              "target", "cudnn_version", "nvrtc_version", "workspace_bytes", "program", "compiled",
              "kernels", "signature"});
  (void)value["format"].integer(kFormatVersion, kFormatVersion);
  Manifest manifest;
  Plan& plan = manifest.plan;
  value["spec"].only({"name", "text"});
  plan.spec_name = value["spec"]["name"].text();
  plan.spec_text = value["spec"]["text"].text();
  plan.bindings = read_bindings(value["bindings"]);
  plan.shape = read_shape(value["shape"]);
  if (value.has("choice")) json::Reader::read(value["choice"], plan.choice);
  plan.strategy = value["strategy"].text();
  if (value.has("without")) json::Reader::read(value["without"], plan.without);
  if (value.has("parts")) json::Reader::read(value["parts"], plan.parts);
  json::Reader::read(value["target"], plan.target);
  plan.cudnn_version = value["cudnn_version"].integer();
  if (value.has("nvrtc_version")) plan.nvrtc_version = value["nvrtc_version"].text();
  json::Reader::read(value["program"], plan.program);
  plan.compiled = value["compiled"].list(read_compiled);
  manifest.parts = value["compiled"].list(read_part);
  if (value.has("kernels")) manifest.kernels = value["kernels"].list(read_image);
  plan.kernels.resize(manifest.kernels.size());
  if (plan.program.steps.size() > kMaxSections) value["program"].fail("has too many steps");
  return manifest;
}

// Computes derived values from the valid program; the stored ones must agree.
void check_computed(const json::Value& value, Plan& plan) {
  if (value["workspace_bytes"].integer() != plan.workspace_bytes()) {
    value["workspace_bytes"].fail("is not what the steps need");
  }
  plan.signature = signature_of(plan);
  if (value["signature"].text() != plan.signature.hash.to_hex()) {
    value["signature"].fail("does not match the content");
  }
}

// Checks the sizes against q, which is [B, Hq, Sq, Dqk].
Status check_shape(const Plan& plan) {
  const auto q = std::ranges::find(plan.program.tensors, TensorRole::query, &TensorInfo::role);
  if (q == plan.program.tensors.end()) return {};
  const Sizes& sizes = plan.shape.sizes;
  const std::vector<std::int64_t> dims = {sizes[Dim::B], sizes[Dim::Hq], sizes[Dim::Sq],
                                          sizes[Dim::Dqk]};
  if (q->dims == dims) return {};
  return {ErrorCode::plan_damaged, "$.shape.sizes: do not match q"};
}

Status check_compiled(const Manifest& manifest) {
  const Plan& plan = manifest.plan;
  const std::size_t compiled = plan.compiled.size() + plan.kernels.size();
  if (plan.compiled.size() == steps_of<CudnnStep>(plan.program).size() &&
      plan.kernels.size() == sources_of(plan.program).size()) {
    return {};
  }
  return {ErrorCode::plan_damaged,
          fmt::format("{} steps{}, {} of them compiled", plan.program.steps.size(),
                      plan.program.check ? " and a check" : "", compiled)};
}

std::size_t count_values(const Json& json) {
  std::size_t count = 1;
  if (!json.is_structured()) return count;
  for (const Json& inner : json) count += count_values(inner);
  return count;
}

Error manifest_damaged(const Error& error) {
  return {ErrorCode::plan_damaged, "the plan file's manifest: " + error.message, error.notes,
          error.payload};
}

}  // namespace

Json manifest_value(const Plan& plan) { return json_of(plan); }

std::string manifest_json(const Plan& plan) { return json_of(plan).dump(); }

std::size_t manifest_values(const Plan& plan) { return count_values(json_of(plan)); }

Result<Manifest> read_manifest(std::string_view text) {
  const auto document =
      json::parse(text, {.bytes = kMaxManifestBytes, .values = kMaxManifestValues});
  if (!document.ok()) return manifest_damaged(document.error());
  json::Failure failure;
  const json::Value value(*document, failure);
  Manifest manifest = read(value);
  if (Status status = failure.status(); !status.ok()) return manifest_damaged(status.error());
  if (Status status = check_compiled(manifest); !status.ok())
    return manifest_damaged(status.error());
  if (Status status = validate(manifest.plan.program); !status.ok())
    return manifest_damaged(status.error());
  if (Status status = check_shape(manifest.plan); !status.ok())
    return manifest_damaged(status.error());
  check_computed(value, manifest.plan);
  if (Status status = failure.status(); !status.ok()) return manifest_damaged(status.error());
  return manifest;
}

}  // namespace attn::plan
