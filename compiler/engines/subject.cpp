#include "compiler/engines/subject.h"

#include "compiler/passes/rewrite/kernel_form.h"
#include "compiler/passes/rewrite/pass.h"
#include "compiler/passes/strategy/cost.h"

namespace attn::engines {
namespace {

// The value, computed at the first call.
template <typename Value, typename Compute>
Value& once(std::optional<Value>& kept, const Compute& compute) {
  if (!kept) kept.emplace(compute());
  return *kept;
}

}  // namespace

Subject::Subject(const ir::Attention& attention, const planning::Context& context)
    : attention_(attention), context_(context), mask_(passes::analyzed(attention, context)) {}

const passes::Cancelled* Subject::cancelled() {
  const std::optional<passes::Cancelled>& found = once(cancelled_, [this] {
    const bool wanted = context_.rewrites.cancelled && !context_.backward();
    if (!wanted) return std::optional<passes::Cancelled>();
    return passes::run_pass("cancelled", context_,
                            [this] { return passes::without_cancelled(attention_); });
  });
  return found ? &*found : nullptr;
}

const ir::Attention& Subject::form() {
  return once(form_, [this] {
    const passes::Cancelled* without = cancelled();
    return passes::kernel_form(without != nullptr ? without->attention : attention_, context_);
  });
}

double Subject::predicted_ms_of_form() {
  return once(predicted_ms_of_form_, [this] { return passes::predicted_ms(form(), context_); });
}

const std::optional<passes::Partition>& Subject::partition() {
  return once(partition_, [this] { return passes::best_partition(attention_, context_); });
}

const std::optional<passes::Segments>& Subject::segments() {
  return once(segments_, [this] { return passes::segments(attention_); });
}

const std::optional<passes::Padding>& Subject::padding() {
  return once(padding_, [this] { return passes::padding(attention_, context_); });
}

}  // namespace attn::engines
