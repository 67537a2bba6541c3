#include "compiler/engines/shared/subject.h"

#include "compiler/engines/shared/cost.h"
#include "compiler/rewrite/pass.h"

namespace attn::engines {
namespace {

// The value, computed at the first call.
template <typename Value, typename Compute>
Value& once(std::optional<Value>& kept, const Compute& compute) {
  if (!kept) kept.emplace(compute());
  return *kept;
}

}  // namespace

Subject::Subject(const ir::Attention& attention, const target::Context& context)
    : attention_(attention), context_(context), mask_(masks::analyzed(attention, context)) {}

const rewrite::Cancelled* Subject::cancelled() {
  const std::optional<rewrite::Cancelled>& found = once(cancelled_, [this] {
    const bool wanted = context_.rewrites.cancelled && !context_.backward();
    if (!wanted) return std::optional<rewrite::Cancelled>();
    return rewrite::run_pass("cancelled", context_,
                             [this] { return rewrite::without_cancelled(attention_); });
  });
  return found ? &*found : nullptr;
}

const ir::Attention& Subject::form() {
  return once(form_, [this] {
    const rewrite::Cancelled* without = cancelled();
    return rewrite::kernel_form(without != nullptr ? without->attention : attention_, context_);
  });
}

double Subject::predicted_ms_of_form() {
  return once(predicted_ms_of_form_, [this] { return predicted_ms(form(), context_); });
}

const std::optional<Partition>& Subject::partition() {
  return once(partition_, [this] { return best_partition(attention_, context_); });
}

const std::optional<Segments>& Subject::segments() {
  return once(segments_, [this] { return engines::segments(attention_); });
}

const std::optional<masks::Padding>& Subject::padding() {
  return once(padding_, [this] { return masks::padding(attention_, context_); });
}

}  // namespace attn::engines
