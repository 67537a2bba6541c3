// What the steps of making a schedule share. Internal to runtime/ranks.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ranks/schedule.h"

namespace attn::ranks {

class Planning {
 public:
  explicit Planning(const ScheduleInputs& inputs);

  const Division& division() const { return inputs_.division; }
  const Program& program() const { return inputs_.program; }
  bool is_backward() const { return inputs_.direction == plan::Direction::backward; }
  const plan::Program* plan(std::size_t part) const { return inputs_.parts[part]; }
  std::size_t parts() const { return program().parts.size(); }

  // The heads that belong to key heads; for rows, query heads.
  Interval heads(Divided of, Interval key_heads) const;
  Interval own_heads(Divided of) const { return heads(of, program().key_heads); }
  Interval all_heads(Divided of) const { return heads(of, {0, division().key_heads}); }
  const Intervals& indices(Divided of, const Part& part) const;
  const Intervals& home_indices(Divided of) const;

  const std::vector<WholeTensor>& tensors() const;
  std::optional<std::size_t> find(std::string_view name) const;  // among the caller's tensors
  // A divided tensor of the caller's, or nothing.
  std::optional<Place> home(std::string_view name) const;
  std::int64_t width(std::string_view name) const;  // of a tensor that is exchanged
  Place of_message(const Message& message, const Payload& payload) const;
  // Errors: plan_damaged if its dims are others than those of the part.
  Result<Place> of_part(std::size_t part, const plan::TensorInfo& tensor, Divided of) const;

  // Results leave after this stage, or a later one.
  void leave_after(std::size_t stage) {
    schedule.results_after = std::max(schedule.results_after, stage);
  }

  // Memory for a tensor of a plan.
  Address allocate(const plan::TensorInfo& tensor);
  // A copy of what both have. Rows need not be adjacent.
  Copy copy(const Place& from, const Place& to, const Intervals& indices);

  Layout memory{Address::In::memory};
  Table table;
  Schedule schedule;

 private:
  const ScheduleInputs& inputs_;
};

Error damaged(std::string message);

// Where inputs of parts are, and how they get there. Errors: plan_damaged.
Status plan_inputs(Planning& planning);
// Where outputs of parts are, and how they become those of the caller. Errors: plan_damaged.
Status plan_results(Planning& planning);
// Sums of gradients of learned tensors. Errors: plan_damaged.
Status plan_learned(Planning& planning);

}  // namespace attn::ranks
