// Where what happens is told: a function of the application's, or nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace attn::log {

enum class Level : std::uint8_t { debug, info, warning, error };
std::string_view to_string(Level level);

// Called on the thread on which it happens, possibly by several at once, never while a lock is
// held and never by an execute that succeeds. `message` is one sentence and lives as long as the
// call.
using Sink = std::function<void(Level level, std::string_view message)>;

}  // namespace attn::log
