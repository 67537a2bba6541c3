#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/plan/bundle.h"
#include "runtime/ranks/family.h"
#include "runtime/ranks/program_json.h"
#include "tools/command.h"
#include "tools/compile_ranks.h"
#include "tools/inspection.h"
#include "tools/manifest.h"
#include "tools/plans.h"
#include "tools/report.h"

namespace attn::tools {
namespace inspect_command {
namespace {

struct Options {
  std::string plan;
  sema::Bindings sizes;
  Format format = Format::text;
};

// The manifest of a single plan, or a list of manifests.
Json bundle_json(const plan::Bundle& bundle) {
  Json plans = Json::array();
  for (const plan::Plan& plan : bundle.plans) {
    plans.push_back({{"direction", to_string(plan::direction_of(plan.program))},
                     {"manifest", manifest_of(plan)}});
  }
  if (plans.size() == 1) return plans.front()["manifest"];
  return {{"plans", std::move(plans)}};
}

// The parts of these sizes.
Status select(const sema::Bindings& bindings, plan::Bundle& parts) {
  ATTN_ASSIGN(const plan::Sizes sizes, sizes_of(bindings));
  ATTN_ASSIGN(parts, plan::plans_for(std::move(parts), sizes));
  return {};
}

// Prints the plans of parts, and what ranks do with them.
int inspect_family(const Options& options, plan::Family family) {
  const Result<ranks::Division> division = ranks::parse(family.ranks, 0);
  if (!division.ok()) return report(division.error(), options.format);
  if (const Status whole = ranks::check_family(*division, family); !whole.ok())
    return report(whole.error(), options.format);
  if (const Status selected = select(options.sizes, family.parts); !selected.ok())
    return report(selected.error(), options.format);
  if (options.format == Format::json) {
    Json json = {{"ranks", ranks::json_of(*division)}, {"plans", Json::array()}};
    for (const plan::Plan& plan : family.parts.plans) json["plans"].push_back(manifest_of(plan));
    print_json(json);
    return kOk;
  }
  fmt::print("{}", ranks_text(*division, options.plan));
  for (const plan::Plan& plan : family.parts.plans)
    fmt::print("\n{}", inspect_text(options.plan, family.parts, plan));
  return kOk;
}

int run(const Options& options) {
  Result<plan::Family> family = plan::load_family(options.plan);
  if (family.ok() && !family->ranks.empty()) return inspect_family(options, std::move(*family));
  const Result<plan::Bundle> bundle = read_plans(options.plan, options.sizes);
  if (!bundle.ok()) return report(bundle.error(), options.format);
  if (options.format == Format::json) {
    print_json(bundle_json(*bundle));
    return kOk;
  }
  std::vector<std::string> texts;
  for (const plan::Plan& plan : bundle->plans) {
    texts.push_back(inspect_text(options.plan, *bundle, plan));
  }
  fmt::print("{}", fmt::join(texts, "\n"));
  return kOk;
}

}  // namespace
}  // namespace inspect_command

void add_inspect(CLI::App& app, Action& action) {
  using namespace inspect_command;
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Show the contents of a plan file; needs neither CUDA nor cuDNN");
  command->add_option("plan", options->plan, "Plan file written by `attnc compile`")
      ->type_name("PLAN")
      ->required();
  add_bindings(*command, "NAME=SIZE", options->sizes,
               "Show only the plans of this size (repeatable)");
  add_format(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
