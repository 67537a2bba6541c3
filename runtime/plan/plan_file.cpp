#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/graph/json_value.h"
#include "runtime/plan/bundle.h"
#include "runtime/plan/container.h"
#include "runtime/plan/manifest.h"
#include "runtime/plan/storage.h"

namespace attn::plan {
namespace {

struct Sections {
  std::vector<Section> manifests;
  std::vector<Section> plans;
  std::vector<Section> kernels;
  std::vector<Section> ranks;
  std::vector<Section> rank_kernels;

  std::vector<Section>* of_kind(std::uint32_t kind) {
    switch (kind) {
      case kManifestSection: return &manifests;
      case kCudnnPlanSection: return &plans;
      case kKernelSection: return &kernels;
      case kRanksSection: return &ranks;
      case kRankKernelsSection: return &rank_kernels;
      default: return nullptr;
    }
  }
};

// Groups the sections by kind. Optional sections of unknown kinds are skipped.
Result<Sections> sort_sections(const std::vector<Section>& sections) {
  Sections sorted;
  for (const Section& section : sections) {
    std::vector<Section>* const list = sorted.of_kind(section.kind);
    if (list == nullptr) {
      if (section.optional) continue;
      return Error{ErrorCode::plan_newer,
                   fmt::format("the plan file has a section of kind {}", section.kind),
                   {"a newer attnc can read it"}};
    }
    if (section.optional || section.packed != (section.kind != kManifestSection)) {
      return damaged(
          fmt::format("the plan file's section of kind {} has the wrong flags", section.kind));
    }
    list->push_back(section);
  }
  if (sorted.ranks.size() > 1) return damaged("the plan file has ranks twice");
  if (sorted.rank_kernels.size() != sorted.ranks.size())
    return damaged("the plan file has ranks without their kernels, or such kernels without ranks");
  if (sorted.manifests.empty()) return damaged("the plan file has no manifest");
  return sorted;
}

// `what` is "cuDNN plan" or "kernel". `left` is how many bytes the remaining parts may unpack to.
Status read_part(const char* what, const Section& section, const PlanPart& part, std::size_t& left,
                 std::string& bytes) {
  if (section.unpacked_bytes != part.bytes) {
    return damaged(fmt::format("a {} has the wrong size", what));
  }
  if (part.bytes > left) return damaged(fmt::format("the {}s are larger than allowed", what));
  left -= part.bytes;
  ATTN_ASSIGN(bytes, unpack(section, kMaxPlanBytes));
  if (hash128(bytes).to_hex() == part.hash) return {};
  return damaged(fmt::format("the hash of a {} does not match the manifest", what));
}

Status check_count(const char* what, std::size_t sections, std::size_t steps) {
  if (sections == steps) return {};
  return damaged(fmt::format("the plan file has {} {}s for {} steps", sections, what, steps));
}

Result<std::vector<Manifest>> read_manifests(const std::vector<Section>& sections) {
  std::vector<Manifest> manifests;
  std::size_t left = kMaxManifestBytes;
  for (const Section& section : sections) {
    ATTN_ASSIGN(const std::string text, unpack(section, left));
    left -= text.size();
    ATTN_ASSIGN(Manifest manifest, read_manifest(text));
    manifests.push_back(std::move(manifest));
  }
  return manifests;
}

// Reads the sections of the manifests' parts, in order: the first plan's, then the second's.
Status read_parts(const Sections& sections, std::size_t& left, std::vector<Manifest>& manifests) {
  auto plan_section = sections.plans.begin();
  auto kernel_section = sections.kernels.begin();
  for (Manifest& manifest : manifests) {
    Plan& plan = manifest.plan;
    for (std::size_t i = 0; i < plan.compiled.size(); ++i) {
      ATTN_RETURN_IF_ERROR(read_part("cuDNN plan", *plan_section++, manifest.parts[i], left,
                                     plan.compiled[i].cudnn_plan));
    }
    for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
      ATTN_RETURN_IF_ERROR(
          read_part("kernel", *kernel_section++, manifest.kernels[i], left, plan.kernels[i]));
    }
  }
  return {};
}

// What a family has besides its plans.
Status read_ranks(const Sections& sections, std::size_t left, Family& family) {
  if (sections.ranks.empty()) return {};
  ATTN_ASSIGN(family.ranks, unpack(sections.ranks.front(), kMaxManifestBytes));
  ATTN_RETURN_IF_ERROR(check_ranks(family.ranks));
  const Section& kernels = sections.rank_kernels.front();
  if (kernels.unpacked_bytes == 0) return damaged("the kernels for ranks are empty");
  ATTN_ASSIGN(family.kernels, unpack(kernels, std::min(left, kMaxPlanBytes)));
  return {};
}

Status check_counts(const Sections& sections, const std::vector<Manifest>& manifests) {
  std::size_t compiled = 0, kernels = 0;
  for (const Manifest& manifest : manifests) {
    compiled += manifest.plan.compiled.size();
    kernels += manifest.plan.kernels.size();
  }
  ATTN_RETURN_IF_ERROR(check_count("cuDNN plan", sections.plans.size(), compiled));
  return check_count("kernel", sections.kernels.size(), kernels);
}

bool are_distinct(std::span<const Plan> plans) {
  std::set<std::string_view> texts;
  for (const Plan& plan : plans) texts.insert(plan.signature.text);
  return texts.size() == plans.size();
}

Status take_plans(std::vector<Manifest> manifests, Family& family) {
  std::vector<Plan>& plans = family.parts.plans;
  for (Manifest& manifest : manifests) plans.push_back(std::move(manifest.plan));
  return are_distinct(plans) ? Status() : damaged("the plan file has the same plan twice");
}

std::size_t section_count(const Plan& plan) {
  return 1 + plan.compiled.size() + plan.kernels.size();
}

std::size_t part_bytes(const Plan& plan) {
  std::size_t bytes = 0;
  for (const CompiledStep& step : plan.compiled) bytes += step.cudnn_plan.size();
  for (const std::string& image : plan.kernels) bytes += image.size();
  return bytes;
}

std::string serialize_all(std::span<const Plan> plans, std::string_view ranks,
                          std::string_view kernels) {
  ATTN_CHECK(!plans.empty() && are_distinct(plans), "a file needs plans, all different");
  ATTN_CHECK(ranks.empty() == kernels.empty(), "ranks need kernels");
  std::vector<std::string> manifests;
  std::size_t manifest_bytes = 0;
  for (const Plan& plan : plans) {
    ATTN_CHECK(plan.compiled.size() == steps_of<CudnnStep>(plan.program).size() &&
                   plan.kernels.size() == sources_of(plan.program).size(),
               "every step of a plan must be compiled");
    manifest_bytes += manifests.emplace_back(manifest_json(plan)).size();
  }
  ATTN_CHECK(manifest_bytes <= kMaxManifestBytes, "the manifest must be within the format's limit");
  std::vector<SectionSource> sections;
  const auto add = [&sections](std::uint32_t kind, std::string_view bytes) {
    ATTN_CHECK(bytes.size() <= kMaxPlanBytes, "a compiled step must be within the format's limit");
    sections.push_back({kind, true, false, bytes});
  };
  for (std::size_t i = 0; i < plans.size(); ++i) {
    sections.push_back({kManifestSection, false, false, manifests[i]});
    for (const CompiledStep& step : plans[i].compiled) add(kCudnnPlanSection, step.cudnn_plan);
    for (const std::string& image : plans[i].kernels) add(kKernelSection, image);
  }
  if (!ranks.empty()) {
    add(kRanksSection, ranks);
    add(kRankKernelsSection, kernels);
  }
  ATTN_CHECK(sections.size() <= kMaxSections, "the steps must be within the format's limit");
  return write_container(sections);
}

bool can_be_unpacked(std::span<const Plan> plans, std::string_view kernels,
                     std::size_t file_bytes) {
  std::size_t unpacked = kernels.size();
  for (const Plan& plan : plans) unpacked += part_bytes(plan);
  return unpacked <= most_unpacked(file_bytes);
}

Error too_large(const Plan& plan) {
  return {ErrorCode::invalid_argument,
          fmt::format("the plan of {} is too large for a file", plan.spec_name),
          {fmt::format("its {} steps need a manifest of {} values; the limit is {}",
                       plan.program.steps.size(), manifest_values(plan), kMaxManifestValues)}};
}

std::string checked(Result<std::string> file) {
  ATTN_CHECK(file.ok(), "kernels must not compress better than the format allows");
  return std::move(file).value();
}

}  // namespace

Status check_ranks(std::string_view text) {
  const Result<nlohmann::json> ranks =
      json::parse(text, {.bytes = kMaxManifestBytes, .members = 1024, .values = kMaxRanksValues});
  if (!ranks.ok()) return damaged("the plan file's ranks: " + ranks.error().message);
  return ranks->is_object() ? Status() : damaged("the plan file's ranks are not a JSON object");
}

Result<std::string> serialize_within_limits(std::span<const Plan> plans, std::string_view ranks,
                                            std::string_view kernels) {
  for (const Plan& plan : plans) {
    if (manifest_values(plan) > kMaxManifestValues) return too_large(plan);
  }
  std::string file = serialize_all(plans, ranks, kernels);
  if (can_be_unpacked(plans, kernels, file.size())) return file;
  return Error{
      ErrorCode::invalid_argument,
      "the kernels compress too well for a plan file",
      {"readers would reject the file as damaged; check whether the kernels are all zeros"}};
}

std::string serialize(const Plan& plan) { return checked(serialize_within_limits({&plan, 1})); }

std::string serialize(const Bundle& bundle) {
  return checked(serialize_within_limits(bundle.plans));
}

namespace {

// Checks that the file is within its limits. `sections` and `parts` count what it has besides the
// plans: sections, and bytes of kernels.
Status fits(const Bundle& bundle, std::size_t sections, std::size_t parts) {
  std::size_t manifests = 0;
  for (const Plan& plan : bundle.plans) {
    sections += section_count(plan);
    manifests += manifest_json(plan).size();
    parts += part_bytes(plan);
  }
  if (sections <= kMaxSections && manifests <= kMaxManifestBytes && parts <= kMaxAllPlanBytes) {
    return {};
  }
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("{} plans are too many for one file", bundle.plans.size()),
      {fmt::format("a file has at most {} sections and {} MiB of kernels; these plans need {} and "
                   "{} MiB; use fewer sizes per file",
                   kMaxSections, kMaxAllPlanBytes >> 20, sections, parts >> 20)}};
}

}  // namespace

Status fits_file(const Bundle& bundle) { return fits(bundle, 0, 0); }

Status fits_file(const Family& family) {
  return fits(family.parts, family.ranks.empty() ? 0 : 2, family.kernels.size());
}

Result<Family> deserialize_family(std::string_view bytes, const CheckBytes& check) {
  if (check) ATTN_RETURN_IF_ERROR(check(bytes));
  ATTN_ASSIGN(const std::vector<Section> sections, read_container(bytes));
  ATTN_ASSIGN(const Sections sorted, sort_sections(sections));
  ATTN_ASSIGN(std::vector<Manifest> manifests, read_manifests(sorted.manifests));
  ATTN_RETURN_IF_ERROR(check_counts(sorted, manifests));
  std::size_t left = most_unpacked(bytes.size());
  ATTN_RETURN_IF_ERROR(read_parts(sorted, left, manifests));
  Family family;
  ATTN_RETURN_IF_ERROR(read_ranks(sorted, left, family));
  ATTN_RETURN_IF_ERROR(take_plans(std::move(manifests), family));
  return family;
}

Result<Bundle> deserialize_bundle(std::string_view bytes) {
  ATTN_ASSIGN(Family family, deserialize_family(bytes));
  if (family.ranks.empty()) return std::move(family.parts);
  return Error{
      ErrorCode::invalid_argument,
      "the plan file is of an attention that is divided among several GPUs",
      {"its plans are parts of the attention: open it with attn::Distributed::open_file or "
       "attn.torch.load_distributed; `attnc inspect` shows it"}};
}

Result<Plan> deserialize(std::string_view bytes, Direction direction) {
  ATTN_ASSIGN(Bundle bundle, deserialize_bundle(bytes));
  return plan_of(std::move(bundle), direction);
}

Result<Plan> deserialize(std::string_view bytes, Direction direction, std::int64_t sm) {
  ATTN_ASSIGN(Bundle bundle, deserialize_bundle(bytes));
  return plan_of(std::move(bundle), direction, sm);
}

}  // namespace attn::plan
