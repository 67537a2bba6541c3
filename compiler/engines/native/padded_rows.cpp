#include "compiler/engines/native/padded_rows.h"

#include <fmt/format.h>

#include "compiler/engines/native/checks.h"
#include "compiler/engines/native/kernel.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/unsupported.h"
#include "runtime/base/ceil_div.h"
#include "runtime/plan/internal_tensor.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

constexpr const char* kPadded[] = {"q", "k"};
constexpr std::int64_t kPaddedTo = 16;        // elements: those of a vector of TMA
constexpr std::int64_t kColumnsOfThread = 8;  // of a thread

bool has_starts(const ir::Attention& attention, const std::string& name) {
  return layout_of(attention, name).kind == ir::LayoutKind::thd;
}

bool is_paged(const ir::Attention& attention, const std::string& name) {
  return page_of(attention, name) > 0;
}

std::int64_t threads_of(const ir::Attention& attention, const std::string& name) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : logical_dims(with_padded_rows(attention), name)) elements *= dim;
  return elements / kColumnsOfThread;
}

// What says where rows are: starts of packed ones, or pages. The kernel has those of values.
bool takes_starts(const ir::Attention& attention, const std::string& name) {
  const std::string starts = addressed_by(attention, name);
  return !starts.empty() && (name == "q" || starts != addressed_by(attention, "v"));
}
std::string parameter_of_starts(const ir::Attention& attention, const std::string& name) {
  if (addressed_by(attention, name).empty()) return "nullptr";
  if (takes_starts(attention, name)) return "starts_of_" + name;
  return is_paged(attention, name) ? "table" : "starts";
}

// The type by which a kernel finds rows of "q", "k", "v" or "o" (attn/places.cuh).
std::string places_text(const ir::Attention& attention, const std::string& name) {
  const Dims4 dims = logical_dims(attention, name), strides = stored_strides(attention, name);
  const std::string all = fmt::format("{}, {}, {}, {}, {}, {}", strides[0], strides[1], strides[2],
                                      strides[3], dims[3], moves_in_vectors(dims, strides));
  if (!is_paged(attention, name))
    return fmt::format("kernels::Places<{}, {}>", all, has_starts(attention, name));
  return fmt::format("kernels::PagedPlaces<{}, {}, {}>", all, page_of(attention, name),
                     page_table_dims(attention, name)[2]);
}

}  // namespace

Status check_readable(const ir::Attention& attention) {
  for (const char* name : {"q", "k", "v"}) {
    if (!layout_of(attention, name).bound_strides) continue;
    const std::int64_t depth = logical_dims(attention, name)[3];
    if (depth % kPaddedTo != 0) {
      return unsupported(
          attention.quantize->pos,
          fmt::format(
              "the strides of `{}` are bound, and its rows of {} bytes are not at multiples "
              "of {}",
              name, depth, kPaddedTo),
          fmt::format(
              "head dimensions that are multiples of {} work, or strides that are not bound",
              kPaddedTo));
    }
    ATTN_RETURN_IF_ERROR(check_layout(attention, name));
    const std::int64_t page = page_of(attention, name);
    // Values are transposed, wherever their rows are.
    if (page % kCell == 0 || name == std::string_view("v")) continue;
    return unsupported(attention.quantize->pos,
                       fmt::format("attnc's kernel of 8-bit attention takes no pages of {} keys "
                                   "whose strides are bound",
                                   page),
                       fmt::format("multiples of {} work, or strides that are not bound", kCell));
  }
  return {};
}

bool is_padded(const ir::Attention& attention, const std::string& name) {
  if (!attention.quantize || name == "v") return false;
  return page_of(attention, name) % kCell != 0 || !check_layout(attention, name).ok();
}

ir::Attention with_padded_rows(const ir::Attention& attention) {
  ir::Attention padded = attention;
  padded.dims.set(Dim::Dqk, ceil_div(attention.dims[Dim::Dqk], kPaddedTo) * kPaddedTo);
  for (const char* name : kPadded) {
    if (!is_padded(attention, name)) continue;
    const auto kind = has_starts(attention, name) ? ir::LayoutKind::thd : ir::LayoutKind::bhsd;
    padded.layouts.find(name)->second = {.kind = kind};
  }
  return padded;
}

std::string padded_name(const std::string& name) { return "native.padded_" + name; }

PaddedRowsText padded_rows_text(const ir::Attention& attention, std::int64_t first) {
  PaddedRowsText text;
  const ir::Attention padded = with_padded_rows(attention);
  std::string rest = fmt::format("    long long i = attn_thread() - {}ll * blockDim.x;\n", first);
  for (const std::string name : kPadded) {
    if (!is_padded(attention, name)) continue;
    const Dims4 dims = logical_dims(padded, name);
    text.parameters += fmt::format(", const unsigned char* {0}, unsigned char* padded_{0}", name);
    if (takes_starts(attention, name))
      text.parameters += fmt::format(", const int* starts_of_{}", name);
    text.statements += fmt::format(
        "    const kernels::PaddedRows<{}, {},\n                              {}, {}, {}> rows_{}"
        "{{{}, padded_{}, {}}};\n"
        "    if (i >= 0 && i < rows_{}.kThreads)\n"
        "      rows_{}.run(i, [&](int b) {{ return expressions.{}(b); }});\n"
        "    i -= rows_{}.kThreads;\n",
        places_text(attention, name), places_text(padded, name), dims[0], dims[1], dims[2], name,
        name, name, parameter_of_starts(attention, name), name, name,
        name == "q" ? "queries" : "keys", name);
  }
  if (text.statements.empty()) return text;
  text.statements = fmt::format("  if (blockIdx.x >= {}) {{\n{}{}    return;\n  }}\n", first, rest,
                                text.statements);
  return text;
}

std::int64_t add_padded_rows(const ir::Attention& attention, std::int64_t threads,
                             plan::Program& program, plan::KernelStep& step,
                             std::vector<plan::KernelArgument>& arguments) {
  using Tensor = plan::TensorOperand;
  std::int64_t all = 0;
  for (const std::string name : kPadded) {
    if (!is_padded(attention, name)) continue;
    const std::int64_t of_name = threads_of(attention, name);
    program.internals.push_back(
        plan::internal_tensor(padded_name(name), attention.dtype, {of_name * kColumnsOfThread}));
    step.outputs.push_back(padded_name(name));
    arguments.insert(arguments.end(), {Tensor{name}, Tensor{padded_name(name)}});
    if (takes_starts(attention, name))
      arguments.emplace_back(Tensor{addressed_by(attention, name)});
    all += of_name;
  }
  return ceil_div(all, threads);
}

double bytes_of_padding(const ir::Attention& attention) {
  double bytes = 0;
  for (const std::string name : kPadded) {
    if (is_padded(attention, name))
      bytes += 2 * static_cast<double>(kColumnsOfThread * threads_of(attention, name));
  }
  return bytes;
}

}  // namespace attn::engines::native
