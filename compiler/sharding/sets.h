// Sets of rows and keys, by the names that this folder uses.
#pragma once

#include "runtime/ranks/intervals.h"

namespace attn::sharding {

using ranks::Blocks;
using ranks::Interval;
using ranks::Intervals;
using ranks::numbers;
using ranks::to_text;

}  // namespace attn::sharding
