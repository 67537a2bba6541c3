#include "runtime/plan/manifest.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/plan/plan_members.h"

namespace attn::plan {
namespace {

using Json = nlohmann::ordered_json;

PlanPart read_part(const json::Value& value) {
  return {static_cast<std::uint64_t>(
              value["plan_bytes"].integer(0, static_cast<std::int64_t>(kMaxPlanBytes))),
          value["plan_hash"].text()};
}

PlanPart read_image(const json::Value& value) {
  value.only({"bytes", "hash"});
  return {static_cast<std::uint64_t>(
              value["bytes"].integer(0, static_cast<std::int64_t>(kMaxPlanBytes))),
          value["hash"].text()};
}

// Checks only the form: nothing is looked up or computed until the program is known to be valid.
Manifest read(const json::Value& value) {
  Manifest manifest{json::read_members<Plan>(value), {}, {}};
  Plan& plan = manifest.plan;
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

Json manifest_value(const Plan& plan) { return json::json_of(plan); }

std::string manifest_json(const Plan& plan) { return manifest_value(plan).dump(); }

std::size_t manifest_values(const Plan& plan) { return count_values(manifest_value(plan)); }

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
