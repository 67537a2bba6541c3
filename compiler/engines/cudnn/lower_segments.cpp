#include "compiler/engines/cudnn/lower_segments.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "compiler/codegen/kernel_text.h"
#include "compiler/codegen/sources.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/products.h"
#include "compiler/engines/shared/staging.h"
#include "compiler/engines/shared/unsupported.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines {
namespace {

using ir::Dim;
using ir::LayoutKind;

constexpr const char* kChanges = "documents.changes";
constexpr const char* kStarts = "documents.starts";
constexpr const char* kLseOfRows = "documents.lse";
constexpr double kMostSumBytes = 4.3e9;

Status check_whole(const ir::Attention& whole, bool backward) {
  if (whole.dims[Dim::B] * whole.dims[Dim::Sq] > std::numeric_limits<std::int32_t>::max()) {
    return unsupported(whole.pos, "segment starts are 32-bit, and there are too many rows");
  }
  if (!backward && whole.wants_max_or_sum()) {
    return unsupported(whole.statistics_pos, "max and sum_exp are not supported with segments");
  }
  return backward ? check_no_learned(whole) : Status();
}

// The kernel sums dq in f32 for sequences of full length.
Status check_sums(const ir::Attention& ragged) {
  const ir::Dims& d = ragged.dims;
  const double bytes = 4.0 * static_cast<double>(d[Dim::B] * d[Dim::Hq]) *
                       static_cast<double>(d[Dim::Sq] * d[Dim::Dqk]);
  if (bytes <= kMostSumBytes) return {};
  return unsupported(
      ragged.pos,
      fmt::format("the backward of {} segments of up to {} rows would take {:.0f} GB "
                  "of workspace",
                  d[Dim::B], d[Dim::Sq], bytes / 1e9),
      "declare the longest run: `runs(64, 2048)`");
}

// Pieces are about as long as there are pieces: finding a segment scans the pieces, then one piece.
std::int64_t piece_of(std::int64_t rows) {
  std::int64_t piece = 16;
  while (piece * piece < rows) piece *= 2;
  return piece;
}

// The steps beside those of one segment: its lists of places, and the statistics of the whole.
class SegmentSteps {
 public:
  SegmentSteps(const ir::Attention& whole, const Segments& segments)
      : whole_(whole),
        segments_(segments),
        tensor_(*whole.find_tensor(segments.tensor)),
        batches_(whole.dims[Dim::B]),
        rows_(whole.dims[Dim::Sq]),
        piece_(piece_of(rows_)),
        pieces_((rows_ + piece_ - 1) / piece_) {}

 protected:
  void add_internal(const char* name, DType dtype, std::vector<std::int64_t> dims) {
    program_.internals.push_back(plan::internal_tensor(name, dtype, std::move(dims)));
  }

  void add(codegen::KernelText kernel) {
    program_.steps.emplace_back(std::move(kernel).finish(false));
  }

  std::int64_t lists() const { return segments_.by_batch ? batches_ : 1; }

  // Statements that declare `segments`, with the list in `list`.
  std::string segments_text(const std::string& list) const {
    return codegen::object_text(segments_class(), "segments",
                                {{"list", list},
                                 {"rows", rows_},
                                 {"batches", batches_},
                                 {"by_batch", segments_.by_batch ? "true" : ""},
                                 {"piece", piece_},
                                 {"most", segments_.most},
                                 {"longest", segments_.longest}});
  }

  std::string segments_class() const {
    return fmt::format("Segments<{}>", codegen::element_type(tensor_.dtype));
  }

  void add_of_list(const char* name, std::vector<std::int64_t> dims, const std::string& meaning,
                   const std::string& value, codegen::KernelText kernel) {
    kernel.include("segments.cuh");
    kernel.add(segments_text(kernel.read(tensor_.name, tensor_.dtype)));
    kernel.make(name, DType::i32, product(dims), meaning, fmt::format("out[i] = {};", value));
    add_internal(name, DType::i32, std::move(dims));
    add(std::move(kernel));
  }

  void add_changes() {
    add_of_list(kChanges, {lists(), pieces_},
                fmt::format("how many runs of {} begin in each {}", tensor_.name, piece_),
                "segments.changes(i)", {});
  }

  void add_starts() {
    codegen::KernelText kernel;
    const std::string changes = kernel.read(kChanges, DType::i32);
    add_of_list(kStarts, {batches_ * segments_.most + 1},
                fmt::format("where each run of {} begins among all rows", tensor_.name),
                fmt::format("segments.start(i, {})", changes), std::move(kernel));
  }

  // [B,Hq,S] <-> [all rows, Hq]
  std::string place_in_whole() const {
    return fmt::format("const long long h = i % {0}, s = i / {0} % {1}, b = i / {0} / {1};\n    ",
                       whole_.dims[Dim::Hq], rows_);
  }

  std::int64_t statistics() const { return batches_ * rows_ * whole_.dims[Dim::Hq]; }

  void gather_lse() {
    codegen::KernelText kernel;
    const std::string lse = kernel.read("lse", DType::f32);
    kernel.make(kLseOfRows, DType::f32, statistics(), "lse of each row",
                place_in_whole() + fmt::format("out[i] = {}[(b * {} + h) * {} + s];", lse,
                                               whole_.dims[Dim::Hq], rows_));
    add_internal(kLseOfRows, DType::f32, {batches_ * rows_, whole_.dims[Dim::Hq]});
    add(std::move(kernel));
  }

  void scatter_lse() {
    codegen::KernelText kernel;
    const std::string lse = kernel.read(kLseOfRows, DType::f32);
    kernel.make("lse", DType::f32, statistics(), "lse of each row",
                fmt::format("const long long s = i % {0}, h = i / {0} % {1}, b = i / {0} / {1};\n"
                            "    out[i] = {2}[(b * {0} + s) * {1} + h];",
                            rows_, whole_.dims[Dim::Hq], lse));
    add_internal(kLseOfRows, DType::f32, {batches_ * rows_, whole_.dims[Dim::Hq]});
    add(std::move(kernel));
  }

  static std::int64_t product(const std::vector<std::int64_t>& dims) {
    return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
  }

  const ir::Attention& whole_;
  const Segments& segments_;
  const ir::CapturedTensor& tensor_;
  std::int64_t batches_, rows_;  // of the whole
  plan::Program program_;
  std::int64_t piece_, pieces_;
};

class SegmentsMaker : private SegmentSteps {
 public:
  SegmentsMaker(const ir::Attention& whole, const Segments& segments, plan::Program inner)
      : SegmentSteps(whole, segments), inner_(std::move(inner)) {}

  // The inner program itself, with the check.
  Result<plan::Program> declared() && {
    ATTN_RETURN_IF_ERROR(check_inner());
    const bool backward = plan::direction_of(inner_) == plan::Direction::backward;
    program_ = std::move(inner_);
    bind(backward);
    program_.check = check();
    ATTN_RETURN_IF_ERROR(check_program(whole_, program_));
    return std::move(program_);
  }

  Result<plan::Program> make() && {
    ATTN_RETURN_IF_ERROR(check_inner());
    const bool backward = plan::direction_of(inner_) == plan::Direction::backward;
    add_changes();
    add_starts();
    if (backward) gather_lse();
    append();
    if (!backward && whole_.wants_lse) scatter_lse();
    bind(backward);
    program_.check = check();
    ATTN_RETURN_IF_ERROR(check_program(whole_, program_));
    return std::move(program_);
  }

 private:
  Status check_inner() const {
    if (!inner_.check) return {};
    return unsupported(whole_.pos, "gathered indices are checked over all scores, not per segment");
  }

  static std::string mapped(const std::string& name) {
    if (name == kRowStarts || name == kColumnStarts) return kStarts;
    return name == "lse" ? kLseOfRows : name;
  }

  // Amending steps are left out: they handle sequences with rows and no keys, or keys and no rows.
  void append() {
    for (const plan::TensorInfo& internal : inner_.internals) {
      program_.internals.push_back(internal);
    }
    for (plan::Step step : inner_.steps) {
      auto* derive = std::get_if<plan::DeriveStep>(&step);
      if (derive != nullptr && derive->amends != 0) continue;
      if (derive != nullptr) make_whole(*derive);
      plan::change_tensors(step,
                           [](plan::TensorOperand& tensor) { tensor.name = mapped(tensor.name); });
      program_.steps.push_back(std::move(step));
    }
    program_.params = inner_.params;
  }

  // A kernel that writes outputs has a thread for each element of full-length sequences.
  void make_whole(plan::DeriveStep& step) {
    const auto is_bound = [this](const std::string& output) {
      return std::ranges::find(inner_.tensors, output, &plan::TensorInfo::name) !=
             inner_.tensors.end();
    };
    if (std::ranges::any_of(step.outputs, is_bound)) {
      step.amends = plan::derived_elements(inner_, step);
      add_zeros(step.outputs);
    }
  }

  void add_zeros(const std::vector<std::string>& names) {
    codegen::KernelText kernel;
    for (const auto* tensors : {&inner_.tensors, &inner_.internals}) {
      for (const plan::TensorInfo& tensor : *tensors) {
        if (std::ranges::find(names, tensor.name) == names.end()) continue;
        std::string zero = "out[i] = 0;";
        if (tensor.is_output() && tensor.name != "lse") {
          const Dims4 dims = logical_dims(whole_, tensor.name);
          zero =
              place_text(whole_, tensor.name, dims, kernel) + "\n    if (present) out[place] = 0;";
        }
        kernel.make(mapped(tensor.name), tensor.dtype, elements(tensor), "zeros", zero);
      }
    }
    add(std::move(kernel));
  }

  // The number of elements of what a tensor of the ragged program becomes here.
  std::int64_t elements(const plan::TensorInfo& tensor) const {
    if (tensor.name == "lse") return statistics();
    if (!tensor.is_output()) return product(tensor.dims);
    const Dims4 dims = logical_dims(whole_, tensor.name);
    return product({dims.begin(), dims.end()});
  }

  void bind(bool backward) {
    std::set<std::string> used = plan::names_used(program_.steps);
    used.insert(tensor_.name);
    program_.tensors = backward ? backward_tensors(whole_, used, {}, gradient_names(whole_))
                                : bound_tensors(whole_, used, {});
  }

  // Checks the declared facts that the ragged sequences rely on.
  plan::IndexCheck check() const {
    plan::IndexCheck check;
    const auto add_fault = [&](std::string what) {
      check.faults.push_back({tensor_.name, std::move(what)});
    };
    add_fault("declared monotone, but decreases");
    add_fault(fmt::format("declared to have at most {} runs, but has more", segments_.most));
    add_fault(fmt::format("declared to have runs of at most {}, but has a longer one",
                          segments_.longest));
    check.inputs = {plan::TensorOperand{tensor_.name}};
    check.quick = lists() * rows_;
    check.scores = {lists(), 1, rows_, 1};
    check.source = codegen::include_text("segments.cuh") +
                   check_kernel(plan::kQuickCheckKernel, "false", "*first = 0;") +
                   check_kernel(plan::kExactCheckKernel, "true",
                                "atomicMin(first, (unsigned long long)i << 16 | fault);");
    return check;
  }

  std::string check_kernel(const char* name, const char* exact, const char* report) const {
    return codegen::kernel_text(
        name,
        {"unsigned long long* first",
         fmt::format("const {}* list", codegen::element_type(tensor_.dtype))},
        fmt::format("  if (i >= {}) return;\n{}  const int fault = segments.fault(i, {});\n"
                    "  if (fault != 0) {}\n",
                    lists() * rows_, segments_text("list"), exact, report));
  }

  plan::Program inner_;
};

}  // namespace

Result<ir::Attention> ragged(const ir::Attention& whole, const Segments& segments, bool backward) {
  ATTN_RETURN_IF_ERROR(check_whole(whole, backward));
  ir::Attention ragged = segments.attention;
  if (backward) ATTN_RETURN_IF_ERROR(check_sums(ragged));
  for (auto& [name, layout] : ragged.layouts) {
    if (repeats(layout)) {
      return unsupported(
          whole.pos,
          fmt::format("`{}` has a stride of 0, which packed sequences do not have", name));
    }
    const Dims4 strides = stored_strides(whole, name);
    const bool in_place = layout.kind != LayoutKind::paged && layout.kind != LayoutKind::thd;
    if (!in_place || (whole.dims[Dim::B] > 1 && strides[0] != whole.dims[Dim::Sq] * strides[2])) {
      return unsupported(whole.pos,
                         fmt::format("the rows of all batches of `{}` are not evenly spaced", name),
                         "`layout bshd` stores them consecutively");
    }
    if (stored_dims(whole, name)[1] > 1 && strides[1] > strides[2]) {
      return unsupported(whole.pos,
                         fmt::format("the heads of `{}` are stored one after the other, and ragged "
                                     "sequences with such rows have not been verified",
                                     name),
                         "`layout bshd` stores the heads of a row together");
    }
    layout = {};
    layout.kind = LayoutKind::thd;
    layout.strides = strides;
  }
  return ragged;
}

Result<plan::Program> with_declared(const ir::Attention& whole, const Segments& segments,
                                    plan::Program program) {
  return SegmentsMaker(whole, segments, std::move(program)).declared();
}

Result<plan::Program> of_segments(const ir::Attention& whole, const Segments& segments,
                                  plan::Program program) {
  return SegmentsMaker(whole, segments, std::move(program)).make();
}

}  // namespace attn::engines
