// Caches of keys and values as inference engines lay them out, each as views of one allocation, in
// which all that is no element of a used row is NaN.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/reference/evaluate.h"
#include "runtime/plan/program.h"

namespace attn::testing {

// Where pools [pages, H, page, D] of k and v are in an allocation, in elements.
struct PoolViews {
  std::string name;
  std::int64_t k = 0, v = 0;            // first elements
  std::vector<std::int64_t> strides{};  // of both
  std::int64_t elements = 0;            // of the allocation
  bool shares = false;                  // v is the first columns of k
};

// Sizes of a pool.
struct PoolSizes {
  std::int64_t pages = 1, heads = 1, page = 1, depth = 1;
};

// As k and v are in caches with separate elements: HND first.
std::vector<PoolViews> views_of(const PoolSizes& sizes);
// As v is the first columns of k.
PoolViews views_of_shared(const PoolSizes& sizes);

// The program, whose k and v have these strides and so many pages, and whose page tables' rows are
// apart. k and v must be in pages, with bound strides.
plan::Program viewed(plan::Program program, const PoolViews& views, std::int64_t pages);

// The bytes of the allocation, and of page tables, whose unused entries lead nowhere.
std::vector<std::byte> pool_bytes(const plan::Program& viewed, const reference::Inputs& inputs,
                                  const PoolViews& views);
std::vector<std::byte> table_bytes(const plan::Program& viewed, const reference::Inputs& inputs,
                                   const plan::TensorInfo& table);

// Makes v the first columns of k.
void share_values(reference::Inputs& inputs);

// What of the outputs, in the program's order, differs from the reference; empty if nothing does.
std::string differences(const ir::Attention& attention, const plan::Program& program,
                        const reference::Inputs& inputs,
                        const std::vector<std::vector<std::byte>>& outputs);

// A spec in pages of so many rows. `shared`: v is the first columns of k.
std::string spec_in_pages(std::int64_t page, bool shared = false);

}  // namespace attn::testing
