// The attention that is being planned, with what strategies ask of it several times, computed once.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <typeindex>

#include "compiler/engines/shared/partition.h"
#include "compiler/engines/shared/segments.h"
#include "compiler/ir/attention.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/masks/padding.h"
#include "compiler/rewrite/cancelled.h"
#include "compiler/target/context.h"

namespace attn::engines {

// Dimensions must be bound for everything but attention(), context() and mask(). Not thread-safe.
class Subject {
 public:
  // Both must outlive it.
  Subject(const ir::Attention& attention, const target::Context& context);
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  const ir::Attention& attention() const { return attention_; }
  const target::Context& context() const { return context_; }
  const masks::MaskAnalysis& mask() const { return *mask_; }

  // Terms that softmax cancels, taken out of the score; null for a backward, and without the
  // rewrite `cancelled`.
  const rewrite::Cancelled* cancelled();
  // What a single fused kernel computes (rewrite/pass.h).
  const ir::Attention& form();
  double predicted_ms_of_form();

  const std::optional<Partition>& partition();
  const std::optional<Segments>& segments();
  const std::optional<masks::Padding>& padding();

  // What an engine keeps of this attention: a value of a type that is the engine's own, which
  // `make` gives as a std::unique_ptr at the first call. Null if that is null.
  template <typename Value, typename Make>
  Value* kept(const Make& make) {
    const auto [found, first] = kept_.try_emplace(std::type_index(typeid(Value)));
    if (first) found->second = std::shared_ptr<Value>(make());
    return static_cast<Value*>(found->second.get());
  }

 private:
  const ir::Attention& attention_;
  const target::Context& context_;
  masks::Analyzed mask_;
  std::optional<std::optional<rewrite::Cancelled>> cancelled_;
  std::optional<ir::Attention> form_;
  std::optional<double> predicted_ms_of_form_;
  std::optional<std::optional<Partition>> partition_;
  std::optional<std::optional<Segments>> segments_;
  std::optional<std::optional<masks::Padding>> padding_;
  std::map<std::type_index, std::shared_ptr<void>> kept_;
};

}  // namespace attn::engines
