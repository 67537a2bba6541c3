#include "compiler/lowering/interface.h"

#include <algorithm>

#include "compiler/lowering/lengths.h"
#include "compiler/lowering/operands.h"

namespace attn::lowering {
namespace {

using ir::Dim;
using Role = plan::TensorRole;

class Interface {
 public:
  Interface(const ir::Attention& attention, const std::set<std::string>& used,
            const Controls& controls)
      : attention_(attention), used_(used), controls_(controls) {}

  std::vector<plan::TensorInfo> list() && {
    add_io("q", Role::query);
    add_io("k", Role::key);
    add_io("v", Role::value);
    for (const ir::CapturedTensor& captured : attention_.tensors) add_captured(captured);
    tensors_.insert(tensors_.end(), controls_.given.begin(), controls_.given.end());
    add_io("o", Role::output);
    add_statistics("lse", attention_.wants_lse);
    add_statistics("max", attention_.wants_max);
    add_statistics("sum_exp", attention_.wants_sum_exp);
    return std::move(tensors_);
  }

 private:
  void add_io(const std::string& name, Role role) {
    const Dims4 dims = stored_dims(attention_, name), strides = stored_strides(attention_, name);
    tensors_.push_back({name,
                        role,
                        attention_.dtype,
                        {dims.begin(), dims.end()},
                        {strides.begin(), strides.end()},
                        16,
                        addressed_by(attention_, name)});
  }

  void add_packed(const std::string& name, Role role, DType dtype, std::vector<std::int64_t> dims,
                  std::int64_t alignment = 16) {
    if (!used_.contains(name) || is_internal(name)) return;
    std::vector<std::int64_t> strides(dims.size(), 1);
    for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
    tensors_.push_back({name, role, dtype, std::move(dims), std::move(strides), alignment});
  }

  void add_captured(const ir::CapturedTensor& captured) {
    std::vector<std::int64_t> extents;
    for (const ir::ExprId id : captured.extents) {
      extents.push_back(*ir::fold_integer(attention_.dag, id));
    }
    add_packed(captured.name, Role::captured, captured.dtype, std::move(extents),
               captured_alignment(captured.name));
  }

  void add_statistics(const std::string& name, bool wanted) {
    if (!wanted) return;
    const ir::Dims& d = attention_.dims;
    const Dims4 strides = lowering::statistics_strides(attention_);
    tensors_.push_back({name,
                        Role::stats,
                        DType::f32,
                        {d[Dim::B], d[Dim::Hq], d[Dim::Sq]},
                        {strides[0], strides[1], strides[2]},
                        16,
                        addressed_by(attention_, name)});
  }

  // Lengths may follow from other tensors: then they are not bound.
  bool is_internal(const std::string& name) const {
    return std::ranges::find(controls_.internals, name, &plan::TensorInfo::name) !=
           controls_.internals.end();
  }

  const ir::Attention& attention_;
  const std::set<std::string>& used_;
  const Controls& controls_;
  std::vector<plan::TensorInfo> tensors_;
};

}  // namespace

std::vector<plan::TensorInfo> bound_tensors(const ir::Attention& attention,
                                            const std::set<std::string>& used,
                                            const Controls& controls) {
  return Interface(attention, used, controls).list();
}

}  // namespace attn::lowering
