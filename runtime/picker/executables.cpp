#include "runtime/picker/executables.h"

namespace attn::picker {

Result<std::unique_ptr<ExecutablePicker>> pick_executables(
    PickerOptions options, std::shared_ptr<execute::ExecutableCache> cache) {
  if (!options.fits) {
    options.fits = [cache](const plan::Plan& plan) {
      return execute::Executable::check_fits(cache->runtime(), plan);
    };
  }
  if (options.sm == 0) options.sm = cache->runtime().device().sm();
  return ExecutablePicker::create(
      std::move(options),
      [cache = std::move(cache)](const plan::Plan& plan) { return cache->get(plan); });
}

}  // namespace attn::picker
