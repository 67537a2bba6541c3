#include <fmt/format.h>

#include "runtime/base/check.h"
#include "runtime/plan/container.h"
#include "runtime/plan/manifest.h"
#include "runtime/plan/plan.h"

namespace attn::plan {
namespace {

Error damaged(std::string message) { return {ErrorCode::plan_damaged, std::move(message), {}, {}}; }

struct Sections {
  std::vector<Section> manifests;
  std::vector<Section> plans;
};

// Sorts the sections by kind. Optional ones of unknown kinds are left out.
Result<Sections> sort_sections(const std::vector<Section>& sections) {
  Sections sorted;
  for (const Section& section : sections) {
    const bool manifest = section.kind == kManifestSection;
    const bool plan = section.kind == kCudnnPlanSection;
    if (!manifest && !plan) {
      if (section.optional) continue;
      return Error{ErrorCode::plan_newer,
                   fmt::format("the plan file has a section of kind {}", section.kind),
                   {"a newer attnc reads it"},
                   {}};
    }
    if (section.optional || section.packed != plan) {
      return damaged(
          fmt::format("the plan file's section of kind {} has the wrong flags", section.kind));
    }
    (manifest ? sorted.manifests : sorted.plans).push_back(section);
  }
  if (sorted.manifests.size() != 1) {
    return damaged(fmt::format("the plan file has {} manifests", sorted.manifests.size()));
  }
  return sorted;
}

Status read_part(const Section& section, const PlanPart& part, std::size_t& total,
                 CompiledStep& step) {
  if (section.unpacked_bytes != part.bytes) return damaged("a cuDNN plan has the wrong size");
  total += part.bytes;
  if (total > kMaxAllPlanBytes) return damaged("the cuDNN plans are larger than allowed");
  ATTN_ASSIGN(step.cudnn_plan, unpack(section, kMaxPlanBytes));
  if (hash128(step.cudnn_plan).to_hex() != part.hash) {
    return damaged("a cuDNN plan is not the one that the manifest names");
  }
  return {};
}

}  // namespace

std::string serialize(const Plan& plan) {
  ATTN_CHECK(plan.compiled.size() == plan.program.steps.size(), "every step of a plan is compiled");
  const std::string manifest = manifest_json(plan);
  ATTN_CHECK(manifest.size() <= kMaxManifestBytes, "a manifest within the format's limit");
  std::vector<SectionSource> sections = {{kManifestSection, false, false, manifest}};
  for (const CompiledStep& step : plan.compiled) {
    ATTN_CHECK(step.cudnn_plan.size() <= kMaxPlanBytes, "a cuDNN plan within the format's limit");
    sections.push_back({kCudnnPlanSection, true, false, step.cudnn_plan});
  }
  ATTN_CHECK(sections.size() <= kMaxSections, "no more steps than the format's limit");
  return write_container(sections);
}

Result<Plan> deserialize(std::string_view bytes) {
  ATTN_ASSIGN(const std::vector<Section> sections, read_container(bytes));
  ATTN_ASSIGN(const Sections sorted, sort_sections(sections));
  ATTN_ASSIGN(const std::string text, unpack(sorted.manifests.front(), kMaxManifestBytes));
  ATTN_ASSIGN(Manifest manifest, read_manifest(text));
  Plan& plan = manifest.plan;
  if (sorted.plans.size() != plan.compiled.size()) {
    return damaged(fmt::format("the plan file has {} cuDNN plans for {} steps", sorted.plans.size(),
                               plan.compiled.size()));
  }
  std::size_t total = 0;
  for (std::size_t i = 0; i < plan.compiled.size(); ++i) {
    ATTN_RETURN_IF_ERROR(read_part(sorted.plans[i], manifest.parts[i], total, plan.compiled[i]));
  }
  return std::move(plan);
}

}  // namespace attn::plan
