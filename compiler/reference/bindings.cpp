#include "compiler/reference/bindings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "compiler/ir/cache_scales.h"
#include "compiler/ir/random_dropout.h"
#include "compiler/reference/blocks.h"
#include "compiler/reference/defaults.h"
#include "runtime/base/row_format.h"
#include "runtime/io/element.h"

namespace attn::reference {
namespace {

using ir::Dim;

struct Declared {
  DType dtype;
  std::vector<std::int64_t> dims;
};

using Declarations = std::map<std::string, Declared, std::less<>>;

Error misfit(std::string message) { return {ErrorCode::binding, std::move(message)}; }

Result<Declarations> declarations(const ir::Attention& attention) {
  const ir::Dims& dims = attention.dims;
  Declarations list;
  list["q"] = {attention.dtype, {dims[Dim::B], dims[Dim::Hq], dims[Dim::Sq], dims[Dim::Dqk]}};
  list["k"] = {attention.dtype_of("k"),
               {dims[Dim::B], dims[Dim::Hkv], dims[Dim::Skv], dims[Dim::Dqk]}};
  if (!attention.values_of_keys)
    list["v"] = {attention.dtype_of("v"),
                 {dims[Dim::B], dims[Dim::Hkv], dims[Dim::Skv], dims[Dim::Dv]}};
  for (const ir::CapturedTensor& tensor : attention.tensors) {
    Declared& declared = list[tensor.name];
    declared.dtype = tensor.dtype;
    for (ir::ExprId extent : tensor.extents) {
      const auto size = ir::fold_integer(attention.dag, extent, dims);
      if (!size || *size < (dims[Dim::Skv] == 0 ? 0 : 1)) {
        return misfit(fmt::format("{}: the extent {} is not a valid size", tensor.name,
                                  to_source(attention, extent)));
      }
      declared.dims.push_back(*size);
    }
  }
  return list;
}

Result<double> element(DType dtype, double value, bool unrounded) {
  if (is_float(dtype)) return unrounded ? value : round_to(dtype, value);
  if (io::fits(dtype, value)) return value;
  return misfit(fmt::format("{} is not a value of {}", value, to_string(dtype)));
}

Result<io::HostTensor> checked(const std::string& name, const Declared& declared,
                               const io::HostTensor& given, bool unrounded) {
  const bool is_whole =
      given.values.size() == static_cast<std::size_t>(io::element_count(declared.dims));
  if (given.dims != declared.dims || !is_whole) {
    return misfit(fmt::format("{} has dims [{}], but the attention expects [{}]", name,
                              fmt::join(given.dims, ", "), fmt::join(declared.dims, ", ")));
  }
  if (declared.dtype == DType::i64 && !given.wide.empty()) return given;
  io::HostTensor tensor = {declared.dtype, declared.dims, given.values};
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    const Result<double> value = element(declared.dtype, tensor.values[i], unrounded);
    if (!value.ok()) return misfit(fmt::format("{}: {}", name, value.error().message));
    tensor.values[i] = *value;
  }
  return tensor;
}

// NaN is a scale: its block is NaN.
Status check_block_scales(const std::string& name, const io::HostTensor& tensor) {
  for (const double value : tensor.values) {
    if (is_e8m0(value)) continue;
    return misfit(fmt::format("{}: {} is not a power of two from 2^-127 to 2^127", name, value));
  }
  return {};
}

Status check_scale(const std::string& name, const io::HostTensor& tensor) {
  for (const double value : tensor.values) {
    if (value > 0 && std::isfinite(value)) continue;
    return misfit(fmt::format("{}: {} is not positive and finite", name, value));
  }
  return {};
}

// Rows as they are stored; given ones are of reals that may have more bits than their type.
void round_rows(RowFormat format, const io::HostTensor& given, io::HostTensor& tensor) {
  const auto columns = static_cast<std::size_t>(info(format).columns());
  std::vector<std::byte> bytes(static_cast<std::size_t>(info(format).bytes()));
  for (std::size_t at = 0; at + columns <= tensor.values.size(); at += columns) {
    store_row(format, std::span(given.values).subspan(at, columns), bytes.data());
    load_row(format, bytes.data(), std::span(tensor.values).subspan(at, columns));
  }
}

Status bind_tensors(const ir::Attention& attention, const Inputs& inputs, bool unrounded,
                    Bindings& bindings) {
  ATTN_ASSIGN(const Declarations wanted, declarations(attention));
  for (const auto& [name, tensor] : inputs.tensors) {
    if (!wanted.contains(name)) return misfit(name + " is not a tensor of this attention");
  }
  for (const auto& [name, declared] : wanted) {
    const auto given = inputs.tensors.find(name);
    if (given == inputs.tensors.end()) return misfit("the tensor " + name + " is missing");
    if (declared.dtype == DType::e8m0) {
      ATTN_RETURN_IF_ERROR(check_block_scales(name, given->second));
    }
    ATTN_ASSIGN(bindings.tensors[name], checked(name, declared, given->second, unrounded));
    const auto layout = attention.layouts.find(name);
    if (layout != attention.layouts.end() && layout->second.rows && !unrounded)
      round_rows(*layout->second.rows, given->second, bindings.tensors[name]);
  }
  return {};
}

// Elements of the gather are positions of keys, or none, and counts those of its lists.
Status check_gather(const ir::Attention& attention, const Bindings& bindings) {
  if (!attention.gather) return {};
  const io::HostTensor& keys = bindings.tensors.find(attention.gather->keys)->second;
  const std::string& name = attention.gather->counts;
  const io::HostTensor* counts = name.empty() ? nullptr : &bindings.tensors.find(name)->second;
  const std::int64_t rows = keys.dims[1], all = keys.dims[2], most = attention.dims[Dim::Skv];
  for (std::int64_t row = 0; row < keys.dims[0] * rows; ++row) {
    const std::int64_t count =
        counts ? static_cast<std::int64_t>(counts->values[static_cast<std::size_t>(row)]) : all;
    if (count < 0 || count > all) {
      return misfit(
          fmt::format("{}[{}, {}] is {}, outside 0..{}", name, row / rows, row % rows, count, all));
    }
    for (std::int64_t n = 0; n < count; ++n) {
      const double key = keys.values[static_cast<std::size_t>(row * all + n)];
      if (key >= -1 && key < static_cast<double>(most)) continue;
      return misfit(fmt::format("{}[{}, {}, {}] is {}, outside -1..{}", attention.gather->keys,
                                row / rows, row % rows, n, key, most - 1));
    }
  }
  return {};
}

// v, as the first columns of k.
io::HostTensor values_of(const io::HostTensor& k, std::int64_t width) {
  io::HostTensor v{k.dtype, {k.dims[0], k.dims[1], k.dims[2], width}, {}};
  const auto depth = static_cast<std::size_t>(k.dims[3]);
  for (std::size_t at = 0; at + depth <= k.values.size(); at += depth) {
    const auto begin = k.values.begin() + static_cast<std::ptrdiff_t>(at);
    v.values.insert(v.values.end(), begin, begin + width);
  }
  return v;
}

// Checks that scales are valid, and tensors are what they are declared to be.
Status check_facts(const ir::Attention& attention, const Bindings& bindings) {
  for (const ir::CapturedTensor& tensor : attention.tensors) {
    const io::HostTensor& given = bindings.tensors.find(tensor.name)->second;
    const bool is_scale = attention.cache ? ir::is_cache_scale(tensor.name)
                                          : attention.quantize && ir::is_scale(tensor.name);
    if (is_scale && tensor.dtype != DType::e8m0) {
      ATTN_RETURN_IF_ERROR(check_scale(tensor.name, given));
    }
    const auto broken = broken_fact(attention, tensor, given);
    if (broken) return misfit(fmt::format("{} {}", tensor.name, broken->what));
  }
  return {};
}

bool needs_seed(const ir::Attention& attention) {
  return attention.dropout && !attention.dropout->keep;
}

Status bind_seed(const Inputs& inputs, Bindings& bindings) {
  for (const char* name : {"seed", "offset"}) {
    const auto given = inputs.params.find(name);
    if (given == inputs.params.end()) return misfit(fmt::format("the {} is missing", name));
    const double value = given->second;
    if (!(value >= 0 && value <= 0x1p53 && value == std::floor(value))) {
      return misfit(fmt::format("{}: {} is not an integer from 0 to 2^53", name, value));
    }
    bindings.params[name] = value;
  }
  return {};
}

Status bind_params(const ir::Attention& attention, const Inputs& inputs, bool unrounded,
                   Bindings& bindings) {
  if (needs_seed(attention)) ATTN_RETURN_IF_ERROR(bind_seed(inputs, bindings));
  for (const auto& [name, value] : inputs.params) {
    if (needs_seed(attention) && (name == "seed" || name == "offset")) continue;
    if (attention.find_param(name) == nullptr) {
      return misfit(name + " is not a param of this attention");
    }
  }
  for (const ir::Param& param : attention.params) {
    const auto given = inputs.params.find(param.name);
    if (given == inputs.params.end()) return misfit("the param " + param.name + " is missing");
    const Result<double> value = element(param.dtype, given->second, unrounded);
    if (!value.ok()) return misfit(fmt::format("{}: {}", param.name, value.error().message));
    bindings.params[param.name] = *value;
  }
  return {};
}

// Multiplies keys and values of 8 bits with their scales: all else sees what they stand for.
void apply_cache_scales(const ir::Attention& attention, Bindings& bindings) {
  for (const auto& [of, by] : {std::pair("k", ir::kKeyScale), {"v", ir::kValueScale}}) {
    io::HostTensor& tensor = bindings.tensors.find(of)->second;
    const std::vector<double>& scales = bindings.tensors.find(by)->second.values;
    const std::int64_t heads = tensor.dims[1], rows = tensor.dims[2], columns = tensor.dims[3];
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      const std::int64_t row = static_cast<std::int64_t>(i) / columns;
      const ir::CachePlace at{row / rows / heads, row / rows % heads, row % rows};
      tensor.values[i] *= scales[static_cast<std::size_t>(
          ir::index_of_scale(attention.cache->by, attention.dims, at))];
    }
  }
}

Status all_bound(const ir::Dims& dims) {
  for (Dim dim : ir::kDims) {
    if (!dims.get(dim)) {
      return {ErrorCode::invalid_argument, fmt::format("the dimension {0} is open; set it with "
                                                       "--bind {0}=SIZE",
                                                       to_string(dim))};
    }
  }
  return {};
}

}  // namespace

Result<Bindings> bind(const ir::Attention& attention, const Inputs& inputs, bool unrounded) {
  ATTN_RETURN_IF_ERROR(all_bound(attention.dims));
  ATTN_RETURN_IF_ERROR(ir::check_random_dropout(attention));
  Bindings bindings;
  ATTN_RETURN_IF_ERROR(bind_tensors(attention, inputs, unrounded, bindings));
  ATTN_RETURN_IF_ERROR(check_facts(attention, bindings));
  ATTN_RETURN_IF_ERROR(check_gather(attention, bindings));
  if (attention.values_of_keys)
    bindings.tensors["v"] = values_of(bindings.tensors.find("k")->second, attention.dims[Dim::Dv]);
  ATTN_RETURN_IF_ERROR(bind_params(attention, inputs, unrounded, bindings));
  if (attention.is_mxfp8()) apply_block_scales(attention, bindings);
  if (attention.cache) apply_cache_scales(attention, bindings);
  return bindings;
}

}  // namespace attn::reference
