#include "compiler/target/capabilities.h"

#include <limits>
#include <optional>

#include "runtime/base/check.h"

namespace attn::target {
namespace {

constexpr std::int64_t kLastVersion = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLastSm = std::numeric_limits<std::int64_t>::max();

struct Row {
  Capability capability;
  std::int64_t value, first_version, last_version, first_sm, last_sm;
};
constexpr Row kRows[] = {
#define ATTN_CAPABILITY(name, value, first_version, last_version, first_sm, last_sm, source) \
  {Capability::name, value, first_version, last_version, first_sm, last_sm},
#define ATTN_CAPABILITY_AGAIN ATTN_CAPABILITY
#include "compiler/target/capabilities.def"
};

bool contains(std::int64_t first, std::int64_t last, std::int64_t value) {
  return first <= value && value <= last;
}

}  // namespace

std::int64_t limit(Capability capability, const Context& context) {
  const std::int64_t version = context.cudnn_version == 0 ? kLastVersion : context.cudnn_version;
  std::optional<std::int64_t> value;
  for (const Row& row : kRows) {
    if (row.capability != capability || !contains(row.first_version, row.last_version, version) ||
        !contains(row.first_sm, row.last_sm, context.gpu.sm)) {
      continue;
    }
    value = row.value;
  }
  ATTN_CHECK(value.has_value(), "a row for every version and GPU");
  return *value;
}

}  // namespace attn::target
