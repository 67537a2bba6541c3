#include "tools/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>

#include "compiler/reference/blocks.h"
#include "compiler/reference/defaults.h"
#include "compiler/reference/lifelike.h"
#include "compiler/support/text.h"
#include "runtime/io/element.h"
#include "runtime/io/npy.h"
#include "runtime/io/random.h"
#include "tools/memory.h"
#include "tools/number.h"

namespace attn::tools {
namespace {

using ir::Dim;

constexpr std::string_view kRandom = "random";
constexpr std::string_view kSeed[] = {"seed", "offset"};  // of random dropout; default 0

// A tensor or param (without dims) that needs a value.
struct Wanted {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> dims;
  bool is_param = false;
  const ir::CapturedTensor* captured = nullptr;
};

bool is_seed(const Wanted& wanted) {
  return std::ranges::find(kSeed, wanted.name) != std::end(kSeed);
}

std::vector<Wanted> wanted_by(const ir::Attention& attention, Needs needs) {
  const ir::Dims& d = attention.dims;
  std::vector<Wanted> wanted;
  if (needs >= Needs::forward) {
    wanted = {{"q", attention.dtype, {d[Dim::B], d[Dim::Hq], d[Dim::Sq], d[Dim::Dqk]}},
              {"k", attention.dtype, {d[Dim::B], d[Dim::Hkv], d[Dim::Skv], d[Dim::Dqk]}}};
    if (!attention.values_of_keys)
      wanted.push_back({"v", attention.dtype, {d[Dim::B], d[Dim::Hkv], d[Dim::Skv], d[Dim::Dv]}});
  }
  if (needs == Needs::gradients) {
    wanted.push_back({kCotangent,
                      attention.dtype_of(kCotangent),
                      {d[Dim::B], d[Dim::Hq], d[Dim::Sq], d[Dim::Dv]}});
    if (attention.reads_d_lse)
      wanted.push_back({kCotangentOfLse, DType::f32, {d[Dim::B], d[Dim::Hq], d[Dim::Sq]}});
  }
  for (const ir::CapturedTensor& tensor : attention.tensors) {
    std::vector<std::int64_t> dims;
    for (const ir::ExprId extent : tensor.extents) {
      dims.push_back(*ir::fold_integer(attention.dag, extent));
    }
    wanted.push_back({tensor.name, tensor.dtype, std::move(dims), false, &tensor});
  }
  for (const ir::Param& param : attention.params) {
    wanted.push_back({param.name, param.dtype, {}, true});
  }
  if (needs >= Needs::forward && attention.dropout && !attention.dropout->keep) {
    for (const std::string_view name : kSeed) {
      wanted.push_back({std::string(name), DType::i64, {}, true});
    }
  }
  return wanted;
}

Error bad_value(const Wanted& wanted, const std::string& text) {
  return {ErrorCode::invalid_argument,
          fmt::format("--in {}={}: invalid value", wanted.name, text),
          {"values are random, random:SEED, zeros, const:X, a number, or @FILE.npy"}};
}

std::vector<double> filled(const Wanted& wanted, double value) {
  return std::vector<double>(static_cast<std::size_t>(io::element_count(wanted.dims)), value);
}

bool fits(const Wanted& wanted, double value) {
  if (wanted.dtype == DType::e8m0) return is_e8m0(value);
  if (is_seed(wanted)) return value >= 0 && value <= 0x1p53 && value == std::floor(value);
  return io::fits(wanted.dtype, value);
}

Result<std::vector<double>> constant(const Wanted& wanted, const std::string& text, double value) {
  if (!fits(wanted, value)) {
    return {ErrorCode::invalid_argument,
            fmt::format("--in {}={}: {} is not a value of {}", wanted.name, text, value,
                        to_string(wanted.dtype))};
  }
  return filled(wanted, value);
}

// Where values come from that are not in a file.
struct Source {
  const ir::Attention& attention;
  Missing missing;
};

// Tensors with different names get unrelated streams from the same seed.
Result<std::vector<double>> random(const Source& source, const Wanted& wanted,
                                   const std::string& text) {
  const std::uint64_t seed = io::seed_of(fmt::format("{}:{}", wanted.name, text));
  if (!is_float(wanted.dtype) && wanted.captured && source.missing == Missing::lifelike) {
    return reference::lifelike(source.attention, *wanted.captured, wanted.dims, seed);
  }
  if (!is_float(wanted.dtype)) {
    return {ErrorCode::invalid_argument,
            fmt::format("--in {}=random: {} holds {}; only floats can be random", wanted.name,
                        wanted.name, to_string(wanted.dtype))};
  }
  std::vector<double> values = io::normal_values(seed, io::element_count(wanted.dims));
  if (wanted.dtype == DType::e8m0) {
    for (double& value : values) value = std::exp2(std::round(value));
  }
  return values;
}

Status check_file(const Wanted& wanted, const io::HostTensor& tensor, const std::string& path) {
  const auto wrong = [&](const std::string& what) -> Status {
    return {ErrorCode::invalid_argument, fmt::format("--in {}=@{}: {}", wanted.name, path, what)};
  };
  if (tensor.dims != wanted.dims) {
    const bool has_layout = wanted.dims.size() == 4 && wanted.captured == nullptr;
    return wrong(fmt::format("the file has dims {}, {} needs {}{}", support::dims_text(tensor.dims),
                             wanted.name, support::dims_text(wanted.dims),
                             has_layout ? " (files hold [B,H,S,D] for every layout)" : ""));
  }
  if (wanted.dtype == DType::e8m0) {
    const auto bad = std::ranges::find_if_not(tensor.values, is_e8m0);
    if (bad == tensor.values.end()) return {};
    return wrong(
        fmt::format("the file holds {}, which is not a power of two from 2^-127 to 2^127", *bad));
  }
  if (is_float(wanted.dtype)) return {};
  if (is_float(tensor.dtype)) {
    return wrong(fmt::format("the file has floats ({}), {} needs {}", to_string(tensor.dtype),
                             wanted.name, to_string(wanted.dtype)));
  }
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    if (wanted.dtype == DType::i64 && !wanted.is_param) break;  // which holds all integers
    if (fits(wanted, tensor.values[i])) continue;
    return wrong(fmt::format("the file holds {}, which is not a value of {}", tensor.integer(i),
                             to_string(wanted.dtype)));
  }
  return {};
}

// Values of a tensor, those of i64 exactly.
struct Elements {
  Elements(std::vector<double> all) : values(std::move(all)) {}
  explicit Elements(io::HostTensor&& tensor)
      : values(std::move(tensor.values)), wide(std::move(tensor.wide)) {}

  std::vector<double> values;
  std::vector<std::int64_t> wide{};  // as in io::HostTensor
};

Result<Elements> read_file(const Wanted& wanted, const std::string& path) {
  ATTN_ASSIGN(io::HostTensor tensor, io::read_npy(path));
  if (wanted.is_param && tensor.values.size() == 1) tensor.dims.clear();
  ATTN_RETURN_IF_ERROR(check_file(wanted, tensor, path));
  return Elements(std::move(tensor));
}

Result<std::vector<double>> number_of(const Source& source, const Wanted& wanted,
                                      const std::string& text) {
  if (text == "zeros") return constant(wanted, text, 0);
  if (text == kRandom) return random(source, wanted, "0");
  if (text.starts_with("random:")) {
    const auto seed = parse_number<std::uint64_t>(std::string_view(text).substr(7));
    return seed ? random(source, wanted, fmt::format("{}", *seed)) : bad_value(wanted, text);
  }
  const bool named = text.starts_with("const:");
  const auto number = parse_number<double>(std::string_view(text).substr(named ? 6 : 0));
  return number ? constant(wanted, text, *number) : bad_value(wanted, text);
}

Result<Elements> value_of(const Source& source, const Wanted& wanted, const std::string& text) {
  if (text.starts_with("@")) return read_file(wanted, text.substr(1));
  ATTN_ASSIGN(std::vector<double> values, number_of(source, wanted, text));
  return Elements(std::move(values));
}

std::vector<double> pattern(const ir::Attention& attention, const Wanted& wanted) {
  if (wanted.is_param) return {is_float(wanted.dtype) ? 0.75 : 4};
  std::vector<double> values = filled(wanted, 0);
  const bool of_q = wanted.name == ir::kLengthsQ;
  if (of_q || wanted.name == ir::kLengthsKv) {
    const std::int64_t size = attention.dims[of_q ? Dim::Sq : Dim::Skv];
    const std::int64_t lengths[] = {size, (size + 1) / 2, 1, 0};
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(lengths[i % 4]);
    return values;
  }
  const std::int64_t last = wanted.dims.empty() ? 1 : wanted.dims.back();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t block = 4 * (static_cast<std::int64_t>(i) % last) / last;
    values[i] = static_cast<double>(wanted.dtype == DType::boolean ? block % 2 : block);
  }
  return values;
}

Error missing_error(const Wanted& wanted) {
  return {ErrorCode::invalid_argument,
          fmt::format("{} ({}{}) needs a value", wanted.name, to_string(wanted.dtype),
                      wanted.is_param ? "" : support::dims_text(wanted.dims)),
          {wanted.is_param
               ? fmt::format("set it, for example with --in {}={}", wanted.name,
                             wanted.dtype == DType::f32 ? "0.5" : "16")
               : fmt::format("set it with --in {}=@FILE.npy, const:X or zeros", wanted.name)}};
}

Result<std::vector<double>> without_default(const Source& source, const Wanted& wanted,
                                            std::string& origin) {
  const auto& [attention, missing] = source;
  if (is_seed(wanted)) {
    origin = "0";
    return std::vector<double>{0};
  }
  const bool patterned = wanted.is_param || !is_float(wanted.dtype);
  if (missing == Missing::lifelike && wanted.is_param) {
    const auto quarter =
        static_cast<double>(std::max<std::int64_t>(attention.dims[Dim::Skv] / 4, 1));
    const double value = is_float(wanted.dtype) ? 0.75 : quarter;
    origin = fmt::format("{}", value);
    return std::vector<double>{value};
  }
  if (missing == Missing::pattern && patterned) {
    std::vector<double> values = pattern(attention, wanted);
    origin = wanted.is_param ? fmt::format("{}", values[0]) : std::string(kPattern);
    return values;
  }
  if (!is_float(wanted.dtype) && missing != Missing::lifelike) return missing_error(wanted);
  origin = kRandom;
  return random(source, wanted, "0");
}

Result<Elements> default_of(const Source& source, const Wanted& wanted, std::string& origin) {
  if (wanted.captured && wanted.captured->fallback) {
    origin = kDefault;
    ATTN_ASSIGN(io::HostTensor made, reference::default_values(source.attention, *wanted.captured));
    return Elements(std::move(made));
  }
  ATTN_ASSIGN(std::vector<double> values, without_default(source, wanted, origin));
  return Elements(std::move(values));
}

// A warning if rounding to the dtype turns finite values into infinity, or into the largest value
// of 8 bits; "" otherwise.
std::string overflow_warning(const Wanted& wanted, const std::string& origin,
                             const std::vector<double>& values) {
  if (!is_float(wanted.dtype)) return "";
  const auto overflows = [&](double value) {
    if (is_fp8(wanted.dtype)) return std::abs(value) > max_finite(wanted.dtype);
    return std::isfinite(value) && std::isinf(round_to(wanted.dtype, value));
  };
  const auto first = std::ranges::find_if(values, overflows);
  if (first == values.end()) return "";
  const std::string to =
      is_fp8(wanted.dtype) ? fmt::format("{}", max_finite(wanted.dtype)) : "infinity";
  return fmt::format("--in {}={}: {} of {} values, the first {}, round to {} in {}", wanted.name,
                     origin, std::ranges::count_if(values, overflows), values.size(), *first, to,
                     to_string(wanted.dtype));
}

double elements(const std::vector<std::int64_t>& dims) {
  double count = 1;
  for (const std::int64_t dim : dims) count *= static_cast<double>(dim);
  return count;
}

// Memory for the inputs as given and as rounded, their gradients, and the outputs.
double host_bytes(const ir::Attention& attention, const std::vector<Wanted>& all, Needs needs) {
  const double copies = needs == Needs::gradients ? 3 : 2;
  double doubles = 0;
  for (const Wanted& wanted : all) doubles += copies * elements(wanted.dims);
  if (needs < Needs::forward) return doubles * sizeof(double);
  const ir::Dims& d = attention.dims;
  doubles += elements({d[Dim::B], d[Dim::Hq], d[Dim::Sq], d[Dim::Dv] + 1});
  return doubles * sizeof(double);
}

Status check_memory(const ir::Attention& attention, const std::vector<Wanted>& all, Needs needs) {
  const double needed = host_bytes(attention, all, needs);
  const double there = static_cast<double>(host_memory_bytes());
  if (needed <= there) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("tensors of these sizes need {:.3g} GB of host memory; only {:.3g} GB "
                           "are available",
                           needed / 1e9, there / 1e9),
               {"make a dimension smaller with --bind"}};
}

Error not_read(const std::string& name, Needs needs) {
  if (needs == Needs::masks) {
    return {ErrorCode::invalid_argument,
            fmt::format("--in {}: the mask does not read it", name),
            {"a picture with --score also reads what the score does"}};
  }
  return {ErrorCode::invalid_argument,
          fmt::format("--in {}: neither the mask nor the score reads it", name)};
}

// Leaves what is read.
Status keep_what_is_read(const ir::Attention& attention, const InputTexts& texts, Needs needs,
                         std::vector<Wanted>& all) {
  const std::set<std::string> names = names_read(attention, needs);
  for (const auto& [name, text] : texts) {
    if (!names.contains(name)) return not_read(name, needs);
  }
  std::erase_if(all, [&](const Wanted& wanted) { return !names.contains(wanted.name); });
  return {};
}

// Makes the copies of 8-bit tensors that a backward with scales of blocks reads, unless they or
// their scales are given.
Status make_copies(const ir::Attention& attention, const InputTexts& texts, Inputs& inputs) {
  const auto given = [&](std::string_view name) { return texts.contains(std::string(name)); };
  const auto origin = [&](std::string_view name) -> std::string& {
    return std::ranges::find(inputs.origins, name, &decltype(inputs.origins)::value_type::first)
        ->second;
  };
  auto& tensors = inputs.values.tensors;
  for (const ir::Copy& copy : ir::kCopies) {
    const std::string name(copy.name), of(copy.of), scale = "descale_" + name;
    if (!tensors.contains(name) || !tensors.contains(of) || given(name)) continue;
    if (given(scale)) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("--in {} without {}: a copy that is not given has scales of its own",
                               scale, name),
                   {fmt::format("give --in {} too, or neither", name)}};
    }
    auto made = reference::make_copy(attention, copy, tensors.at(of), tensors.at("descale_" + of));
    tensors[name] = std::move(made.elements);
    origin(name) = "of " + of;
    if (!copy.is_narrow) continue;
    tensors[scale] = std::move(made.scales);
    origin(scale) = "of " + of;
  }
  return {};
}

// Checks what the spec declares about tensors, for values that are given.
Status check_facts(const ir::Attention& attention, const InputTexts& texts,
                   const reference::Inputs& inputs) {
  for (const ir::CapturedTensor& tensor : attention.tensors) {
    const auto given = texts.find(tensor.name);
    const auto values = inputs.tensors.find(tensor.name);
    if (given == texts.end() || values == inputs.tensors.end()) continue;
    const auto broken = reference::broken_fact(attention, tensor, values->second);
    if (!broken) continue;
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("--in {}={}: {} {}", tensor.name, given->second, tensor.name, broken->what),
        {broken->help}};
  }
  return {};
}

Error unknown_name(const std::string& name, const std::vector<Wanted>& wanted, Needs needs) {
  if (name == kCotangentOfLse && needs == Needs::gradients) {
    return {ErrorCode::invalid_argument,
            "--in dlse: a backward reads it only if `lse` is in the `grad` clause",
            {"--gradients q,k,v,lse adds it"}};
  }
  if (name == kCotangent || name == kCotangentOfLse) {
    Error error{ErrorCode::invalid_argument,
                fmt::format("--in {}: only a backward reads it", name)};
    if (needs == Needs::forward) error.notes.push_back("--grad runs one");
    return error;
  }
  if (name == "D" || ir::parse_dim(name)) {
    return {ErrorCode::invalid_argument,
            fmt::format("--in {}: {} is a dimension", name, name),
            {fmt::format("--bind {}=.. sets its size", name)}};
  }
  if (name == "v" && needs >= Needs::forward) {
    return {ErrorCode::invalid_argument, "--in v: v is a part of k, by the clause `values`"};
  }
  if (name == "q" || name == "k" || name == "v") {
    return {ErrorCode::invalid_argument,
            fmt::format("--in {}: this command does not read q, k and v", name)};
  }
  std::string names;
  std::vector<std::string_view> views;
  for (const Wanted& each : wanted) {
    names += (names.empty() ? "" : ", ") + each.name;
    views.push_back(each.name);
  }
  Error error{ErrorCode::invalid_argument,
              fmt::format("--in {}: the spec has no such tensor or param", name),
              {names.empty() ? "it has none: `tensor`, `learn` and `param` declare some"
                             : "it has " + names}};
  const std::string_view meant = support::nearest(name, views);
  if (!meant.empty()) {
    error.notes.push_back(fmt::format("did you mean {}?", support::quoted(meant)));
  }
  error.notes.push_back("dimensions and parameters of the spec are set with --bind");
  return error;
}

}  // namespace

std::set<std::string> names_read(const ir::Attention& attention, Needs needs) {
  std::vector<ir::ExprId> roots = attention.masks;
  if (needs == Needs::masks_and_scores) {
    roots.push_back(attention.score);
    for (const ir::KeySum& sum : attention.sums) roots.push_back(sum.value);
  }
  std::set<std::string> names;
  for (const ir::ExprId id : ir::reachable(attention.dag, roots)) {
    const ir::Node& node = attention.dag[id];
    if (node.is(ir::Op::load_) || node.is(ir::Op::param_))
      names.insert(attention.dag.symbol_of(id));
  }
  for (const ir::KeySum& sum : attention.sums) names.erase(sum.tensor.name);
  if (const auto& gather = attention.gather) {
    names.insert(gather->keys);
    if (!gather->counts.empty()) names.insert(gather->counts);
  }
  if (attention.lengths_q) names.emplace(ir::kLengthsQ);
  if (attention.lengths_kv) names.emplace(ir::kLengthsKv);
  return names;
}

bool is_input(const ir::Attention& attention, const std::string& name) {
  const std::vector<Wanted> all = wanted_by(attention, Needs::gradients);
  return std::ranges::find(all, name, &Wanted::name) != all.end();
}

namespace {

// The element that has the address of this one, the first of those: the same but for dimensions
// with a stride of 0.
std::size_t first_at(std::size_t element, const std::vector<std::int64_t>& dims,
                     const ir::Layout& layout) {
  std::size_t first = 0, step = 1;
  for (std::size_t axis = dims.size(); axis-- > 0;) {
    const auto size = static_cast<std::size_t>(dims[axis]);
    if (layout.strides[axis] != 0) first += element % size * step;
    element /= size;
    step *= size;
  }
  return first;
}

// A captured tensor's dims at other sizes. What is as large as Sq or Skv is taken for it; nothing
// for B, which heads may be as many as.
std::vector<std::int64_t> resized(std::vector<std::int64_t> extents, const ir::Dims& from,
                                  const ir::Dims& to) {
  for (std::int64_t& extent : extents) {
    const Dim dim = extent == from[Dim::Sq] ? Dim::Sq : Dim::Skv;
    if (extent == from[dim]) extent = to[dim];
  }
  return extents;
}

bool same_bits(double x, double y) {
  return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
}

// Makes elements equal that a stride of 0 gives one address. Those of a file must be, bit by bit.
Status repeat_elements(const ir::Attention& attention, const InputTexts& texts,
                       reference::Inputs& inputs) {
  for (const auto& [name, layout] : attention.layouts) {
    const auto found = inputs.tensors.find(name);
    if (layout.kind != ir::LayoutKind::strided || found == inputs.tensors.end()) continue;
    const auto given = texts.find(name);
    const bool is_file = given != texts.end() && given->second.starts_with("@");
    std::vector<double>& values = found->second.values;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double first = values[first_at(i, found->second.dims, layout)];
      if (is_file && !same_bits(values[i], first)) {
        return {ErrorCode::invalid_argument,
                fmt::format(
                    "--in {}={}: element {} is {}, but with the strides of {} it is that with {}",
                    name, given->second, i, values[i], name, first)};
      }
      values[i] = first;
    }
  }
  return {};
}

}  // namespace

Result<Inputs> make_inputs(const ir::Attention& attention, const InputTexts& texts, Missing missing,
                           Needs needs) {
  std::vector<Wanted> all = wanted_by(attention, needs);
  for (const auto& [name, text] : texts) {
    if (std::ranges::find(all, name, &Wanted::name) == all.end())
      return unknown_name(name, all, needs);
  }
  if (needs < Needs::forward) {
    ATTN_RETURN_IF_ERROR(keep_what_is_read(attention, texts, needs, all));
  }
  ATTN_RETURN_IF_ERROR(check_memory(attention, all, needs));
  const Source source{attention, missing};
  Inputs inputs;
  for (const Wanted& wanted : all) {
    const auto given = texts.find(wanted.name);
    std::string origin = given == texts.end() ? "" : given->second;
    ATTN_ASSIGN(Elements elements, given == texts.end() ? default_of(source, wanted, origin)
                                                        : value_of(source, wanted, given->second));
    if (std::string warning = overflow_warning(wanted, origin, elements.values); !warning.empty()) {
      inputs.warnings.push_back(std::move(warning));
    }
    inputs.origins.emplace_back(wanted.name, origin);
    if (wanted.is_param) {
      inputs.values.params[wanted.name] = elements.values[0];
    } else {
      inputs.values.tensors[wanted.name] = {wanted.dtype, wanted.dims, std::move(elements.values),
                                            std::move(elements.wide)};
    }
  }
  ATTN_RETURN_IF_ERROR(repeat_elements(attention, texts, inputs.values));
  ATTN_RETURN_IF_ERROR(check_facts(attention, texts, inputs.values));
  if (attention.is_mxfp8()) ATTN_RETURN_IF_ERROR(make_copies(attention, texts, inputs));
  return inputs;
}

Status check_host_memory(const ir::Attention& attention, Needs needs) {
  return check_memory(attention, wanted_by(attention, needs), needs);
}

double seconds_of_element() {
  using Clock = std::chrono::steady_clock;
  const Wanted sample{"q", DType::bf16, {1 << 16}};
  const Clock::time_point begin = Clock::now();
  const std::vector<double> values = io::normal_values(0, sample.dims.front());
  static_cast<void>(overflow_warning(sample, "", values));
  return std::chrono::duration<double>(Clock::now() - begin).count() / elements(sample.dims);
}

double elements_made(const ir::Attention& attention, const InputTexts& texts, Needs needs,
                     const ir::Dims& dims) {
  ir::Attention sized = attention;
  sized.dims = dims;
  double count = 0;
  for (const Wanted& wanted : wanted_by(sized, needs)) {
    const auto given = texts.find(wanted.name);
    if (given != texts.end() && given->second.starts_with("@")) continue;
    double of_one = 1;
    if (given == texts.end() && wanted.captured && wanted.captured->fallback) {
      const ir::ExprId roots[] = {*wanted.captured->fallback};
      of_one = static_cast<double>(ir::reachable(attention.dag, roots).size());
    }
    const bool is_captured = wanted.captured != nullptr;
    count +=
        of_one * elements(is_captured ? resized(wanted.dims, attention.dims, dims) : wanted.dims);
  }
  return count;
}

Result<reference::Inputs> given_inputs(const ir::Attention& attention, const InputTexts& texts) {
  const std::vector<Wanted> all = wanted_by(attention, Needs::gradients);
  reference::Inputs inputs;
  for (const auto& [name, text] : texts) {
    const auto wanted = std::ranges::find(all, name, &Wanted::name);
    if (wanted == all.end()) return unknown_name(name, all, Needs::gradients);
    ATTN_RETURN_IF_ERROR(check_memory(attention, {*wanted}, Needs::masks));
    ATTN_ASSIGN(Elements elements, value_of({attention, Missing::lifelike}, *wanted, text));
    if (wanted->is_param) {
      inputs.params[name] = elements.values[0];
    } else {
      inputs.tensors[name] = {wanted->dtype, wanted->dims, std::move(elements.values),
                              std::move(elements.wide)};
    }
  }
  ATTN_RETURN_IF_ERROR(check_facts(attention, texts, inputs));
  return inputs;
}

Result<io::HostTensor> default_tensor(const ir::Attention& attention, const std::string& name) {
  const std::vector<Wanted> all = wanted_by(attention, Needs::forward);
  const auto wanted = std::ranges::find(all, name, &Wanted::name);
  if (wanted == all.end()) return unknown_name(name, all, Needs::forward);
  std::string origin;
  ATTN_ASSIGN(Elements elements, default_of({attention, Missing::pattern}, *wanted, origin));
  return io::HostTensor{wanted->dtype, wanted->dims, std::move(elements.values),
                        std::move(elements.wide)};
}

}  // namespace attn::tools
