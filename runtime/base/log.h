// Log levels, and the application's log callback.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace attn::log {

enum class Level : std::uint8_t { debug, info, warning, error };

// Called on the thread where the event occurs, possibly from several threads at once; never with a
// lock held, and never from a successful execute. `message` is one sentence, valid during the call.
using Sink = std::function<void(Level level, std::string_view message)>;

}  // namespace attn::log
