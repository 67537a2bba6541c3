// Pickers that load plans as executables of one device.
#pragma once

#include <memory>

#include "runtime/execute/executable_cache.h"
#include "runtime/picker/picker.h"

namespace attn::picker {

using ExecutablePicker = Picker<execute::Executable>;

// Loads executables through the cache, which several pickers may share. They stay loaded while the
// picker has their plans. Errors: those of Picker::create.
Result<std::unique_ptr<ExecutablePicker>> pick_executables(
    PickerOptions options, std::shared_ptr<execute::ExecutableCache> cache);

}  // namespace attn::picker
