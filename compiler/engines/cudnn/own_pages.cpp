#include "compiler/engines/cudnn/own_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <variant>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/cost.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/target/capabilities.h"
#include "runtime/base/ceil_div.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines {
namespace {

bool is_cudnn(const plan::Step& step) { return std::holds_alternative<plan::CudnnStep>(step); }

void make_copy(const ir::Attention& attention, const char* tensor, const std::string& copy,
               codegen::KernelText& kernel) {
  const Dims4 dims = page_table_dims(attention, tensor);
  const std::int64_t page = layout_of(attention, tensor).page;
  const std::string table = kernel.read(page_table_name(attention, tensor), DType::i32);
  const std::string lengths = kernel.read(std::string(ir::kLengthsKv), DType::i32);
  kernel.make(copy, DType::i32, dims[0] * dims[2], "pages that hold keys of the sequence",
              fmt::format("const int n = i, entry = n % {0};\n"
                          "    const int last = ({1}[n / {0}] + {2}) / {3} - 1;\n"
                          "    out[n] = last < 0 ? 0 : {4}[entry <= last ? n : n - entry + last];",
                          dims[2], lengths, page - 1, page, table));
}

}  // namespace

Status check_paged_keys(const ir::Attention& attention, const target::Context& context) {
  constexpr std::int64_t kKeysOfTile = 128;
  const std::int64_t keys = attention.dims[ir::Dim::Skv];
  const bool may_be_nan = layout_of(attention, "v").kind == ir::LayoutKind::paged &&
                          attention.dims[ir::Dim::Sq] > 1 && keys % kKeysOfTile != 0;
  if (!may_be_nan || can(target::Capability::pages_of_any_number_of_keys, context)) return {};
  return unsupported(
      attention.pos,
      fmt::format("with pages and several rows, cuDNN's o is NaN where values past Skv are, "
                  "unless Skv is a multiple of {} (this is {})",
                  kKeysOfTile, keys),
      fmt::format("let Skv be {}: lengths say how many keys there are",
                  ceil_div(keys, kKeysOfTile) * kKeysOfTile));
}

double keep_to_own_pages(const ir::Attention& attention, plan::Program& program,
                         const target::Gpu& gpu) {
  if (!has_column_lengths(attention)) return 0;
  double bytes = 0;
  std::map<std::string, std::string> copies;
  codegen::KernelText kernel;
  for (const char* tensor : {"k", "v"}) {
    if (layout_of(attention, tensor).kind != ir::LayoutKind::paged) continue;
    const std::string table = page_table_name(attention, tensor), copy = table + ".own";
    if (!copies.emplace(table, copy).second) continue;  // k and v share it
    const Dims4 dims = page_table_dims(attention, tensor);
    program.internals.push_back(plan::internal_tensor(copy, DType::i32, {dims[0], dims[2]}));
    make_copy(attention, tensor, copy, kernel);
    bytes += 2.0 * sizeof(std::int32_t) * static_cast<double>(dims[0] * dims[2]);
  }
  if (copies.empty()) return 0;
  for (plan::Step& step : program.steps) {
    if (!is_cudnn(step)) continue;
    plan::change_tensors(step, [&copies](plan::TensorOperand& tensor) {
      if (const auto copy = copies.find(tensor.name); copy != copies.end())
        tensor.name = copy->second;
    });
  }
  program.steps.insert(std::ranges::find_if(program.steps, is_cudnn),
                       std::move(kernel).finish(false));
  return predicted_ms_of_moving(bytes, gpu);
}

}  // namespace attn::engines
