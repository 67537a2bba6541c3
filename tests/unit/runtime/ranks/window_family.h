// A file of two ranks, for the stand-in driver: rows and keys 0..16 are at home on rank 0, 16..32
// on rank 1, whose part also sees keys 8..16. Parts are fake kernels (tests/standin/work.h); those
// that move rows are real.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/bundle.h"
#include "runtime/ranks/family.h"
#include "runtime/ranks/program_json.h"
#include "runtime/ranks/ranks_parameters.h"
#include "tests/standin/plans.h"
#include "tests/standin/work.h"
#include "tests/unit/runtime/ranks/sample_division.h"

namespace attn::ranks::testing {

inline constexpr std::int64_t kHeadsOfWindow = 2, kWidthOfWindow = 8;

inline plan::TensorInfo tensor_of_part(const std::string& name, plan::TensorRole role,
                                       std::int64_t rows, bool has_width) {
  const std::int64_t heads = kHeadsOfWindow, width = kWidthOfWindow;
  if (!has_width) return {name, role, DType::f32, {1, heads, rows}, {heads * rows, rows, 1}};
  return {name,
          role,
          DType::bf16,
          {1, heads, rows, width},
          {heads * rows * width, width, heads * width, 1}};
}

// The plan of a part: one kernel.
inline plan::Plan plan_of_part(const std::string& name, std::int64_t rows, std::int64_t keys,
                               bool backward, int number) {
  using enum plan::TensorRole;
  plan::Program program;
  const auto add = [&](const char* tensor, plan::TensorRole role, std::int64_t size,
                       bool has_width = true) {
    program.tensors.push_back(tensor_of_part(tensor, role, size, has_width));
  };
  add("q", query, rows), add("k", key, keys), add("v", value, keys);
  add("o", backward ? saved : output, rows);
  add("lse", backward ? saved : stats, rows, false);
  if (backward) {
    add("do", cotangent, rows);
    add("dq", gradient, rows), add("dk", gradient, keys), add("dv", gradient, keys);
  }
  program.params = {{"slope", DType::f32}};
  plan::KernelStep step;
  plan::Launch launch{.kernel = "part"};
  for (const plan::TensorInfo& tensor : program.tensors) {
    launch.arguments.emplace_back(plan::TensorOperand{tensor.name});
    if (tensor.is_output()) step.outputs.push_back(tensor.name);
  }
  launch.arguments.emplace_back(plan::ParamOperand{"slope"});
  step.launches = {launch};
  step.source = "// " + name + "\n";
  program.steps.emplace_back(step);
  plan::Plan plan = standin::plan_of(program, {.number = number});
  plan.spec_name = name;
  return plan;
}

inline std::string kernels_of_window() {
  using standin::Role;
  const auto taking = [](standin::Role role, std::size_t bytes) {
    return standin::Work{0, 0, {{role, 0, static_cast<std::int64_t>(bytes)}}};
  };
  return standin::to_json(
      standin::Kernels{{"attn_ranks_copy", taking(Role::scalar, sizeof(RanksCopies))},
                       {"attn_ranks_merge", taking(Role::scalar, sizeof(RanksMerge))},
                       {"attn_ranks_mark", taking(Role::untouched, sizeof(unsigned))}});
}

// Makes the file one of this division.
inline void put(Division division, plan::Family& family) {
  family.kernels = kernels_of_window();
  division.family = family_hash(division, family);
  family.ranks = to_json(division);
}

inline Division window_division(int ranks = 2) {
  Division division;
  division.name = "window";
  division.query_heads = division.key_heads = kHeadsOfWindow;
  division.rows = division.keys = 16 * ranks;
  division.width_qk = division.width_v = kWidthOfWindow;
  division.sharding = std::to_string(ranks) + " ranks";
  using enum plan::TensorRole;
  const auto add = [&](std::vector<WholeTensor>& to, const char* name, plan::TensorRole role) {
    const bool of_f32 = std::string_view(name) == "lse";
    to.push_back(divided_tensor(name, role, of_f32 ? DType::f32 : DType::bf16, division));
  };
  for (auto* to : {&division.forward, &division.backward})
    add(*to, "q", query), add(*to, "k", key), add(*to, "v", value);
  add(division.forward, "o", output), add(division.forward, "lse", stats);
  add(division.backward, "o", saved), add(division.backward, "lse", saved);
  add(division.backward, "do", cotangent);
  for (const char* name : {"dq", "dk", "dv"}) add(division.backward, name, gradient);
  division.params = {{"slope", DType::f32}};
  division.family = "00ff";
  for (int rank = 0; rank < ranks; ++rank) {
    const Intervals home = {{16 * rank, 16 * rank + 16}};
    const Intervals keys = rank == 0 ? home : Intervals{{16 * rank - 8, 16 * rank + 16}};
    const std::string number = std::to_string(rank);
    Program program{rank, {0, kHeadsOfWindow}, home, home, {}, {}, {}, {}, {}};
    program.parts = {{0, home, keys, "part" + number, "back" + number}};
    division.ranks.push_back(std::move(program));
  }
  add_exchanges(division);
  return division;
}

// Forward, where rank 1 computes its own keys first, and in two more stages half of rank 0's each,
// which packs them: they are not adjacent.
inline plan::Family staged_family() {
  plan::Family family;
  family.parts.plans = {plan_of_part("own", 16, 16, false, 1),
                        plan_of_part("far", 16, 8, false, 2)};
  Division division = window_division();
  division.backward.clear();
  for (Program& program : division.ranks) {
    program = {program.rank, program.key_heads, program.rows, program.rows, {}, {}, {}, {}, {}};
    program.parts = {{0, program.rows, program.rows, "own"}};
  }
  division.ranks[1].parts.push_back({1, division.ranks[1].rows, {{4, 8}, {12, 16}}, "far"});
  division.ranks[1].parts.push_back({2, division.ranks[1].rows, {{0, 4}, {8, 12}}, "far"});
  add_exchanges(division);
  put(division, family);
  return family;
}

// Where rank 1 computes keys of rank 0 first, and all compute their own keys last. A third rank
// exchanges nothing.
inline plan::Family own_last_family(int ranks = 2) {
  plan::Family family;
  family.parts.plans = {plan_of_part("far", 16, 8, false, 1), plan_of_part("own", 16, 16, false, 2),
                        plan_of_part("far_back", 16, 8, true, 3),
                        plan_of_part("own_back", 16, 16, true, 4)};
  Division division = window_division(ranks);
  for (Program& program : division.ranks) {
    const Intervals home = program.rows;
    program = {program.rank, program.key_heads, home, home, {}, {}, {}, {}, {}};
    if (program.rank == 1) program.parts.push_back({0, home, {{8, 16}}, "far", "far_back"});
    program.parts.push_back({1, home, home, "own", "own_back"});
  }
  add_exchanges(division);
  put(division, family);
  return family;
}

inline plan::Family window_family() {
  plan::Family family;
  family.parts.plans = {
      plan_of_part("part0", 16, 16, false, 1), plan_of_part("part1", 16, 24, false, 2),
      plan_of_part("back0", 16, 16, true, 3), plan_of_part("back1", 16, 24, true, 4)};
  put(window_division(), family);
  return family;
}

}  // namespace attn::ranks::testing
