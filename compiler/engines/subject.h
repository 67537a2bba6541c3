// The attention that is being planned, with what strategies ask of it several times, computed once.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "compiler/ir/attention.h"
#include "compiler/passes/analysis/mask_analysis.h"
#include "compiler/passes/analysis/padding.h"
#include "compiler/passes/analysis/segments.h"
#include "compiler/passes/rewrite/cancelled.h"
#include "compiler/passes/rewrite/hoist.h"
#include "compiler/passes/strategy/partition.h"
#include "compiler/planning/context.h"

namespace attn::lowering {
class NativePrograms;
}

namespace attn::engines {

// Dimensions must be bound for everything but attention(), context() and mask(). Not thread-safe.
class Subject {
 public:
  // Both must outlive it.
  Subject(const ir::Attention& attention, const planning::Context& context);
  ~Subject();
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  const ir::Attention& attention() const { return attention_; }
  const planning::Context& context() const { return context_; }
  const passes::MaskAnalysis& mask() const { return *mask_; }

  // Terms that softmax cancels, taken out of the score; null for a backward, and without the
  // rewrite `cancelled`.
  const passes::Cancelled* cancelled();
  // What a single fused kernel computes (passes/rewrite/kernel_form.h).
  const ir::Attention& form();
  double predicted_ms_of_form();

  const std::optional<passes::Partition>& partition();
  const std::optional<passes::Segments>& segments();
  const std::optional<passes::Padding>& padding();

  // Those of the engine `native`.
  lowering::NativePrograms& native();
  // The attention with its large masks in a table (native/mask_table.h), and how the table is made;
  // null if it has none.
  struct Tabled;
  Tabled* tabled();

 private:
  const ir::Attention& attention_;
  const planning::Context& context_;
  passes::Analyzed mask_;
  std::optional<std::optional<passes::Cancelled>> cancelled_;
  std::optional<ir::Attention> form_;
  std::optional<double> predicted_ms_of_form_;
  std::optional<std::optional<passes::Partition>> partition_;
  std::optional<std::optional<passes::Segments>> segments_;
  std::optional<std::optional<passes::Padding>> padding_;
  std::unique_ptr<lowering::NativePrograms> native_;
  std::optional<std::unique_ptr<Tabled>> tabled_;
};

struct Subject::Tabled {
  Tabled(passes::Hoisted made, const planning::Context& context)
      : hoisted(std::move(made)), subject(hoisted.attention, context) {}

  const passes::Hoisted hoisted;
  Subject subject;
};

}  // namespace attn::engines
