#include "tools/target_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/planner/search.h"
#include "compiler/support/text.h"
#include "compiler/target/capabilities.h"
#include "runtime/cache/folder.h"
#include "runtime/cuda/device.h"
#include "runtime/cudnn/compile.h"
#include "runtime/cudnn/library.h"
#include "runtime/targets/targets.h"
#include "tools/console.h"
#include "tools/words.h"

namespace attn::tools {

void add_target_option(CLI::App& command, std::string& target) {
  command
      .add_option("--target", target,
                  "GPU to compile for (`attnc target list`); native is the local GPU")
      ->type_name("NAME|FILE.json|native")
      ->check(CLI::Suggest(target_words({"native"})));
}

void add_targets_option(CLI::App& command, std::string& targets) {
  command
      .add_option("--target", targets,
                  "GPUs to compile for (`attnc target list`), each of another compute capability; "
                  "native is the local GPU")
      ->type_name("NAME[,NAME]|FILE.json|native")
      ->check(CLI::Suggest(target_words({"native"})));
}

std::vector<std::string> target_words(std::vector<std::string> more) {
  for (const std::string& name : targets::target_names()) more.push_back(name);
  for (const targets::Alias& alias : targets::aliases()) more.emplace_back(alias.name);
  return more;
}

namespace {

// attnc's own kernels run on every GPU since compute capability 8.0.
Result<plan::Target> target_without_cudnn(const cuda::Device& device, const Error& why) {
  Result<plan::Target> alike = targets::find_target(fmt::format("sm_{}", device.sm()));
  const bool runs =
      alike.ok() && target::can(target::Capability::warp_products, {.gpu = target::gpu_of(*alike)});
  return runs ? std::move(alike) : Result<plan::Target>(why);
}

}  // namespace

Result<plan::Target> native_target(const std::string& cudnn_folder) {
  ATTN_ASSIGN(const cuda::Device device, cuda::Device::open(0));
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(device));
  const auto library = cudnn::Library::load(cudnn_folder);
  if (!library.ok()) return target_without_cudnn(device, library.error());
  ATTN_ASSIGN(const std::string json, cudnn::device_json_of_current_device(**library));
  return targets::make_target(device.name(), json);
}

Error needs_device(std::string_view command, const Error& why) {
  const char* const what = why.code == ErrorCode::cudnn ? "cuDNN on this GPU" : "a GPU";
  return {why.code,
          fmt::format("{} needs {}: {}", command, what, why.message),
          {"without a GPU, `attnc run SPEC --backend reference` computes the same, densely"}};
}

namespace {

Result<plan::Target> local_or_none(const std::string& cudnn_folder) {
  Result<plan::Target> target = native_target(cudnn_folder);
  if (target.ok() || target.error().code != ErrorCode::cuda) return target;
  Error error = target.error();
  error.notes.emplace_back(
      "to compile without a GPU, select one with --target (`attnc target list`)");
  return error;
}

}  // namespace

Result<plan::Target> find_target(const std::string& text, const std::string& cudnn_folder) {
  Result<plan::Target> target =
      text == "native" ? local_or_none(cudnn_folder) : targets::find_target(text);
  if (target.ok()) {
    tell_detail(fmt::format("target {}, {}", target->name, runs_on_text(target->sm)));
    return target;
  }
  const bool is_unknown =
      target.error().code == ErrorCode::invalid_argument && target.error().notes.empty();
  if (!is_unknown || text.ends_with(".json")) return target;
  const std::vector<std::string> words = target_words({"native"});
  const std::vector<std::string_view> views(words.begin(), words.end());
  const std::string_view meant = support::nearest(text, views);
  if (meant.empty()) return target;
  Error error = target.error();
  error.notes.push_back(fmt::format("did you mean {}?", support::quoted(meant)));
  return error;
}

std::string doubt_of(const plan::Target& target, std::int64_t cudnn_version) {
  constexpr std::int64_t kNeverCompares = 91999;  // tested: 9.19 does not compare
  if (cudnn_version <= kNeverCompares || !targets::is_from_data_sheet(target)) return "";
  return fmt::format(
      "cuDNN {} may refuse this plan: the properties of {} come from a data sheet, and cuDNN "
      "compares "
      "them with the GPU's (`attnc target dump` on the GPU prints the exact ones)",
      cudnn::version_text(cudnn_version), target.name);
}

namespace {

void add_rewrites(CLI::App& command, target::Rewrites& rewrites) {
  std::vector<std::string> names;
  for (const target::Rewrite& rewrite : target::rewrites()) names.emplace_back(rewrite.name);
  const auto leave_out = [&rewrites](const std::vector<std::string>& given) {
    for (const std::string& name : given) rewrites = target::without(name, rewrites);
  };
  command
      .add_option_function<std::vector<std::string>>(
          "--without", leave_out,
          fmt::format("Mask and score rewrites to disable ({})", fmt::join(names, ", ")))
      ->type_name("NAME[,NAME]")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(names));
}

// Which of attnc's kernels there are, by what is left out.
void add_skeleton(CLI::App& command, target::Rewrites& rewrites) {
  const auto leave_out = [&rewrites](const std::vector<std::string>& names) {
    for (const target::Form& form : target::forms()) {
      if (std::ranges::find(names, form.skeleton) != names.end()) rewrites.*form.may = false;
    }
    if (!rewrites.long_forms && !rewrites.short_forms)
      throw CLI::ValidationError("--skeleton", "`short` and `long` exclude each other");
  };
  command
      .add_option_function<std::vector<std::string>>(
          "--skeleton", leave_out,
          "Skeleton of attnc's own kernels: mma, which every GPU since compute capability 8.0 "
          "runs, to check it on a 9.0; of those for short sequences, short or long")
      ->default_text("wgmma on compute capability 9.0, else mma; of short and long, the faster")
      ->type_name("NAME[,NAME]")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"mma", "short", "long"}));
}

}  // namespace

void add_strategy(CLI::App& command, std::string& strategy, target::Rewrites& rewrites) {
  const std::vector<std::string> names = planner::strategy_names();
  command
      .add_option(
          "--strategy", strategy,
          fmt::format("Strategy to use ({}); auto takes the one predicted to be fastest that "
                      "can be built",
                      fmt::join(names, ", ")))
      ->type_name("NAME")
      ->check(CLI::IsMember(names));
  const std::vector<std::string> engines = planner::engine_names();
  command
      .add_option(
          "--engine", strategy,
          fmt::format("Use only the strategies of this engine ({})", fmt::join(engines, ", ")))
      ->type_name("NAME")
      ->check(CLI::IsMember(engines))
      ->excludes("--strategy");
  const auto allow = [&strategy](std::int64_t) { strategy = planner::kAnyOrSlow; };
  command
      .add_flag_function("--allow-unfused", allow,
                         "Without a fused kernel, run unfused: slow, with the scores in memory")
      ->excludes("--strategy")
      ->excludes("--engine");
  add_rewrites(command, rewrites);
  add_skeleton(command, rewrites);
  command
      .add_option("--score-memory", rewrites.score_bytes,
                  "Bytes that the scores of a backward may take; larger ones are computed in tiles")
      ->default_text(fmt::format("{}", target::kMostScoreBytes))
      ->type_name("BYTES")
      ->check(CLI::Range(1.0, 0x1p36));
}

void add_build_limits(CLI::App& command, BuildLimits& limits) {
  command
      .add_option("--timeout", limits.seconds,
                  "Seconds that one build may take before the next strategy is tried")
      ->type_name("SECONDS")
      ->check(CLI::Range(1, 1000000));
  command
      .add_option("--memory-limit", limits.mebibytes,
                  "MiB that cuDNN or NVRTC may take in one build before the next strategy is tried")
      ->type_name("MIB")
      ->check(CLI::Range(64, 1 << 24));
}

worker::Options worker_options(const std::string& cudnn_folder, const BuildLimits& limits) {
  worker::Options options;
  options.cudnn_folder = cudnn_folder;
  options.timeout = std::chrono::seconds(limits.seconds);
  options.most_bytes = std::int64_t{limits.mebibytes} << 20;
  const std::string folder = cache::default_folder();
  if (!folder.empty()) options.report_folder = folder + "/repro";
  return options;
}

}  // namespace attn::tools
