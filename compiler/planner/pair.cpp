#include "compiler/planner/pair.h"

#include <fmt/format.h>

#include <algorithm>

namespace attn::planner {

using plan::Direction;

Pair::Pair(const ir::Attention& attention, std::string_view name, const target::Context& context)
    : attention_(attention), name_(name), context_(context) {}

Result<std::unique_ptr<Search>> Pair::search(Direction direction) {
  ATTN_RETURN_IF_ERROR(compare());
  if (taken_ == nullptr) {
    return std::make_unique<Search>(attention_, name_, in_direction(context_, direction));
  }
  std::unique_ptr<Search> search = std::move(taken_->half(direction).search);
  search->begin();
  for (OfEngine& other : engines_) {
    if (&other != taken_) leave_out(other, direction, *search);
  }
  return search;
}

Status Pair::compare() {
  const bool any = name_ == kAnyLowering || name_ == kAnyOrSlow;
  if (std::exchange(is_compared_, true) || !attention_.is_random() || !any) return {};
  for (const engines::Engine& engine : engines::engines()) {
    if (engine.strategies.front().kind == Strategy::Kind::slow) continue;  // it draws no numbers
    ATTN_RETURN_IF_ERROR(add(engine));
  }
  take_best();
  return {};
}

void Pair::take_best() {
  for (OfEngine& each : engines_) {
    if (each.half(Direction::backward).refused) continue;
    const bool is_first = taken_ == nullptr || !taken_->serves();
    if (is_first || (each.serves() && each.place() < taken_->place())) taken_ = &each;
  }
}

bool Pair::take_other(Direction direction, const Error& error) {
  const bool is_other_left = std::ranges::any_of(
      engines_, [this](const OfEngine& each) { return &each != taken_ && each.serves(); });
  if (!may_try_another(error) || taken_ == nullptr || !is_other_left) return false;
  taken_->half(direction).refused = error;
  take_best();
  return true;
}

Status Pair::add(const engines::Engine& engine) {
  OfEngine& of = engines_.emplace_back();
  of.engine = &engine;
  for (const Direction direction : {Direction::backward, Direction::forward}) {
    Half& half = of.half(direction);
    half.search =
        std::make_unique<Search>(attention_, engine.name, in_direction(context_, direction));
    const Result<Candidate*> best = half.search->next();
    if (best.ok()) {
      of.ms += (*best)->compared_ms();
      if ((*best)->turn() > of.turn)
        of.turn = (*best)->turn(), of.long_build = (*best)->long_build();
      continue;
    }
    if (best.error().code != ErrorCode::unsupported) return best.error();
    const std::vector<Refusal> refused = in_order(half.search->refused().told);
    half.refused = refused.empty() ? best.error() : refused.front().error;
    break;
  }
  return {};
}

void Pair::leave_out(OfEngine& other, Direction direction, Search& search) {
  Refusal refusal{std::string(other.engine->strategies.front().name), {}};
  if (const auto& own = other.half(direction).refused) {
    refusal.error = *own;
    return search.refuse(refusal);
  }
  const bool is_forward = direction == Direction::forward;
  const Direction opposite = is_forward ? Direction::backward : Direction::forward;
  if (const auto& refused = other.half(opposite).refused) {
    refusal.error = *refused;
    refusal.error.message =
        fmt::format("its {} is refused: {}", plan::to_string(opposite), refused->message);
  } else if (other.long_build) {
    refusal.error = {ErrorCode::unsupported,
                     other.long_build->message,
                     {fmt::format("`--engine {}` takes it", other.engine->name)}};
  } else {
    refusal.error = {ErrorCode::unsupported,
                     fmt::format("both directions must draw the same random numbers, and are "
                                 "predicted to take {:.3f} ms by `{}`, {:.3f} ms by `{}`",
                                 other.ms, other.engine->name, taken_->ms, taken_->engine->name),
                     {fmt::format("`--engine {}` takes it", other.engine->name)}};
  }
  search.leave_out(refusal);
}

}  // namespace attn::planner
