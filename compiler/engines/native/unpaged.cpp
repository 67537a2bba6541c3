#include "compiler/engines/native/unpaged.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/staging.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines::native {
namespace {

constexpr const char* kOfKeys[] = {"k", "v"};

bool is_paged(const ir::Attention& attention, std::string_view name) {
  return layout_of(attention, name).kind == ir::LayoutKind::paged;
}

std::string copy_of(const std::string& name) { return fmt::format("native.{}_rows", name); }

std::int64_t elements(const ir::Attention& paged, const std::string& name) {
  return count_of(logical_dims(paged, name));
}

plan::DeriveStep copies(const ir::Attention& paged, plan::Program& program) {
  codegen::KernelText kernel;
  for (const std::string name : kOfKeys) {
    if (!is_paged(paged, name)) continue;
    const DType dtype = paged.dtype_of(name);
    const Dims4 dims = logical_dims(paged, name);
    program.internals.push_back(
        plan::internal_tensor(copy_of(name), dtype, {dims.begin(), dims.end()}));
    const std::string input = kernel.read(name, dtype);
    const std::string place = place_text(paged, name, dims, kernel);
    kernel.make(copy_of(name), dtype, count_of(dims), fmt::format("rows of {} in pages", name),
                fmt::format("{}\n    out[i] = present ? {}[place] : 0;", place, input));
  }
  return std::move(kernel).finish(false);
}

}  // namespace

bool has_pages(const ir::Attention& attention) {
  return std::ranges::any_of(kOfKeys, [&](const char* name) { return is_paged(attention, name); });
}

ir::Attention without_pages(ir::Attention attention) {
  for (const char* name : kOfKeys) {
    if (is_paged(attention, name))
      attention.layouts.find(name)->second = {.kind = ir::LayoutKind::bhsd};
  }
  return attention;
}

void use_pages(const ir::Attention& paged, std::set<std::string>& used) {
  if (has_pages(paged)) used.emplace(ir::kLengthsKv);
}

void read_pages(const ir::Attention& paged, plan::Program& program, plan::KernelStep& step) {
  if (!has_pages(paged)) return;
  program.steps.emplace_back(copies(paged, program));
  plan::Step reading = std::move(step);
  plan::change_tensors(reading, [&](plan::TensorOperand& tensor) {
    const bool copied = std::ranges::find(kOfKeys, tensor.name) != std::end(kOfKeys) &&
                        is_paged(paged, tensor.name);
    if (copied) tensor.name = copy_of(tensor.name);
  });
  step = std::get<plan::KernelStep>(std::move(reading));
}

double bytes_of_pages(const ir::Attention& paged) {
  double bytes = 0;
  for (const std::string name : kOfKeys) {
    if (!is_paged(paged, name)) continue;
    bytes += 2 * static_cast<double>(elements(paged, name)) *
             static_cast<double>(size_of(paged.dtype_of(name)));
  }
  return bytes;
}

}  // namespace attn::engines::native
