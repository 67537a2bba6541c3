// Control tensors: small tensors that layouts, lengths and dropout need. The caller binds some, and
// derive steps compute the others.
//
//   thd        the caller binds cu_seqlens_q or cu_seqlens_kv, i32 [B+1]: where each sequence
//              begins among the rows, from 0 to all of them. Lengths, at most Sq or Skv, and the
//              offsets of q, k, v, o and the statistics, in elements, are derived.
//   lengths    bound, unless derived from cu_seqlens. If the graph needs lengths that the spec does
//              not have, they are Sq or Skv, materialized once.
//   paged      the caller binds page tables.
//   dropout    the caller binds seed and offset, i64 [1].
#pragma once

#include <set>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines {

inline constexpr const char* kRowStarts = "cu_seqlens_q";
inline constexpr const char* kColumnStarts = "cu_seqlens_kv";
// The state of dropout's random numbers.
inline constexpr const char* kSeed = "seed";
inline constexpr const char* kOffset = "offset";

// The tensor that locates the rows of "q", "k", "v", "o" or the statistics ("lse", "max",
// "sum_exp"): cu_seqlens for thd tensors, the page table for paged ones; else empty.
std::string addressed_by(const ir::Attention& attention, std::string_view name);

// The tensor of element offsets of a thd tensor's batches: "q.offsets" and so on, [B+1].
std::string offsets_name(std::string_view name);
// i32 if every offset fits, else i64.
DType offsets_dtype(const ir::Attention& attention);

// The page table of a paged tensor: "page_table" if k and v are paged alike and share one, else
// "page_table_k" or "page_table_v".
std::string page_table_name(const ir::Attention& attention, std::string_view name);

struct Controls {
  std::vector<plan::TensorInfo> given;      // role control
  std::vector<plan::TensorInfo> internals;  // role internal
  std::vector<plan::DeriveStep> steps;
};

// Controls for a graph that reads the tensors `used`.
Controls controls(const ir::Attention& attention, const std::set<std::string>& used);

}  // namespace attn::engines
