#include "tests/host/ranks_machine.h"

#include <cstring>
#include <functional>
#include <stdexcept>

#include "compiler/sharding/part_attention.h"
#include "runtime/graph/extent.h"
#include "runtime/ranks/exchanges.h"
#include "runtime/ranks/kernels.h"
#include "runtime/ranks/tensors.h"
#include "tests/host/gpu/own_kernels.h"

namespace attn::testing {
namespace {

using plan::Direction;
using plan::TensorRole;
using ranks::Address;
using ranks::Divided;
using Bytes = std::vector<std::byte>;

template <auto kKernel>
void call(void* const* arguments) {
  call_with(kKernel, arguments);
}

template <auto kKernel, typename Parameters>
void run_kernel(const Parameters& parameters, std::int64_t blocks) {
  blockDim.x = ranks::kRanksThreads;
  void* arguments[] = {const_cast<Parameters*>(&parameters)};
  for_each_thread(call<kKernel>, static_cast<std::size_t>(blocks) * ranks::kRanksThreads,
                  arguments);
}

plan::TensorInfo tensor(std::string name, TensorRole role, DType dtype,
                        std::vector<std::int64_t> d) {
  plan::TensorInfo info{std::move(name), role, dtype, std::move(d), {}};
  const std::vector<std::int64_t>& dims = info.dims;
  info.strides = row_major_strides(dims);
  constexpr std::size_t kBshd = 4;
  if (dims.size() == kBshd && (role != TensorRole::captured && role != TensorRole::gradient))
    info.strides = {dims[2] * dims[1] * dims[3], dims[3], dims[1] * dims[3], 1};
  if (dims.size() == kBshd && info.name.size() == 2)  // dq, dk, dv
    info.strides = {dims[2] * dims[1] * dims[3], dims[3], dims[1] * dims[3], 1};
  return info;
}

// Elements of a tensor in memory, in logical order.
template <typename Visit>
void visit(const plan::TensorInfo& info, const Visit& visit_one) {
  std::vector<std::int64_t> at(info.dims.size());
  const std::int64_t count = io::element_count(info.dims);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t left = i, offset = 0;
    for (std::size_t axis = info.dims.size(); axis-- > 0;) {
      offset += left % info.dims[axis] * info.strides[axis];
      left /= info.dims[axis];
    }
    visit_one(static_cast<std::size_t>(i), offset);
  }
}

io::HostTensor read(const plan::TensorInfo& info, const void* from) {
  io::HostTensor made{DType::f64, info.dims,
                      std::vector<double>(static_cast<std::size_t>(io::element_count(info.dims)))};
  visit(info, [&](std::size_t i, std::int64_t offset) {
    made.values[i] = info.dtype == DType::i32
                         ? static_cast<double>(static_cast<const std::int32_t*>(from)[offset])
                         : static_cast<double>(static_cast<const float*>(from)[offset]);
  });
  return made;
}

void write(const plan::TensorInfo& info, const io::HostTensor& values, void* to) {
  ASSERT_EQ(io::element_count(info.dims), static_cast<std::int64_t>(values.values.size()))
      << info.name;
  visit(info, [&](std::size_t i, std::int64_t offset) {
    if (info.dtype == DType::i32) {
      static_cast<std::int32_t*>(to)[offset] = static_cast<std::int32_t>(values.values[i]);
    } else {
      static_cast<float*>(to)[offset] = static_cast<float>(values.values[i]);
    }
  });
}

// The rows or keys of a tensor [B, H, indices, ..].
io::HostTensor taken(const io::HostTensor& whole, const ranks::Intervals& indices) {
  io::HostTensor part{DType::f64, whole.dims, {}};
  part.dims[2] = ranks::count(indices);
  const std::int64_t width = whole.dims.size() > 3 ? whole.dims[3] : 1;
  for (std::int64_t outer = 0; outer < whole.dims[0] * whole.dims[1]; ++outer) {
    for (const std::int64_t index : ranks::numbers(indices)) {
      const auto begin = whole.values.begin() + (outer * whole.dims[2] + index) * width;
      part.values.insert(part.values.end(), begin, begin + width);
    }
  }
  return part;
}

void put(const io::HostTensor& part, const ranks::Intervals& indices, io::HostTensor& whole) {
  const std::int64_t width = whole.dims.size() > 3 ? whole.dims[3] : 1;
  auto from = part.values.begin();
  for (std::int64_t outer = 0; outer < whole.dims[0] * whole.dims[1]; ++outer) {
    for (const std::int64_t index : ranks::numbers(indices)) {
      const auto to = whole.values.begin() + (outer * whole.dims[2] + index) * width;
      std::copy(from, from + width, to);
      from += width;
    }
  }
}

class Rank {
 public:
  Rank(const RanksOnHost& all, const ranks::Division& division, int rank, Direction direction)
      : all_(all),
        division_(division),
        program_(division.ranks[static_cast<std::size_t>(rank)]),
        direction_(direction) {
    for (const sharding::Part& part : all.programs.parts_of(rank)) {
      made_.push_back(sharding::part_attention(all.attention, part, program_.key_heads));
      programs_.push_back(plan_of(made_.back()));
    }
    bind();
    std::vector<const plan::Program*> plans;
    for (const plan::Program& program : programs_) plans.push_back(&program);
    auto made = ranks::schedule_of({division_, program_, direction_, home_, plans});
    if (!made.ok()) throw std::runtime_error(made.error().to_text());
    schedule_ = std::move(*made);
    memory_.assign(static_cast<std::size_t>(schedule_.memory_bytes), std::byte{0xff});
    bases_ = {memory_.data(), schedule_.table.data(), addresses_};
  }

  const ranks::Schedule& schedule() const { return schedule_; }
  const ranks::Program& program() const { return program_; }
  void* at(const Address& address) const { return bases_.address(address); }

  void copy(const std::vector<ranks::Copy>& copies) const {
    for (const ranks::CopyLaunch& launch : ranks::launches_of(copies, bases_))
      run_kernel<attn_ranks_copy>(launch.copies, launch.blocks);
  }

  void merge(const std::vector<ranks::Merge>& merges) const {
    for (const ranks::Merge& merge : merges) {
      std::vector<ranks::RanksPlace> places;
      for (const ranks::MergePlace& place : merge.places)
        places.push_back(ranks::resolved(place, bases_));
      const ranks::MergeLaunch launch = ranks::launch_of(merge, bases_, places.data());
      run_kernel<attn_ranks_merge>(launch.merge, launch.blocks);
    }
  }

  void compute(std::size_t part) {
    reference::Inputs inputs;
    inputs.params = all_.expected.inputs.params;
    std::map<std::string, io::HostTensor> bound;
    for (std::size_t i = 0; i < programs_[part].tensors.size(); ++i) {
      const plan::TensorInfo& info = programs_[part].tensors[i];
      if (info.is_output()) continue;
      bound[info.name] = read(info, at(schedule_.parts[part][i]));
      if (info.role != TensorRole::saved && info.role != TensorRole::cotangent)
        inputs.tensors[info.name] = bound[info.name];
    }
    const reference::Options options{.unrounded = true, .threads = 1};
    if (direction_ == Direction::forward) {
      const auto outputs = reference::evaluate(made_[part].attention, inputs, options);
      ASSERT_TRUE(outputs.ok()) << outputs.error().to_text();
      for (const auto& [name, values] :
           {std::pair("o", &outputs->o), std::pair("lse", &outputs->lse),
            std::pair("max", &outputs->max), std::pair("sum_exp", &outputs->sum_exp),
            std::pair("max_with_sink", &outputs->max_with_sink),
            std::pair("sum_exp_with_sink", &outputs->sum_exp_with_sink),
            std::pair("lse_without_sink", &outputs->lse_without_sink)})
        give(part, name, *values);
      return;
    }
    differentiate(part, inputs, bound);
  }

  io::HostTensor result(std::size_t index) const { return read(home_[index], addresses_[index]); }

 private:
  // The tensors that a compiled plan of the part would have.
  plan::Program plan_of(const sharding::PartAttention& made) const {
    using enum TensorRole;
    using ir::Dim;
    const ir::Attention& attention = made.attention;
    const ir::Dims& d = attention.dims;
    plan::Program program;
    const auto add = [&](const char* name, TensorRole role, Dim heads, Dim rows,
                         std::optional<Dim> width) {
      std::vector<std::int64_t> dims = {d[Dim::B], d[heads], d[rows]};
      if (width) dims.push_back(d[*width]);
      program.tensors.push_back(tensor(name, role, DType::f32, dims));
    };
    const bool backward = direction_ == Direction::backward;
    add("q", query, Dim::Hq, Dim::Sq, Dim::Dqk);
    add("k", key, Dim::Hkv, Dim::Skv, Dim::Dqk);
    add("v", value, Dim::Hkv, Dim::Skv, Dim::Dv);
    if (!backward || !attention.is_pointwise())
      add("o", backward ? saved : output, Dim::Hq, Dim::Sq, Dim::Dv);
    if (!attention.is_pointwise()) add("lse", backward ? saved : stats, Dim::Hq, Dim::Sq, {});
    for (const ir::Output& each : ir::kOutputs) {
      const std::string name(each.name);
      if (!backward && name != "o" && name != "lse" && attention.*each.wanted)
        add(name.c_str(), stats, Dim::Hq, Dim::Sq, {});
    }
    if (backward) {
      add("do", cotangent, Dim::Hq, Dim::Sq, Dim::Dv);
      if (attention.reads_d_lse) add("dlse", cotangent, Dim::Hq, Dim::Sq, {});
      add("dq", gradient, Dim::Hq, Dim::Sq, Dim::Dqk);
      add("dk", gradient, Dim::Hkv, Dim::Skv, Dim::Dqk);
      add("dv", gradient, Dim::Hkv, Dim::Skv, Dim::Dv);
    }
    for (const ir::CapturedTensor& each : attention.tensors) {
      std::vector<std::int64_t> dims;
      for (const ir::ExprId extent : each.extents)
        dims.push_back(*ir::fold_integer(attention.dag, extent, d));
      const DType dtype = is_float(each.dtype) ? DType::f32 : DType::i32;
      program.tensors.push_back(tensor(each.name, captured, dtype, dims));
      if (backward && each.learned)
        program.tensors.push_back(tensor("d_" + each.name, gradient, dtype, dims));
    }
    return program;
  }

  void bind() {
    home_ = ranks::home_tensors(division_, program_, direction_);
    const auto& whole = direction_ == Direction::forward ? division_.forward : division_.backward;
    std::size_t bytes = 0;
    std::vector<std::size_t> offsets;
    for (std::size_t i = 0; i < home_.size(); ++i) {
      plan::TensorInfo& info = home_[i];
      if (all_.other_strides && whole[i].divided != Divided::no) set_other_strides(info);
      offsets.push_back(bytes);
      const auto last = last_offset(info.dims, info.strides);
      bytes += (static_cast<std::size_t>(last.value_or(0)) + 64) * sizeof(float) / 64 * 64 + 64;
    }
    home_memory_.assign(bytes, std::byte{0xff});
    for (std::size_t i = 0; i < home_.size(); ++i) {
      addresses_.push_back(home_memory_.data() + offsets[i]);
      if (!home_[i].is_output()) fill(whole[i], home_[i], addresses_[i]);
    }
  }

  static void set_other_strides(plan::TensorInfo& info) {
    constexpr std::int64_t kGap = 3;
    const std::vector<std::int64_t>& d = info.dims;
    const std::int64_t width = d.size() > 3 ? d[3] + kGap : 1;
    info.strides = {d[1] * (d[2] * width + kGap), d[2] * width + kGap, width};
    if (d.size() > 3) info.strides.push_back(1);
  }

  void fill(const ranks::WholeTensor& whole, const plan::TensorInfo& info, void* to) const {
    const auto& expected = all_.expected;
    io::HostTensor values;
    if (whole.name == "do") {
      values = expected.d_o;
    } else if (whole.name == "dlse") {
      values = expected.d_lse;
    } else if (whole.name == "o") {
      values = expected.whole.outputs.o;
    } else if (whole.name == "lse") {
      values = expected.whole.outputs.lse;
    } else {
      const auto found = expected.inputs.tensors.find(whole.name);
      if (found == expected.inputs.tensors.end()) return;
      values = found->second;
    }
    if (whole.divided != Divided::no) {
      values = taken(values, whole.divided == Divided::rows ? program_.rows : program_.keys);
    }
    write(info, values, to);
  }

  void give(std::size_t part, const std::string& name, const io::HostTensor& values) {
    const std::vector<plan::TensorInfo>& tensors = programs_[part].tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].name == name && tensors[i].is_output())
        write(tensors[i], values, at(schedule_.parts[part][i]));
    }
  }

  void differentiate(std::size_t part, const reference::Inputs& inputs,
                     const std::map<std::string, io::HostTensor>& bound) {
    const io::HostTensor& d_o = bound.at("do");
    reference::WholeRows whole;
    whole.delta = {DType::f64, {d_o.dims.begin(), d_o.dims.end() - 1}, {}};
    whole.delta.values.resize(static_cast<std::size_t>(io::element_count(whole.delta.dims)));
    whole.lse = whole.delta;
    if (bound.contains("lse")) {
      whole.lse = bound.at("lse");
      const auto width = static_cast<std::size_t>(d_o.dims.back());
      for (std::size_t i = 0; i < d_o.values.size(); ++i)
        whole.delta.values[i / width] += d_o.values[i] * bound.at("o").values[i];
    }
    const auto gradients =
        reference::gradients(made_[part].attention, inputs, d_o,
                             sharding::testing::names_of_gradients(made_[part].attention),
                             {.unrounded = true,
                              .threads = 1,
                              .whole = &whole,
                              .d_lse = bound.contains("dlse") ? &bound.at("dlse") : nullptr});
    ASSERT_TRUE(gradients.ok()) << gradients.error().to_text();
    for (const auto& [name, values] : gradients->of) {
      const bool divided = name == "q" || name == "k" || name == "v";
      give(part, (divided ? "d" : "d_") + name, values);
    }
  }

  const RanksOnHost& all_;
  const ranks::Division& division_;
  const ranks::Program& program_;
  const Direction direction_;
  std::vector<sharding::PartAttention> made_;
  std::vector<plan::Program> programs_;
  std::vector<plan::TensorInfo> home_;
  Bytes home_memory_, memory_;
  std::vector<void*> addresses_;
  ranks::Schedule schedule_;
  ranks::Bases bases_;
};

// A division in f32, with exchanges and a plan for every part.
ranks::Division division_of(const sharding::RankPrograms& programs) {
  ranks::Division division = programs.division;
  division.dtype = DType::f32;
  for (auto* tensors : {&division.forward, &division.backward}) {
    for (ranks::WholeTensor& each : *tensors)
      each.dtype = is_float(each.dtype) ? DType::f32 : DType::i32;
  }
  ranks::add_exchanges(division);
  return division;
}

// Each message's tensors go from where the sender has them to where the receiver wants them.
void exchange_all(std::vector<Rank>& all,
                  const std::function<const ranks::PlacedExchange&(const Rank&)>& of) {
  for (Rank& to : all) {
    std::map<int, std::size_t> next;
    for (const ranks::PlacedPiece& piece : of(to).receives) {
      const Rank& from = all[static_cast<std::size_t>(piece.peer)];
      std::size_t skip = next[piece.peer]++;
      const ranks::PlacedPiece* sent = nullptr;
      for (const ranks::PlacedPiece& each : of(from).sends) {
        if (each.peer == to.program().rank && skip-- == 0) {
          sent = &each;
          break;
        }
      }
      ASSERT_NE(sent, nullptr);
      ASSERT_EQ(sent->bytes, piece.bytes);
      std::memcpy(to.at(piece.at), from.at(sent->at), static_cast<std::size_t>(piece.bytes));
    }
  }
}

void all_reduce(std::vector<Rank>& all) {
  for (std::int64_t i = 0; i < all[0].schedule().sum_count; ++i) {
    float sum = 0;
    for (const Rank& rank : all) sum += static_cast<float*>(rank.at(rank.schedule().sum))[i];
    for (const Rank& rank : all) static_cast<float*>(rank.at(rank.schedule().sum))[i] = sum;
  }
}

}  // namespace

std::map<std::string, io::HostTensor> run_on_host(const RanksOnHost& ranks, Direction direction) {
  const ranks::Division division = division_of(ranks.programs);
  std::vector<Rank> all;
  all.reserve(division.ranks.size());
  for (std::size_t rank = 0; rank < division.ranks.size(); ++rank)
    all.emplace_back(ranks, division, static_cast<int>(rank), direction);
  const auto merge_outgoing = [&](std::size_t stage) {
    for (Rank& rank : all) {
      if (rank.schedule().results_after == stage) rank.merge(rank.schedule().outgoing);
    }
  };
  for (std::size_t stage = 0; stage < all[0].schedule().stages.size(); ++stage) {
    for (Rank& rank : all) rank.copy(rank.schedule().stages[stage].packs);
    for (Rank& rank : all) rank.copy(rank.schedule().stages[stage].early);
    exchange_all(all, [&](const Rank& rank) -> const ranks::PlacedExchange& {
      return rank.schedule().stages[stage].exchange;
    });
    for (Rank& rank : all) {
      rank.copy(rank.schedule().stages[stage].late);
      for (const std::size_t part : rank.schedule().stages[stage].parts) rank.compute(part);
    }
    merge_outgoing(stage);
  }
  for (Rank& rank : all) {
    rank.merge(rank.schedule().sums);
    rank.copy(rank.schedule().statistics);
    rank.merge(rank.schedule().early);
  }
  exchange_all(all, [&](const Rank& rank) -> const ranks::PlacedExchange& {
    return rank.schedule().results;
  });
  all_reduce(all);
  std::map<std::string, io::HostTensor> results;
  const auto& whole = direction == Direction::forward ? division.forward : division.backward;
  for (Rank& rank : all) {
    rank.merge(rank.schedule().late);
    rank.merge(rank.schedule().learned);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      using enum TensorRole;
      const TensorRole role = whole[i].role;
      if (role != output && role != stats && role != gradient) continue;
      io::HostTensor& result = results[whole[i].name];
      if (whole[i].divided == Divided::no) {
        result = rank.result(i);
        continue;
      }
      if (result.dims.empty()) {
        result = {DType::f64, whole[i].dims, {}};
        result.values.resize(static_cast<std::size_t>(io::element_count(result.dims)), NAN);
      }
      put(rank.result(i),
          whole[i].divided == Divided::rows ? rank.program().rows : rank.program().keys, result);
    }
  }
  return results;
}

}  // namespace attn::testing
