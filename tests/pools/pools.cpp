#include "tests/pools/pools.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/base/check.h"
#include "runtime/io/layout.h"
#include "tools/compare.h"
#include "tools/execution.h"
#include "tools/placement.h"

namespace attn::testing {
namespace {

constexpr std::byte kNan{0xff};
constexpr std::int64_t kPadding = 24, kLayers = 3, kLayer = 1, kEntriesApart = 5;

const plan::TensorInfo& tensor_of(const plan::Program& program, const std::string& name) {
  return *std::ranges::find(program.tensors, name, &plan::TensorInfo::name);
}

bool is_table(const plan::TensorInfo& tensor) {
  return tensor.role == plan::TensorRole::control && tensor.dims.size() == 2;
}

tools::Placement placed(const plan::Program& program, const reference::Inputs& inputs) {
  return tools::Placement::create(program, inputs, tools::Unused::anything).value();
}

// Each element of k and v that is in use is another one in memory.
reference::Inputs with_other_values(reference::Inputs inputs) {
  for (const char* name : {"k", "v"}) {
    for (double& value : inputs.tensors.at(name).values) value = value < 0 ? 1 : -1;
  }
  return inputs;
}

}  // namespace

std::vector<PoolViews> views_of(const PoolSizes& sizes) {
  const auto [p, h, n, d] = sizes;
  const std::int64_t pool = p * h * n * d, of_page = h * n * d, both = 2 * of_page;
  return {{"HND", 0, pool, {of_page, n * d, d, 1}, 2 * pool},
          {"NHD", 0, pool, {of_page, d, h * d, 1}, 2 * pool},
          {"[2,P,N,H,D]", pool, 0, {of_page, d, h * d, 1}, 2 * pool},
          {"[P,2,N,H,D]", 0, of_page, {both, d, h * d, 1}, p * both},
          {"[P,2,H,N,D]", 0, of_page, {both, n * d, d, 1}, p * both},
          {"[P,N,H,2D]", 0, d, {both, 2 * d, h * 2 * d, 1}, p * both},
          {"[P,H,N,2D]", 0, d, {both, n * 2 * d, 2 * d, 1}, p * both},
          {"[P,L,2,N,H,D]",
           kLayer * both,
           kLayer * both + of_page,
           {kLayers * both, d, h * d, 1},
           p * kLayers * both},
          {"padded pages",
           0,
           of_page + kPadding,
           {both + 2 * kPadding, d, h * d, 1},
           p * (both + 2 * kPadding)}};
}

PoolViews views_of_shared(const PoolSizes& sizes) {
  const auto [p, h, n, d] = sizes;
  return {"[P,N,H,D] of both", 0, 0, {n * h * d, d, h * d, 1}, p * n * h * d, true};
}

plan::Program viewed(plan::Program program, const PoolViews& views, std::int64_t pages) {
  for (plan::TensorInfo& tensor : program.tensors) {
    if (is_table(tensor)) tensor.strides[0] = tensor.dims[1] + kEntriesApart;
    if (tensor.name != "k" && tensor.name != "v") continue;
    ATTN_CHECK(tensor.bound_strides, "of pools with bound strides");
    tensor.dims[0] = pages;
    tensor.strides = views.strides;
  }
  return program;
}

std::vector<std::byte> pool_bytes(const plan::Program& program, const reference::Inputs& inputs,
                                  const PoolViews& views) {
  const reference::Inputs others = with_other_values(inputs);
  const std::size_t width = size_of(tensor_of(program, "k").dtype);
  std::vector<std::byte> all(static_cast<std::size_t>(views.elements) * width, kNan);
  for (const auto& [name, first] : {std::pair("k", views.k), {"v", views.v}}) {
    if (views.shares && name == std::string("v")) continue;
    const plan::TensorInfo& pool = tensor_of(program, name);
    const std::vector<std::byte> bytes = placed(program, inputs).bytes_of(pool).value(),
                                 changed = placed(program, others).bytes_of(pool).value();
    std::byte* const to = all.data() + static_cast<std::size_t>(first) * width;
    for (std::size_t at = 0; at < bytes.size(); at += width) {
      const bool is_used = std::memcmp(bytes.data() + at, changed.data() + at, width) != 0;
      if (is_used) std::memcpy(to + at, bytes.data() + at, width);
    }
  }
  return all;
}

std::vector<std::byte> table_bytes(const plan::Program& program, const reference::Inputs& inputs,
                                   const plan::TensorInfo& table) {
  std::vector<std::byte> bytes = placed(program, inputs).bytes_of(table).value();
  const std::int64_t page = tensor_of(program, "k").dims[2];
  const std::vector<double>& lengths = inputs.tensors.at("lengths_kv").values;
  for (std::int64_t b = 0; b < table.dims[0]; ++b) {
    const auto length = static_cast<std::int64_t>(lengths[static_cast<std::size_t>(b)]);
    const std::int64_t used = (length + page - 1) / page;
    const std::int64_t end = b + 1 < table.dims[0] ? table.strides[0] : table.dims[1];
    for (std::int64_t i = used; i < end; ++i) {
      const std::int32_t nowhere = std::numeric_limits<std::int32_t>::max() - 7;
      std::memcpy(bytes.data() + static_cast<std::size_t>(b * table.strides[0] + i) * 4, &nowhere,
                  4);
    }
  }
  return bytes;
}

void share_values(reference::Inputs& inputs) {
  io::HostTensor& v = inputs.tensors.at("v");
  const io::HostTensor& k = inputs.tensors.at("k");
  const auto from = static_cast<std::size_t>(k.dims[3]), to = static_cast<std::size_t>(v.dims[3]);
  for (std::size_t i = 0; i < v.values.size(); ++i) v.values[i] = k.values[i / to * from + i % to];
}

std::string differences(const ir::Attention& attention, const plan::Program& program,
                        const reference::Inputs& inputs,
                        const std::vector<std::vector<std::byte>>& outputs) {
  const tools::Placement placement = placed(program, inputs);
  tools::Outputs found;
  std::size_t i = 0;
  for (const plan::TensorInfo& info : program.tensors) {
    if (info.is_output()) found[info.name] = placement.logical(info, outputs[i++]).value();
  }
  const tools::Outputs right = tools::run_reference(attention, inputs, {}).value();
  std::string text;
  for (const tools::Comparison& each : tools::compare(found, right, attention.dtype)) {
    if (!each.agrees()) text += each.name + ": " + each.why + "\n";
  }
  return text;
}

std::string spec_in_pages(std::int64_t page, bool shared) {
  const char* const sizes = shared ? "Hkv = 1, Sq = 3, Skv = 300, Dqk = 96, Dv = 64"
                                   : "Hkv = 2, Sq = 3, Skv = 300, D = 64";
  return fmt::format(
      "attention pools {{ dims B = 5, Hq = 8, {}; align bottom_right; "
      "layout paged(page = {}, strides = bound); lengths kv = [300, 3, 0, 129, 70]; "
      "mask q_idx >= kv_idx; outputs o, lse; }}",
      sizes, page);
}

}  // namespace attn::testing
