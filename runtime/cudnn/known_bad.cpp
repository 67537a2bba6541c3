#include "runtime/cudnn/known_bad.h"

namespace attn::cudnn {
namespace {

bool holds(const KnownBad& row, const Circumstances& at) {
  return row.first <= at.version && at.version <= row.last && row.first_sm <= at.sm &&
         at.sm <= row.last_sm && (row.features & ~at.features).none();
}

}  // namespace

std::span<const KnownBad> known_bad() {
#define ATTN_FEATURES(...) \
  { __VA_ARGS__ }
#define ATTN_KNOWN_BAD(name, first, last, first_sm, last_sm, engine, features, what, help, source) \
  {#name, first, last,  first_sm, last_sm, engine, features_of(ATTN_FEATURES features),            \
   what,  help,  source},
  static const KnownBad kRows[] = {
#include "runtime/cudnn/known_bad.def"
  };
#undef ATTN_KNOWN_BAD
#undef ATTN_FEATURES
  return kRows;
}

const KnownBad* find_known_bad(const Circumstances& circumstances, std::int64_t engine) {
  for (const KnownBad& row : known_bad()) {
    if (row.engine == engine && holds(row, circumstances)) return &row;
  }
  return nullptr;
}

}  // namespace attn::cudnn
