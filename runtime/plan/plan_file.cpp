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
  std::vector<Section> kernels;

  std::vector<Section>* of_kind(std::uint32_t kind) {
    switch (kind) {
      case kManifestSection: return &manifests;
      case kCudnnPlanSection: return &plans;
      case kKernelSection: return &kernels;
      default: return nullptr;
    }
  }
};

// Sorts the sections by kind. Optional ones of unknown kinds are left out.
Result<Sections> sort_sections(const std::vector<Section>& sections) {
  Sections sorted;
  for (const Section& section : sections) {
    std::vector<Section>* const list = sorted.of_kind(section.kind);
    if (list == nullptr) {
      if (section.optional) continue;
      return Error{ErrorCode::plan_newer,
                   fmt::format("the plan file has a section of kind {}", section.kind),
                   {"a newer attnc reads it"},
                   {}};
    }
    if (section.optional || section.packed != (section.kind != kManifestSection)) {
      return damaged(
          fmt::format("the plan file's section of kind {} has the wrong flags", section.kind));
    }
    list->push_back(section);
  }
  if (sorted.manifests.size() != 1) {
    return damaged(fmt::format("the plan file has {} manifests", sorted.manifests.size()));
  }
  return sorted;
}

// `what` is "cuDNN plan" or "kernel".
Status read_part(const char* what, const Section& section, const PlanPart& part, std::size_t& total,
                 std::string& bytes) {
  if (section.unpacked_bytes != part.bytes) {
    return damaged(fmt::format("a {} has the wrong size", what));
  }
  total += part.bytes;
  if (total > kMaxAllPlanBytes) {
    return damaged(fmt::format("the {}s are larger than allowed", what));
  }
  ATTN_ASSIGN(bytes, unpack(section, kMaxPlanBytes));
  if (hash128(bytes).to_hex() == part.hash) return {};
  return damaged(fmt::format("a {} is not the one that the manifest names", what));
}

Status check_count(const char* what, std::size_t sections, std::size_t steps) {
  if (sections == steps) return {};
  return damaged(fmt::format("the plan file has {} {}s for {} steps", sections, what, steps));
}

}  // namespace

std::string serialize(const Plan& plan) {
  ATTN_CHECK(plan.compiled.size() == steps_of<CudnnStep>(plan.program).size() &&
                 plan.kernels.size() == kernel_count(plan.program),
             "every step of a plan is compiled");
  const std::string manifest = manifest_json(plan);
  ATTN_CHECK(manifest.size() <= kMaxManifestBytes, "a manifest within the format's limit");
  std::vector<SectionSource> sections = {{kManifestSection, false, false, manifest}};
  const auto add = [&sections](std::uint32_t kind, const std::string& bytes) {
    ATTN_CHECK(bytes.size() <= kMaxPlanBytes, "a compiled step within the format's limit");
    sections.push_back({kind, true, false, bytes});
  };
  for (const CompiledStep& step : plan.compiled) add(kCudnnPlanSection, step.cudnn_plan);
  for (const std::string& image : plan.kernels) add(kKernelSection, image);
  ATTN_CHECK(sections.size() <= kMaxSections, "no more steps than the format's limit");
  return write_container(format_version_of(plan), sections);
}

Result<Plan> deserialize(std::string_view bytes) {
  ATTN_ASSIGN(const Container container, read_container(bytes));
  ATTN_ASSIGN(const Sections sorted, sort_sections(container.sections));
  ATTN_ASSIGN(const std::string text, unpack(sorted.manifests.front(), kMaxManifestBytes));
  ATTN_ASSIGN(Manifest manifest, read_manifest(text));
  Plan& plan = manifest.plan;
  if (format_version_of(plan) != container.version) {
    return damaged("the plan file's header and manifest differ in their version");
  }
  ATTN_RETURN_IF_ERROR(check_count("cuDNN plan", sorted.plans.size(), plan.compiled.size()));
  ATTN_RETURN_IF_ERROR(check_count("kernel", sorted.kernels.size(), plan.kernels.size()));
  std::size_t total = 0;
  for (std::size_t i = 0; i < plan.compiled.size(); ++i) {
    ATTN_RETURN_IF_ERROR(read_part("cuDNN plan", sorted.plans[i], manifest.parts[i], total,
                                   plan.compiled[i].cudnn_plan));
  }
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
    ATTN_RETURN_IF_ERROR(
        read_part("kernel", sorted.kernels[i], manifest.kernels[i], total, plan.kernels[i]));
  }
  return std::move(plan);
}

}  // namespace attn::plan
