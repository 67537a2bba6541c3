#include "compiler/engines/cudnn/lower_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/products.h"
#include "compiler/engines/shared/staging.h"
#include "compiler/engines/shared/unsupported.h"
#include "runtime/base/check.h"
#include "runtime/graph/extent.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines {
namespace {

using engines::Stretch;
using engines::View;
using ir::Dim;

constexpr const char* kLseOfWhole = "parts.lse";  // f32 [B,Hq,Sq]: of whole rows

std::string internal_name(std::size_t part, std::string_view name) {
  return fmt::format("part{}.{}", part, name);
}

Stretch View::*stretch_of(std::string_view name) {
  const std::string_view owner = layout_owner(name);
  return owner == "q" || owner == "o" ? &View::rows : &View::columns;
}

// C++ text for the unsigned index `x` of a row: whether it is in the stretch, its class and its
// number. Indices before the stretch wrap around, and so compare as after it.
struct Inverse {
  std::string present, c, i;
};

std::string over(const std::string& x, const char* operation, std::int64_t by) {
  if (by != 1) return fmt::format("{} {} {}", x, operation, by);
  return *operation == '/' ? x : std::string("0");
}

Inverse inverse(const Stretch& s, std::int64_t classes, const std::string& x) {
  const std::string from = s.begin == 0 ? x : fmt::format("({} - {})", x, s.begin);
  // The larger of step and shift separates groups; the other separates elements of a group.
  const bool by_class = classes > 1 && s.shift >= s.step * s.count;
  const std::int64_t outer = by_class ? s.shift : s.step, inner = by_class ? s.step : s.shift;
  if (classes == 1) {
    std::string present = fmt::format("{} < {}", over(from, "/", s.step), s.count);
    if (s.step != 1) present += fmt::format(" && {} % {} == 0", from, s.step);
    return {std::move(present), "0", fmt::format("({})", over(from, "/", s.step))};
  }
  const std::string group = over(from, "/", outer), inside = over(from, "%", outer);
  std::string present = fmt::format("{} < {} && {} < {}", group, by_class ? classes : s.count,
                                    over(inside, "/", inner), by_class ? s.count : classes);
  if (inner != 1) present += fmt::format(" && {} % {} == 0", inside, inner);
  const std::string c = by_class ? group : over(inside, "/", inner);
  const std::string i = by_class ? over(inside, "/", inner) : group;
  return {std::move(present), fmt::format("({})", c), fmt::format("({})", i)};
}

// The index of row i of class c, batch b and head h in a part's packed statistics.
std::string statistics_place(const ir::Attention& whole, const Launch& launch, const Inverse& of) {
  const std::int64_t heads = whole.dims[Dim::Hq], classes = launch.view.classes;
  std::string b = "b", h = "h";
  if (launch.fold == Fold::batch) b = fmt::format("(b * {} + {})", classes, of.c);
  if (launch.fold == Fold::heads) h = fmt::format("({} * {} + h)", of.c, heads);
  if (launch.fold == Fold::inner_heads) h = fmt::format("(h * {} + {})", classes, of.c);
  return fmt::format("(({} * {}LL + {}) * {} + {})", b, launch.attention.dims[Dim::Hq], h,
                     launch.view.rows.count, of.i);
}

// Statements that compute the row r, head h and batch b of thread `i` of [B,H,S], with `chunks`
// threads per row. 32-bit divisions are several times as fast as 64-bit ones.
std::string row_text(const std::vector<std::int64_t>& dims, std::int64_t chunks = 1) {
  const std::int64_t threads = dims[0] * dims[1] * dims[2] * chunks;
  const char* type = threads <= UINT32_MAX ? "unsigned" : "unsigned long long";
  return fmt::format(
      "const {0} n = i, r = n / {1} % {2}, h = n / {1} / {2} % {3}, b = n / {1} / {2} / {3};", type,
      chunks, dims[2], dims[1]);
}

// Where the parts write, and the logarithms of their sums.
class PartOutputs {
 public:
  PartOutputs(const ir::Attention& whole, std::vector<PartProgram> parts)
      : whole_(whole), parts_(std::move(parts)) {}

 protected:
  // Which parts write an output in place; the others write to the workspace.
  struct Output {
    std::vector<bool> in_place;
    bool whole = false;  // parts in place write all of it; the others add to it

    bool is_tiled() const { return whole && std::ranges::all_of(in_place, std::identity()); }
  };

  void add_internal(const std::string& name, DType dtype, std::vector<std::int64_t> dims) {
    program_.internals.push_back(plan::internal_tensor(name, dtype, std::move(dims)));
  }

  std::int64_t offset(std::size_t part, std::string_view name) const {
    return parts_[part].launch.offsets.find(layout_owner(name))->second;
  }

  Inverse rows_of(std::size_t part, const std::string& row) const {
    const View& view = parts_[part].launch.view;
    return inverse(view.rows, view.classes, row);
  }

  const std::string& lse_name() const {
    static const std::string bound = "lse", internal = kLseOfWhole;
    return whole_.wants_lse ? bound : internal;
  }

  void place(const std::string& name) {
    std::vector<View> views;
    for (const PartProgram& part : parts_) views.push_back(part.launch.view);
    const Writers who = writers(views, stretch_of(name), logical_dims(whole_, name)[2]);
    Output output{who.alone, who.whole};
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      output.whole &= !who.alone[p] || !is_staged(parts_[p].launch.attention, name);
    }
    if (!output.whole) output.in_place.assign(parts_.size(), false);
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      if (!output.in_place[p]) add_view(p, name);
    }
    outputs_[name] = std::move(output);
  }

  // Adds an internal tensor for a part's view of `name`, from its first element to its last.
  void add_view(std::size_t part, const std::string& name) {
    const ir::Attention& attention = parts_[part].launch.attention;
    const Dims4 dims = logical_dims(attention, name), strides = stored_strides(attention, name);
    add_internal(internal_name(part, name), whole_.dtype, {*last_offset(dims, strides) + 1});
  }

  // Combines the parts' lse of each row.
  void add_lse() {
    const ir::Dims& d = whole_.dims;
    codegen::KernelText kernel;
    std::string text = row_text({d[Dim::B], d[Dim::Hq], d[Dim::Sq]});
    std::string largest = "nothing", all, sum, only = "nothing";
    text += "\n    const float nothing = -1.0 / 0.0;";
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const std::string of = kernel.read(internal_name(p, "lse"), DType::f32);
      const Inverse row = rows_of(p, "r");
      text += fmt::format("\n    const float x{} = {} ? {}[{}] : nothing;", p, row.present, of,
                          statistics_place(whole_, parts_[p].launch, row));
      largest = fmt::format("fmaxf({}, x{})", largest, p);
      only = fmt::format("{} ? x{} : {}", row.present, p, only);
      const char* plus = p == 0 ? "" : " + ";
      all += fmt::format("{}x{}", plus, p);
      sum += fmt::format("{}expf(x{} - m)", plus, p);
    }
    if (outputs_["o"].is_tiled()) {
      text += fmt::format("\n    out[i] = {};", only);
    } else {
      // If the largest is -inf, some may still be NaN; then so is the sum of all.
      text +=
          fmt::format("\n    const float m = {};\n    out[i] = m == nothing ? {} : m + logf({});",
                      largest, all, sum);
    }
    if (lse_name() == kLseOfWhole)
      add_internal(kLseOfWhole, DType::f32, {d[Dim::B], d[Dim::Hq], d[Dim::Sq]});
    kernel.make(lse_name(), DType::f32, d[Dim::B] * d[Dim::Hq] * d[Dim::Sq],
                "merged over all parts", text);
    program_.steps.emplace_back(std::move(kernel).finish(false));
  }

  // Adds a part's packed lse; returns its number of elements.
  std::int64_t add_lse_of(std::size_t part) {
    const ir::Dims& d = parts_[part].launch.attention.dims;
    add_internal(internal_name(part, "lse"), DType::f32, {d[Dim::B], d[Dim::Hq], d[Dim::Sq]});
    return d[Dim::B] * d[Dim::Hq] * d[Dim::Sq];
  }

  // The lse of each part's rows; inf where a row has no weights.
  void add_lse_of_parts() {
    codegen::KernelText kernel;
    const std::string lse = kernel.read("lse", DType::f32);
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const Launch& launch = parts_[p].launch;
      const ir::Dims& d = launch.attention.dims;
      kernel.make(
          internal_name(p, "lse"), DType::f32, add_lse_of(p), "lse of the part's rows, or inf",
          fmt::format("{}\n    const float x = {}[{}];\n"
                      "    out[i] = isinf(x) && x < 0 ? -x : x;",
                      row_text({d[Dim::B], d[Dim::Hq], d[Dim::Sq]}), lse, place_of_row(launch)));
    }
    program_.steps.emplace_back(std::move(kernel).finish(false));
  }

  // The index in the whole's statistics of row r of a launch's batch b and head h.
  std::string place_of_row(const Launch& launch) const {
    const std::int64_t heads = whole_.dims[Dim::Hq], classes = launch.view.classes;
    std::string b = "b", h = "h", c = "0";
    const auto split = [&](const std::string& x, const char* high, const char* low,
                           std::int64_t by) {
      return std::pair(fmt::format("({} {} {})", x, high, by),
                       fmt::format("({} {} {})", x, low, by));
    };
    if (launch.fold == Fold::batch) std::tie(b, c) = split("b", "/", "%", classes);
    if (launch.fold == Fold::heads) std::tie(c, h) = split("h", "/", "%", heads);
    if (launch.fold == Fold::inner_heads) std::tie(h, c) = split("h", "/", "%", classes);
    const Stretch& rows = launch.view.rows;
    return fmt::format("({} * {}LL + {}) * {} + {} + {} * {} + {} * r", b, heads, h,
                       whole_.dims[Dim::Sq], rows.begin, rows.shift, c, rows.step);
  }

  std::string present(std::size_t part, const std::string& name) const {
    const View& view = parts_[part].launch.view;
    return inverse(view.*stretch_of(name), view.classes, "r").present;
  }

  // C++ text: whether row r is written by a part that does not write in place.
  std::string shared(const std::string& name) const {
    std::string text;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      if (outputs_.find(name)->second.in_place[p]) continue;
      text += fmt::format("{}({})", text.empty() ? "" : " || ", present(p, name));
    }
    return text;
  }

  const ir::Attention& whole_;
  std::vector<PartProgram> parts_;
  std::map<std::string, Output> outputs_;
  plan::Program program_;
};

class Joiner : private PartOutputs {
 public:
  using PartOutputs::PartOutputs;

  Result<plan::Program> forward() && {
    place("o");
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      if (parts_[p].launch.attention.wants_lse) add_lse_of(p);
    }
    ATTN_RETURN_IF_ERROR(append());
    const bool merges = !outputs_["o"].is_tiled();
    if (merges || whole_.wants_lse) add_lse();
    if (merges) add_sum("o", true);
    return finish({});
  }

  Result<plan::Program> backward() && {
    const std::vector<std::string> gradients = gradient_names(whole_);
    for (const std::string& name : gradients) place(name);
    add_lse_of_parts();
    ATTN_RETURN_IF_ERROR(append());
    for (const std::string& name : gradients) {
      if (!outputs_[name].is_tiled()) add_sum(name, false);
    }
    return finish(gradients);
  }

 private:
  // The tensor here that a part's program calls `name`.
  plan::TensorOperand mapped(std::size_t part, const std::string& name) const {
    const plan::Program& program = parts_[part].program;
    if (std::ranges::find(program.internals, name, &plan::TensorInfo::name) !=
            program.internals.end() ||
        name == "lse") {
      return {internal_name(part, name)};
    }
    if (const auto output = outputs_.find(name); output != outputs_.end()) {
      if (!output->second.in_place[part]) return {internal_name(part, name)};
      return {name, offset(part, name)};
    }
    if (parts_[part].launch.attention.find_tensor(name) != nullptr) return {name};
    return {name, offset(part, name)};
  }

  Status append() {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      plan::Program& program = parts_[p].program;
      if (program.check) {
        return unsupported(whole_.pos,
                           "gathered indices are checked over all scores, not per part");
      }
      for (plan::TensorInfo internal : program.internals) {
        internal.name = internal_name(p, internal.name);
        program_.internals.push_back(std::move(internal));
      }
      for (plan::Step& step : program.steps) {
        plan::change_tensors(step, [&](plan::TensorOperand& t) { t = mapped(p, t.name); });
        program_.steps.push_back(std::move(step));
      }
    }
    return {};
  }

  // Sums the parts of an output, weighted in a forward.
  void add_sum(const std::string& name, bool weighted) {
    const Output& output = outputs_[name];
    codegen::KernelText kernel;
    kernel.include("parts.cuh");
    const std::string made = kernel.write(name, whole_.dtype, "the sum of all parts");
    const Dims4 dims = logical_dims(whole_, name), strides = stored_strides(whole_, name);
    const std::int64_t width = moves_in_vectors(dims, strides) ? kVector : 1,
                       chunks = dims[3] / width;
    const std::int64_t threads = dims[0] * dims[1] * dims[2] * chunks;
    std::string text = fmt::format(
        "  if (i >= {}LL) return;\n  {}\n"
        "  const long long place = b * {}LL + h * {}LL + r * {}LL + n % {} * {}LL;\n",
        threads, row_text({dims[0], dims[1], dims[2]}, chunks), strides[0], strides[1], strides[2],
        chunks, width * strides[3]);
    if (output.whole) text += fmt::format("  if (!({})) return;\n", shared(name));
    text += fmt::format("  kernels::Sum<{}, {}> sum;\n", codegen::float_class(whole_.dtype), width);
    if (weighted) {
      text += fmt::format("  const float all = {}[(b * {}LL + h) * {} + r];\n",
                          kernel.read(lse_name(), DType::f32), dims[1], dims[2]);
    }
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      text += addition(p, name, weighted, made, kernel);
    }
    text += fmt::format("  sum.store({} + place);\n", made);
    kernel.add(text);
    plan::DeriveStep step = std::move(kernel).finish(false);
    if (output.whole) step.amends = threads;
    program_.steps.emplace_back(std::move(step));
  }

  std::string addition(std::size_t part, const std::string& name, bool weighted,
                       const std::string& made, codegen::KernelText& kernel) const {
    std::string from = made + " + place", weight = "1.0f";
    if (!outputs_.find(name)->second.in_place[part]) {
      const std::string tensor = kernel.read(internal_name(part, name), whole_.dtype);
      from = fmt::format("{} + (place - {})", tensor, offset(part, name));
    }
    if (weighted) {
      const Inverse row = rows_of(part, "r");
      const std::string lse = kernel.read(internal_name(part, "lse"), DType::f32);
      weight = fmt::format("isinf(all) && all < 0 ? 0 : expf({}[{}] - all)", lse,
                           statistics_place(whole_, parts_[part].launch, row));
    }
    return fmt::format("  if ({}) sum.add({}, {});\n", present(part, name), from, weight);
  }

  Result<plan::Program> finish(const std::vector<std::string>& gradients) {
    const std::set<std::string> used = plan::names_used(program_.steps);
    program_.tensors = gradients.empty() ? bound_tensors(whole_, used, {})
                                         : backward_tensors(whole_, used, {}, gradients);
    program_.params = bound_params(whole_, used);
    ATTN_RETURN_IF_ERROR(check_program(whole_, program_));
    return std::move(program_);
  }
};

// Leaves the sink to one of the parts that share rows: the one that writes in place.
Status share_rows(const ir::Attention& whole, std::vector<Launch>& launches) {
  std::vector<View> views;
  for (const Launch& launch : launches) views.push_back(launch.view);
  const Writers who = writers(views, &View::rows, whole.dims[Dim::Sq]);
  if (whole.sink && !who.whole) {
    return unsupported(whole.pos, "rows that see nothing but the sink belong to no part");
  }
  const bool merges = !who.whole || !std::ranges::all_of(who.alone, std::identity());
  for (std::size_t i = 0; i < launches.size(); ++i) {
    launches[i].attention.wants_lse = merges || whole.wants_lse;
    if (!who.alone[i]) launches[i].attention.sink.reset();
  }
  return {};
}

}  // namespace

Status check_parts(const ir::Attention& whole, bool backward) {
  if (whole.lengths_q || whole.lengths_kv) {
    return unsupported(whole.pos,
                       "with lengths, rows and columns end at a different place in each batch");
  }
  if (whole.dropout && !whole.dropout->keep) {
    return unsupported(whole.dropout->pos, "each part would draw different random numbers");
  }
  if (!backward && whole.wants_more_than_lse()) {
    return unsupported(whole.statistics_pos,
                       "parts are merged by lse, which gives no other statistic of whole rows");
  }
  return backward ? check_no_learned(whole) : Status();
}

Result<std::vector<Launch>> prepared(const ir::Attention& whole, const std::vector<Part>& parts,
                                     bool backward) {
  ATTN_ASSIGN(std::vector<Launch> made, launches(whole, parts));
  if (!backward) ATTN_RETURN_IF_ERROR(share_rows(whole, made));
  return made;
}

Result<plan::Program> joined_forward(const ir::Attention& whole, std::vector<PartProgram> parts) {
  return Joiner(whole, std::move(parts)).forward();
}

Result<plan::Program> joined_backward(const ir::Attention& whole, std::vector<PartProgram> parts) {
  return Joiner(whole, std::move(parts)).backward();
}

}  // namespace attn::engines
