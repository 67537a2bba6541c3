#include "compiler/sharding/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "compiler/sharding/part_attention.h"
#include "compiler/sharding/store.h"
#include "runtime/base/check.h"
#include "runtime/ranks/exchanges.h"
#include "runtime/ranks/tensors.h"

namespace attn::sharding {
namespace {

using ir::Dim;
using ranks::Carried;
using ranks::Divided;
using ranks::Exchange;
using ranks::Message;
using ranks::Payload;
using ranks::Program;

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// exp(x - y), where a row that sees nothing has no share of anything.
double share(double x, double y) { return x == kNothing ? 0 : std::exp(x - y); }

double larger(double x, double y) { return std::isnan(x) || x > y ? x : y; }

// log(exp(x) + exp(y))
double log_sum(double x, double y) {
  const double most = larger(x, larger(y, x));
  if (most == kNothing) return most;
  return most + std::log(share(x, most) + share(y, most));
}

double initial(std::string_view tensor) { return ir::is_logarithm(tensor) ? kNothing : 0; }

const Carried& carried(std::string_view name) {
  const Carried* const found = ranks::find_carried(name);
  ATTN_CHECK(found != nullptr, "not a tensor that is exchanged");
  return *found;
}

std::vector<std::string> names_of_results(const ranks::Division& division) {
  std::vector<std::string> names;
  for (const Payload& result : ranks::results_of(division)) names.push_back(result.name);
  return names;
}

// Counts what parts compute, in scores: in the backward, those of the forward twice more.
class Advance {
 public:
  Advance(const RankPrograms& programs, bool backward, const Simulating& how) : how_(how) {
    for (const Program& program : programs.division.ranks) {
      for (const Part& part : programs.parts_of(program.rank))
        all_ += scores(part) * (backward ? 1 + kBackward : 1);
    }
  }

  reference::Options of(const Part& part, bool backward) {
    const double begin = done_, size = scores(part) * (backward ? kBackward : 1);
    done_ += size;
    reference::Options options{.unrounded = true, .threads = how_.threads};
    if (!how_.advances) return options;
    options.observer.advances = [this, begin, size](std::int64_t done, std::int64_t rows) {
      how_.advances((begin + size * static_cast<double>(done) / static_cast<double>(rows)) / all_);
    };
    return options;
  }

 private:
  static constexpr double kBackward = 2;
  static double scores(const Part& part) {
    return static_cast<double>(count(part.rows)) * static_cast<double>(count(part.keys));
  }

  const Simulating& how_;
  double all_ = 0, done_ = 0;
};

class Rank {
 public:
  Rank(const ir::Attention& attention, const RankPrograms& programs, const Program& program,
       const reference::Inputs& inputs, Advance& advance)
      : advance_(advance),
        attention_(attention),
        division_(programs.division),
        program_(program),
        parts_(programs.parts_of(program.rank)),
        inputs_(inputs) {}

  const Program& program() const { return program_; }

  // Takes the rank's own rows or keys.
  void bring_home(std::string_view name, const io::HostTensor& whole) {
    const Carried& as = carried(name);
    const std::int64_t size = as.of == Divided::rows ? division_.rows : division_.keys;
    const Slice all{all_heads(as),
                    {{0, size}},
                    {DType::f64, {batches(), all_heads(as).size(), size, width(as)}, whole.values}};
    Slice own = zeros(batches(), all_heads(as), home(as), width(as));
    copy_common(all, own);
    tensors_[std::string(name)] = {std::move(own)};
  }

  Result<Slice> sent(const Message& message, std::string_view name) const {
    return take(name, message.key_heads, message.indices);
  }
  void receive(int from, std::string_view name, Slice slice) {
    inbox_[{from, std::string(name)}] = std::move(slice);
  }

  void keep_inputs(const Exchange& exchange) {
    for (const Message& message : exchange.receives) {
      for (const Payload& payload : message.tensors)
        tensors_[payload.name].push_back(arrived(message.peer, payload.name));
    }
  }

  Status compute(int stage) {
    for (const Part& part : parts_) {
      if (part.stage != stage) continue;
      const PartAttention made = part_attention(attention_, part, program_.key_heads);
      ATTN_ASSIGN(const reference::Inputs inputs, inputs_of(made, part));
      ATTN_ASSIGN(const reference::Outputs outputs,
                  reference::evaluate(made.attention, inputs, advance_.of(part, false)));
      Results results;
      for (const std::string& name : names_of_results(division_))
        results[name] = of_part(value(outputs, name), carried(name), part.rows);
      merge(results, part.rows);
    }
    return {};
  }

  // Moves the results of the rank's parts to the tensors that it sends, and starts the merge of the
  // rows at home with the rank's own results for these rows.
  void publish() {
    for (auto& [name, slice] : merged_) tensors_[name] = {slice};
    Results own;
    for (const std::string& name : names_of_results(division_)) {
      const Carried& as = carried(name);
      own[name] = zeros(batches(), all_heads(as), program_.rows, width(as), initial(name));
    }
    std::swap(own, merged_);
    if (!own.empty()) merge(own, common(rows_computed_, program_.rows));
  }

  void merge_arrived(const Exchange& results) {
    for (const Message& message : results.receives) {
      Results more;
      for (const Payload& payload : message.tensors)
        more[payload.name] = arrived(message.peer, payload.name);
      merge(more, message.indices);
    }
    if (division_.clears_padding) clear_padding();
    for (const auto& [name, slice] : merged_) tensors_[name] = {slice};
  }

  Status differentiate(int stage) {
    for (const Part& part : parts_) {
      if (part.stage != stage) continue;
      const PartAttention made = part_attention(attention_, part, program_.key_heads);
      ATTN_ASSIGN(const reference::Inputs inputs, inputs_of(made, part));
      ATTN_ASSIGN(const Slice d_o, take("do", program_.key_heads, part.rows));
      ATTN_ASSIGN(const reference::WholeRows whole, whole_rows(part, d_o));
      reference::Options options = advance_.of(part, true);
      options.whole = &whole;
      std::optional<Slice> d_lse;
      if (made.attention.reads_d_lse) {
        ATTN_ASSIGN(d_lse, take("dlse", program_.key_heads, part.rows));
        d_lse->values.dims.pop_back();  // the width, 1
        options.d_lse = &d_lse->values;
      }
      ATTN_ASSIGN(
          const reference::Gradients gradients,
          reference::gradients(made.attention, inputs, d_o.values, names_of(made), options));
      for (const auto& [name, sum] : gradients.of) add(name, sum, part);
    }
    return {};
  }

  // What was computed for all rows and keys becomes what is sent.
  void publish_gradients() {
    for (const char* name : {"dq", "dk", "dv"}) {
      const Carried& as = carried(name);
      Slice own = zeros(batches(), all_heads(as), home(as), width(as));
      const auto sums = sums_.find(name);
      if (sums != sums_.end()) {
        combine_common(sums->second, own, add_to);
        tensors_[name] = {sums->second};
      }
      sums_[name] = std::move(own);
    }
  }

  void sum_arrived(const Exchange& exchange) {
    for (const Message& message : exchange.receives) {
      for (const Payload& payload : message.tensors)
        combine_common(arrived(message.peer, payload.name), sums_[payload.name], add_to);
    }
  }

  const Slice& result(const std::string& name) { return tensors_[name].front(); }
  const Slice& gradient(const std::string& name) { return sums_[name]; }
  const reference::GradientSums& learned() const { return learned_; }

 private:
  using Results = std::map<std::string, Slice>;

  Slice arrived(int from, std::string_view name) {
    return std::move(inbox_.extract({from, std::string(name)}).mapped());
  }

  static void add_to(double& to, double from) { to += from; }

  std::int64_t batches() const { return division_.batches; }
  std::int64_t width(const Carried& as) const { return ranks::size_of(as.width, division_); }
  const Intervals& home(const Carried& as) const {
    return as.of == Divided::rows ? program_.rows : program_.keys;
  }
  Interval heads(const Carried& as, Interval key_heads) const {
    return ranks::heads_of(as.of, key_heads, division_);
  }
  Interval all_heads(const Carried& as) const { return heads(as, {0, division_.key_heads}); }

  Result<Slice> take(std::string_view name, Interval key_heads, const Intervals& indices) const {
    const auto found = tensors_.find(name);
    const std::string what = fmt::format("{} on rank {}", name, program_.rank);
    if (found == tensors_.end()) return {ErrorCode::internal, "there is no " + what};
    return taken(found->second, heads(carried(name), key_heads), indices, what);
  }

  Result<reference::Inputs> inputs_of(const PartAttention& made, const Part& part) const {
    reference::Inputs inputs;
    for (const char* name : {"q", "k", "v"}) {
      ATTN_ASSIGN(Slice slice, take(name, program_.key_heads, of_part(carried(name), part)));
      inputs.tensors[name] = std::move(slice.values);
    }
    for (const ir::CapturedTensor& tensor : made.attention.tensors) {
      const auto numbers = made.numbers.find(tensor.name);
      if (numbers != made.numbers.end()) {
        const std::vector<std::int64_t>& values = numbers->second.values;
        inputs.tensors[tensor.name] = {
            DType::f64, {static_cast<std::int64_t>(values.size())}, {values.begin(), values.end()}};
        continue;
      }
      std::string name = tensor.name;
      for (const auto& [whole, renamed] : made.renamed) {
        if (renamed == name) name = whole;
      }
      inputs.tensors[tensor.name] = inputs_.tensors.find(name)->second;
    }
    inputs.params = inputs_.params;
    return inputs;
  }

  static const io::HostTensor& value(const reference::Outputs& outputs, std::string_view name) {
    if (name == "o") return outputs.o;
    if (name == "lse") return outputs.lse;
    if (name == "max") return outputs.max;
    if (name == "sum_exp") return outputs.sum_exp;
    if (name == "lse_without_sink") return outputs.lse_without_sink;
    return name == "max_with_sink" ? outputs.max_with_sink : outputs.sum_exp_with_sink;
  }

  static const Intervals& of_part(const Carried& as, const Part& part) {
    return as.of == Divided::rows ? part.rows : part.keys;
  }

  Slice of_part(const io::HostTensor& values, const Carried& as, const Intervals& indices) const {
    const Interval of = heads(as, program_.key_heads);
    return {of,
            indices,
            {DType::f64, {batches(), of.size(), count(indices), width(as)}, values.values}};
  }

  // Merges the results of some keys for these rows into those of other keys.
  void merge(const Results& more, const Intervals& rows) {
    grow(more, rows);
    Results next;
    for (const auto& [name, slice] : more) next[name] = restricted(merged_[name], slice, rows);
    const Results before = next;
    Results added;
    for (const auto& [name, slice] : more) added[name] = restricted(slice, slice, rows);
    combine(before, added, next);
    for (auto& [name, slice] : next) copy_common(slice, merged_[name]);
  }

  // The rows of `from`, of the heads of `like`.
  static Slice restricted(const Slice& from, const Slice& like, const Intervals& rows) {
    Slice slice = zeros(like.values.dims.front(), like.heads, rows, like.values.dims.back());
    copy_common(from, slice);
    return slice;
  }

  void grow(const Results& more, const Intervals& rows) {
    rows_computed_ = both(rows_computed_, rows);
    for (const auto& [name, slice] : more) {
      Slice& merged = merged_[name];
      if (!merged.values.dims.empty() && contains(merged.indices, rows)) continue;
      const Interval heads = merged.values.dims.empty() ? slice.heads : merged.heads;
      Slice larger = zeros(batches(), heads, both(merged.indices, rows), slice.values.dims.back(),
                           initial(name));
      if (!merged.values.dims.empty()) copy_common(merged, larger);
      merged = std::move(larger);
    }
  }

  // All have the same rows and heads.
  void combine(const Results& x, const Results& y, Results& to) const {
    std::vector<double>& o = to.at("o").values.values;
    const std::vector<double>&o_x = x.at("o").values.values, &o_y = y.at("o").values.values;
    if (attention_.is_pointwise()) {
      for (std::size_t i = 0; i < o.size(); ++i) o[i] = o_x[i] + o_y[i];
      return;
    }
    combine_logarithms("lse", x, y, to);
    const std::vector<double>&lse_x = x.at("lse").values.values, &lse_y = y.at("lse").values.values;
    const std::vector<double>& lse = to.at("lse").values.values;
    const auto width = static_cast<std::size_t>(attention_.dims[Dim::Dv]);
    for (std::size_t row = 0; row < lse_x.size(); ++row) {
      const double of_x = share(lse_x[row], lse[row]), of_y = share(lse_y[row], lse[row]);
      for (std::size_t i = row * width; i < (row + 1) * width; ++i)
        o[i] = of_x * o_x[i] + of_y * o_y[i];
    }
    combine_sums("max", "sum_exp", x, y, to);
    combine_sums("max_with_sink", "sum_exp_with_sink", x, y, to);
    combine_logarithms("lse_without_sink", x, y, to);
  }

  static void combine_logarithms(const std::string& name, const Results& x, const Results& y,
                                 Results& to) {
    if (!to.contains(name)) return;
    std::vector<double>& of_both = to.at(name).values.values;
    const std::vector<double>&of_x = x.at(name).values.values, &of_y = y.at(name).values.values;
    for (std::size_t row = 0; row < of_both.size(); ++row)
      of_both[row] = log_sum(of_x[row], of_y[row]);
  }

  static void combine_sums(const std::string& max, const std::string& sum, const Results& x,
                           const Results& y, Results& to) {
    if (!to.contains(max)) return;
    std::vector<double>& most = to.at(max).values.values;
    const std::vector<double>&max_x = x.at(max).values.values, &max_y = y.at(max).values.values;
    for (std::size_t row = 0; row < most.size(); ++row)
      most[row] = larger(max_x[row], larger(max_y[row], max_x[row]));
    if (!to.contains(sum)) return;
    const std::vector<double>&sum_x = x.at(sum).values.values, &sum_y = y.at(sum).values.values;
    for (std::size_t row = 0; row < most.size(); ++row) {
      to.at(sum).values.values[row] =
          share(max_x[row], most[row]) * sum_x[row] + share(max_y[row], most[row]) * sum_y[row];
    }
  }

  // Rows past the lengths do not even have the sink.
  void clear_padding() {
    const std::vector<double>& lengths =
        inputs_.tensors.find(std::string(ir::kLengthsQ))->second.values;
    const std::vector<std::int64_t> rows = numbers(program_.rows);
    const std::int64_t heads = attention_.dims[Dim::Hq];
    for (auto& [name, slice] : merged_) {
      const auto width = static_cast<std::size_t>(slice.values.dims.back());
      for (std::size_t i = 0; i < slice.values.values.size(); ++i) {
        const std::size_t row = i / width % rows.size();
        const std::size_t batch = i / width / rows.size() / static_cast<std::size_t>(heads);
        if (static_cast<double>(rows[row]) >= lengths[batch])
          slice.values.values[i] = initial(name);
      }
    }
  }

  // Values of whole rows: lse, and the sum of do * o.
  Result<reference::WholeRows> whole_rows(const Part& part, const Slice& d_o) const {
    Slice delta = zeros(batches(), d_o.heads, part.rows, 1);
    if (division_.sigmoid) return reference::WholeRows{delta.values, delta.values};
    ATTN_ASSIGN(Slice lse, take("lse", program_.key_heads, part.rows));
    ATTN_ASSIGN(const Slice o, take("o", program_.key_heads, part.rows));
    const auto width = static_cast<std::size_t>(division_.width_v);
    for (std::size_t i = 0; i < o.values.values.size(); ++i)
      delta.values.values[i / width] += o.values.values[i] * d_o.values.values[i];
    return reference::WholeRows{std::move(lse.values), std::move(delta.values)};
  }

  static std::vector<std::string> names_of(const PartAttention& made) {
    std::vector<std::string> names = {"q", "k", "v"};
    for (const ir::CapturedTensor& tensor : made.attention.tensors) {
      if (tensor.learned) names.push_back(tensor.name);
    }
    return names;
  }

  // Adds what a part gives to a gradient.
  void add(const std::string& name, const io::HostTensor& sum, const Part& part) {
    if (name != "q" && name != "k" && name != "v") {
      io::HostTensor& all = learned_[name];
      if (all.dims.empty()) all = {DType::f64, sum.dims, std::vector<double>(sum.values.size())};
      for (std::size_t i = 0; i < sum.values.size(); ++i) all.values[i] += sum.values[i];
      return;
    }
    const Carried& as = carried("d" + name);
    const Intervals& indices = of_part(as, part);
    const Slice more = of_part(sum, as, indices);
    Slice& all = sums_["d" + name];
    Slice larger = zeros(batches(), more.heads, both(all.indices, indices), width(as));
    if (!all.values.dims.empty()) copy_common(all, larger);
    combine_common(more, larger, add_to);
    all = std::move(larger);
  }

  Advance& advance_;
  const ir::Attention& attention_;
  const ranks::Division& division_;
  const Program& program_;
  const std::vector<Part>& parts_;
  const reference::Inputs& inputs_;
  std::map<std::string, std::vector<Slice>, std::less<>> tensors_;
  std::map<std::pair<int, std::string>, Slice> inbox_;  // by sender and tensor
  Results merged_;  // o and statistics: of the rows computed, then of those at home
  Intervals rows_computed_;
  Results sums_;  // dq, dk, dv: of what was computed, then of what is at home
  reference::GradientSums learned_;
};

class Machine {
 public:
  Machine(const ir::Attention& attention, const RankPrograms& programs,
          const reference::Inputs& inputs, Advance& advance)
      : division_(programs.division) {
    for (const Program& program : division_.ranks) {
      ranks_.emplace_back(attention, programs, program, inputs, advance);
      for (const char* name : {"q", "k", "v"})
        ranks_.back().bring_home(name, inputs.tensors.find(name)->second);
    }
  }

  Status forward() {
    for (std::size_t stage = 0; stage < stages(); ++stage) {
      ATTN_RETURN_IF_ERROR(
          exchange([&](const Program& of) { return of.inputs[stage]; }, &Rank::keep_inputs));
      for (Rank& rank : ranks_) ATTN_RETURN_IF_ERROR(rank.compute(static_cast<int>(stage)));
    }
    for (Rank& rank : ranks_) rank.publish();
    return exchange([](const Program& of) { return of.results; }, &Rank::merge_arrived);
  }

  Status backward(const io::HostTensor& d_o, const io::HostTensor* d_lse) {
    for (Rank& rank : ranks_) rank.bring_home("do", d_o);
    for (Rank& rank : ranks_) {
      if (d_lse != nullptr) rank.bring_home("dlse", *d_lse);
    }
    for (std::size_t stage = 0; stage < stages(); ++stage) {
      ATTN_RETURN_IF_ERROR(exchange([&](const Program& of) { return of.backward_inputs[stage]; },
                                    &Rank::keep_inputs));
      for (Rank& rank : ranks_) ATTN_RETURN_IF_ERROR(rank.differentiate(static_cast<int>(stage)));
    }
    for (Rank& rank : ranks_) rank.publish_gradients();
    return exchange([](const Program& of) { return of.gradients; }, &Rank::sum_arrived);
  }

  Simulated results(bool with_gradients) {
    Simulated all;
    reference::Outputs& outputs = all.outputs;
    for (const auto& [name, to] :
         {std::pair("o", &outputs.o), std::pair("lse", &outputs.lse),
          std::pair("max", &outputs.max), std::pair("sum_exp", &outputs.sum_exp),
          std::pair("max_with_sink", &outputs.max_with_sink),
          std::pair("sum_exp_with_sink", &outputs.sum_exp_with_sink),
          std::pair("lse_without_sink", &outputs.lse_without_sink)}) {
      const auto names = names_of_results(division_);
      if (std::ranges::find(names, name) == names.end()) continue;
      *to = whole(name, [&](Rank& rank) -> const Slice& { return rank.result(name); });
    }
    if (!with_gradients) return all;
    for (const std::string name : {"q", "k", "v"}) {
      if (ranks::find(division_.backward, "d" + name) == nullptr) continue;
      all.gradients[name] =
          whole("d" + name, [&](Rank& rank) -> const Slice& { return rank.gradient("d" + name); });
    }
    for (const Rank& rank : ranks_) {
      for (const auto& [name, sum] : rank.learned()) {
        io::HostTensor& to = all.gradients[name];
        if (to.dims.empty()) to = {DType::f64, sum.dims, std::vector<double>(sum.values.size())};
        for (std::size_t i = 0; i < sum.values.size(); ++i) to.values[i] += sum.values[i];
      }
    }
    return all;
  }

 private:
  std::size_t stages() const { return ranks_.front().program().inputs.size(); }

  // Each message is taken from its sender before any is received.
  template <typename Choose>
  Status exchange(const Choose& choose, void (Rank::*take)(const Exchange&)) {
    struct Copy {
      int from, to;
      std::string tensor;
      Slice slice;
    };
    std::vector<Copy> copies;
    for (const Rank& rank : ranks_) {
      for (const Message& message : choose(rank.program()).sends) {
        for (const Payload& payload : message.tensors) {
          ATTN_ASSIGN(Slice slice, rank.sent(message, payload.name));
          copies.push_back({rank.program().rank, message.peer, payload.name, std::move(slice)});
        }
      }
    }
    for (Copy& copy : copies) {
      ranks_[static_cast<std::size_t>(copy.to)].receive(copy.from, copy.tensor,
                                                        std::move(copy.slice));
    }
    for (Rank& rank : ranks_) (rank.*take)(choose(rank.program()));
    return {};
  }

  template <typename Get>
  io::HostTensor whole(const std::string& name, const Get& get) {
    const Carried& as = carried(name);
    Slice all =
        zeros(division_.batches, ranks::heads_of(as.of, {0, division_.key_heads}, division_),
              {{0, as.of == Divided::rows ? division_.rows : division_.keys}},
              ranks::size_of(as.width, division_));
    for (Rank& rank : ranks_) copy_common(get(rank), all);
    if (as.width == ranks::Width::one) all.values.dims.pop_back();
    return std::move(all.values);
  }

  const ranks::Division& division_;
  std::vector<Rank> ranks_;
};

}  // namespace

Result<Simulated> simulate(const ir::Attention& attention, RankPrograms programs,
                           const reference::Inputs& inputs, const io::HostTensor* d_o,
                           const Simulating& how) {
  ranks::add_exchanges(programs.division);
  Advance advance(programs, d_o != nullptr, how);
  Machine machine(attention, programs, inputs, advance);
  ATTN_RETURN_IF_ERROR(machine.forward());
  if (d_o) ATTN_RETURN_IF_ERROR(machine.backward(*d_o, how.d_lse));
  return machine.results(d_o != nullptr);
}

}  // namespace attn::sharding
