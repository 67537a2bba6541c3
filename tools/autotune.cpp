#include "tools/autotune.h"

#include <fmt/format.h>

#include <memory>

#include "tools/console.h"
#include "tools/timed.h"

namespace attn::tools {
namespace {

using driver::Autotune;

Autotune autotune_of(const Tuning& tuning, bool is_local) {
  if (tuning.all) return Autotune::all;
  return tuning.never || !is_local ? Autotune::never : Autotune::near;
}

}  // namespace

void add_autotune(CLI::App& command, Tuning& tuning) {
  command.add_flag(
      "--autotune", tuning.all,
      "Compile every program of every strategy, measure each on the local GPU and take the "
      "fastest; the plan file records the measurements");
  command
      .add_flag("--no-autotune", tuning.never,
                "Measure nothing; without it, engines that are predicted to take about as long are "
                "measured where the target is the local GPU")
      ->excludes("--autotune");
}

void set_autotune(driver::CompileOptions& how, const Tuning& tuning, bool is_local,
                  const std::string& cudnn_folder) {
  how.autotune = autotune_of(tuning, is_local);
  const auto progress = std::make_shared<Progress>("autotune", 0);
  how.measure = [=, is_near = how.autotune == Autotune::near](const ir::Attention& attention,
                                                              const plan::Plan& plan) {
    progress->show(0, fmt::format("{} of `{}`", plan.strategy, attention.name));
    tell_detail(fmt::format("measure strategy {}", plan.strategy));
    const Result<double> ms = device_ms(attention, plan, cudnn_folder);
    if (is_near && !ms.ok()) {
      tell_note(
          fmt::format("note: `{}` is planned by predictions alone: {} could not be measured: {}",
                      attention.name, plan.strategy, ms.error().message));
    }
    return ms;
  };
}

}  // namespace attn::tools
