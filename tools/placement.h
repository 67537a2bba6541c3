// Converts between values in logical order and the bytes of a program's tensors in memory,
// including thd and paged tensors.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "compiler/reference/evaluate.h"
#include "runtime/base/status.h"
#include "runtime/io/host_tensor.h"
#include "runtime/plan/program.h"

namespace attn::tools {

// What memory holds that no result may depend on: rows of q, k, v and do from the length of their
// batch on, elements without a row, and entries of page tables without a page. `finite`: the rows
// that are given, a number, and page 0; `anything`: NaN, infinities and the largest numbers in
// both, and numbers of pages that are not there.
enum class Unused : std::uint8_t { finite, anything };

// The program, where tensors with bound strides have others than the plan's: heads inside rows,
// with gaps after heads, rows and pages, and a page more; rows of page tables have gaps, too.
plan::Program with_other_strides(plan::Program program);

// Sequences are packed one after the other. Pages are taken from the pool in scrambled order, to
// expose a kernel that ignores the page table; page 0 is the last. The program and inputs must
// outlive the object.
class Placement {
 public:
  // Errors: invalid_argument when a pool has fewer pages than the lengths need.
  static Result<Placement> create(const plan::Program& program, const reference::Inputs& inputs,
                                  Unused unused = Unused::finite);

  // The bytes of an input, or of a control tensor. Errors: invalid_argument for a value that does
  // not fit.
  Result<std::vector<std::byte>> bytes_of(const plan::TensorInfo& tensor) const;

  // An output in logical order. Rows that are not in memory get the values of a row with no visible
  // key: 0, and -inf in lse and max.
  Result<io::HostTensor> logical(const plan::TensorInfo& tensor,
                                 std::span<const std::byte> bytes) const;

 private:
  std::vector<std::byte> formatted(const plan::TensorInfo& tensor,
                                   const io::HostTensor& values) const;
  Placement(const plan::Program& program, const reference::Inputs& inputs, Unused unused)
      : program_(program), inputs_(inputs), unused_(unused) {}

  Status place(const plan::TensorInfo& tensor);
  io::HostTensor with_unused(const std::string& name) const;
  Status place_pages(const plan::TensorInfo& table);
  const plan::TensorInfo& pool_of(const plan::TensorInfo& table) const;
  // Calls visit(index in logical order, offset in memory) for each element that is in memory.
  template <typename Visit>
  void for_each_place(const plan::TensorInfo& tensor, const std::vector<std::int64_t>& dims,
                      const Visit& visit) const;

  const plan::Program& program_;
  const reference::Inputs& inputs_;
  const Unused unused_;
  std::map<std::string, std::vector<std::int64_t>> controls_;  // by name
};

}  // namespace attn::tools
