#include "runtime/cudnn/known_bad.h"

#include <algorithm>
#include <initializer_list>

#include "runtime/cudnn/api.h"

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

namespace {

// Knobs as numbers, under the names of knobs.def.
namespace knobs {
#define ATTN_KNOB(name) constexpr std::int64_t name = CUDNN_KNOB_TYPE_##name;
#include "runtime/cudnn/knobs.def"
#undef ATTN_KNOB
}  // namespace knobs

EngineChoice choice_of(std::int64_t engine, std::initializer_list<plan::Knob> list) {
  EngineChoice choice{engine, list};
  std::ranges::sort(choice.knobs, {}, &plan::Knob::type);
  return choice;
}

std::vector<ChoiceRow> rows() {
  using namespace knobs;  // NOLINT(google-build-using-namespace): the table's words
#define ATTN_LIST(...) \
  { __VA_ARGS__ }
#define ATTN_ENGINE_CHOICE(name, first, last, first_sm, last_sm, engine, features, knobs, source) \
  {#name,                                                                                         \
   first,                                                                                         \
   last,                                                                                          \
   first_sm,                                                                                      \
   last_sm,                                                                                       \
   features_of(ATTN_LIST features),                                                               \
   choice_of(engine, ATTN_LIST knobs),                                                            \
   source},
  return {
#include "runtime/cudnn/engine_choices.def"
  };
#undef ATTN_ENGINE_CHOICE
#undef ATTN_LIST
}

bool holds(const ChoiceRow& row, const Circumstances& at) {
  return row.first <= at.version && at.version <= row.last && row.first_sm <= at.sm &&
         at.sm <= row.last_sm && (row.features & ~at.features).none();
}

}  // namespace

std::span<const ChoiceRow> engine_choices() {
  static const std::vector<ChoiceRow> kRows = rows();
  return kRows;
}

std::vector<EngineChoice> choices_for(const Circumstances& circumstances) {
  std::vector<EngineChoice> choices;
  for (const ChoiceRow& row : engine_choices()) {
    if (holds(row, circumstances)) choices.push_back(row.choice);
  }
  return choices;
}

}  // namespace attn::cudnn
