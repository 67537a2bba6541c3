// Small tensors that layouts and lengths are controlled by: which of them the caller gives, and a
// derive step for those that follow from others.
//
//   thd        the caller gives cu_seqlens_q or cu_seqlens_kv, i32 [B+1]: where each sequence
//   begins
//              among the rows, from 0 to all of them. Lengths, which are Sq or Skv at most, and the
//              offsets of q, k, v, o and the statistics, in elements, follow.
//   lengths    given, unless they follow from cu_seqlens; of a side that the spec has no lengths
//   of,
//              while the graph needs them, they are Sq or Skv, made once.
//   paged      the caller gives page tables.
//   dropout    the caller gives seed and offset, i64 [1].
#pragma once

#include <set>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

inline constexpr const char* kRowStarts = "cu_seqlens_q";
inline constexpr const char* kColumnStarts = "cu_seqlens_kv";

// What says where the rows of "q", "k", "v", "o" or the statistics ("lse", "max", "sum_exp") lie:
// cu_seqlens of thd tensors, page tables of paged ones; else empty.
std::string addressed_by(const ir::Attention& attention, std::string_view name);

// Where the elements of each batch of a thd tensor begin: "q.offsets" and so on, [B+1].
std::string offsets_name(std::string_view name);
// i32 where every offset fits.
DType offsets_dtype(const ir::Attention& attention);

// The page table that a paged tensor is read by: "page_table" when k and v are paged alike and
// share one, else "page_table_k" or "page_table_v".
std::string page_table_name(const ir::Attention& attention, std::string_view name);

struct Controls {
  std::vector<plan::TensorInfo> given;      // role control
  std::vector<plan::TensorInfo> internals;  // role internal
  std::vector<plan::DeriveStep> steps;
};

// For a graph that reads the tensors `used`.
Controls controls(const ir::Attention& attention, const std::set<std::string>& used);

}  // namespace attn::lowering
