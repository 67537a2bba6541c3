#include "compiler/engines/native/classes.h"

#include <algorithm>

#include "compiler/engines/native/checks.h"
#include "compiler/engines/shared/launches.h"
#include "compiler/engines/shared/operands.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

bool begins_at_zero(const Launch& launch) {
  return std::ranges::all_of(launch.offsets, [](const auto& each) { return each.second == 0; });
}

}  // namespace

Form whole_form(const ir::Attention& attention) {
  const Dims4 strides = statistics_strides(attention);
  const StatisticsPlaces places{
      .batch = strides[0], .head = strides[1], .row = strides[2], .heads = attention.dims[Dim::Hq]};
  if (!attention.gather) return {attention, places};
  ChosenForm form = form_of_chosen(attention);
  return {std::move(form.attention), places, std::move(form.chosen)};
}

std::optional<Form> form_of_classes(const ir::Attention& whole, const Part& classes) {
  Result<std::vector<Launch>> made = launches(whole, {classes});
  if (!made.ok() || made->size() != 1 || !begins_at_zero(made->front())) return std::nullopt;
  Launch& launch = made->front();
  const Stretch& rows = classes.view.rows;
  StatisticsPlaces places = whole_form(whole).statistics;
  if (launch.fold == Fold::batch && whole.dims[Dim::B] == 1) {
    places.batch = rows.shift * places.row;
  } else if (launch.fold == Fold::heads) {
    places.of_class = rows.shift * places.row;
  } else {
    return std::nullopt;
  }
  places.row *= rows.step;
  return Form{std::move(launch.attention), places};
}

std::optional<Form> readable_classes(const ir::Attention& whole, const std::optional<Part>& classes,
                                     std::initializer_list<const char*> names) {
  std::optional<Form> form = classes ? form_of_classes(whole, *classes) : std::nullopt;
  if (!form) return std::nullopt;
  const auto readable = [&](const char* name) { return check_layout(form->attention, name).ok(); };
  return std::ranges::all_of(names, readable) ? std::move(form) : std::nullopt;
}

std::optional<Part> classes_of(const ir::Attention& whole, const target::Context& context) {
  if (whole.masks.empty() || whole.gather || whole.lengths_q || whole.lengths_kv)
    return std::nullopt;
  if (whole.dropout && !whole.dropout->keep) return std::nullopt;
  return residue_classes(whole, context);
}

}  // namespace attn::engines::native
