#include "compiler/sharding/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "compiler/engines/shared/cost.h"
#include "compiler/sharding/rank_program.h"
#include "runtime/ranks/exchanges.h"

namespace attn::sharding {
namespace {

using ir::Dim;

constexpr double kArrives = 0.9;                   // of what a network has
constexpr double kSlowest = 1e-3, kFastest = 1e9;  // gigabytes a second

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(value) : std::nullopt;
}

double size(const ir::Attention& attention, Dim dim) {
  return static_cast<double>(attention.dims[dim]);
}

// Bytes of one row or key of all batches and the heads of one rank.
struct Widths {
  double row, key;                    // inputs of the forward
  double backward_row, backward_key;  // inputs
  // Results of a row and of a key: all of it, or a part of a sum that is in f32.
  struct Result {
    double whole, part;
    double bytes(bool is_part) const { return is_part ? part : whole; }
  };
  Result of_row, gradient_of_row, gradient_of_key;
};

class Measuring {
 public:
  Measuring(const Sharding& sharding, const ir::Attention& attention)
      : division_(frame_of(attention)), heads_{0, attention.dims[Dim::Hkv] / sharding.groups} {}

  Widths run() const {
    using enum plan::TensorRole;
    const auto inputs = [&](const Tensors& tensors, Divided of) {
      return bytes(tensors, of, {query, key, value, saved, cotangent}).whole;
    };
    const auto gradients = [&](Divided of) { return bytes(division_.backward, of, {gradient}); };
    Widths widths{inputs(division_.forward, Divided::rows),
                  inputs(division_.forward, Divided::keys),
                  inputs(division_.backward, Divided::rows),
                  inputs(division_.backward, Divided::keys),
                  {},
                  gradients(Divided::rows),
                  gradients(Divided::keys)};
    for (const ranks::Payload& result : ranks::results_of(division_))
      add(result.name, result.dtype, Divided::rows, widths.of_row);
    return widths;
  }

 private:
  using Tensors = std::vector<ranks::WholeTensor>;
  using Divided = ranks::Divided;

  Widths::Result bytes(const Tensors& tensors, Divided of,
                       std::initializer_list<plan::TensorRole> roles) const {
    Widths::Result sum{};
    for (const ranks::WholeTensor& tensor : tensors) {
      if (tensor.divided == of && std::ranges::find(roles, tensor.role) != roles.end())
        add(tensor.name, tensor.dtype, of, sum);
    }
    return sum;
  }

  void add(const std::string& name, DType dtype, Divided of, Widths::Result& sum) const {
    const auto bytes_as = [&](DType type) {
      const ranks::Message one{0, of, {{name, type}}, heads_, {{0, 1}}};
      return static_cast<double>(ranks::bytes_of(one, division_));
    };
    sum.whole += bytes_as(dtype);
    sum.part += bytes_as(DType::f32);
  }

  const ranks::Division division_;
  const Interval heads_;
};

// What each rank receives and sends in one exchange.
struct Moved {
  std::vector<Traffic> in, out;

  explicit Moved(int ranks)
      : in(static_cast<std::size_t>(ranks)), out(static_cast<std::size_t>(ranks)) {}
};

double milliseconds(const Traffic& traffic, const Links& links) {
  return links.inside.milliseconds(traffic.inside) + links.between.milliseconds(traffic.between);
}

// What ranks send each other, and how long that takes.
class EstimatedTraffic {
 public:
  EstimatedTraffic(const Sharding& sharding, const Estimating& with)
      : sharding_(sharding), with_(with), widths_(Measuring(sharding, with.attention).run()) {}

 protected:
  using Flags = std::vector<bool>;  // by block

  // Own keys are copied to those that arrive, if a part has both.
  double copies_ms(int team, const Part& part) const {
    double own = 0;
    for (const Interval& each : part.keys) {
      for (std::int64_t key = each.begin; key < each.end;) {
        const std::int64_t block = key / sharding_.keys.blocks.unit;
        const std::int64_t end = std::min(each.end, sharding_.keys.blocks.of(block).end);
        const int home = sharding_.keys.owners[static_cast<std::size_t>(block)];
        if (sharding_.team_of(home) == team) own += static_cast<double>(end - key);
        key = end;
      }
    }
    if (own == 0 || own == static_cast<double>(count(part.keys))) return 0;
    return with_.forward.moving(2 * own * widths_.key);  // read and written
  }

  // What the team's ranks need in this stage and did not have, nor have at home.
  void fetch(int team, const Dealing& dealing, const Flags& wanted, const Flags& had, double width,
             Moved& moved) {
    for (std::size_t block = 0; block < wanted.size(); ++block) {
      if (!wanted[block] || had[block]) continue;
      for (int rank = first(team); rank < first(team + 1); ++rank)
        move(dealing.owners[block], rank, dealing, block, width, moved);
    }
  }

  // A message is in f32 if any of it is a part of a sum.
  void give(int team, const Dealing& dealing, const Flags& made, const std::vector<int>& makers,
            const Widths::Result& width, Moved& moved) {
    Flags is_part(static_cast<std::size_t>(sharding_.ranks));
    for (std::size_t block = 0; block < made.size(); ++block) {
      if (made[block] && makers[block] > 1)
        is_part[static_cast<std::size_t>(dealing.owners[block])] = true;
    }
    for (std::size_t block = 0; block < made.size(); ++block) {
      if (!made[block]) continue;
      const int home = dealing.owners[block];
      const double bytes = width.bytes(is_part[static_cast<std::size_t>(home)]);
      for (int rank = first(team); rank < first(team + 1); ++rank)
        move(rank, home, dealing, block, bytes, moved);
    }
  }

  void move(int from, int to, const Dealing& dealing, std::size_t block, double width,
            Moved& moved) const {
    if (from == to) return;
    const Interval numbers = dealing.blocks.of(static_cast<std::int64_t>(block));
    const double bytes = static_cast<double>(numbers.size()) * width;
    const bool same = from / with_.links.ranks_of_host == to / with_.links.ranks_of_host;
    moved.in[static_cast<std::size_t>(to)].add(same, bytes);
    moved.out[static_cast<std::size_t>(from)].add(same, bytes);
  }

  int first(int team) const { return team * sharding_.groups; }

  std::size_t index(int team, int stage) const {
    return static_cast<std::size_t>(team * sharding_.stages() + stage);
  }

  double exchange_ms(int rank, const Moved& moved) const {
    const auto at = static_cast<std::size_t>(rank);
    return std::max(milliseconds(moved.in[at], with_.links),
                    milliseconds(moved.out[at], with_.links));
  }

  const Sharding& sharding_;
  const Estimating& with_;
  const Widths widths_;
};

class Estimator : private EstimatedTraffic {
 public:
  Estimator(const Sharding& sharding, const Estimating& with)
      : EstimatedTraffic(sharding, with),
        inputs_(static_cast<std::size_t>(sharding.stages()), Moved(sharding.ranks)),
        backward_inputs_(inputs_),
        results_(sharding.ranks),
        gradients_(sharding.ranks),
        copies_(static_cast<std::size_t>(sharding.stages() * sharding.teams())),
        compute_(copies_),
        compute_backward_(copies_) {
    result_.ranks.resize(static_cast<std::size_t>(sharding.ranks));
  }

  Estimate run() {
    for (int team = 0; team < sharding_.teams(); ++team) look_at(team);
    for (const Made& made : made_) count_makers(made);
    for (int team = 0; team < sharding_.teams(); ++team) give_results(team);
    for (int rank = 0; rank < sharding_.ranks; ++rank) finish(rank);
    return std::move(result_);
  }

 private:
  struct Made {
    Flags rows, keys;
  };

  static void mark(Flags& flags, const Blocks& blocks, const Intervals& set) {
    for (const Interval& each : set) {
      for (std::int64_t i = each.begin / blocks.unit; i * blocks.unit < each.end; ++i)
        flags[static_cast<std::size_t>(i)] = true;
    }
  }

  bool marked(const Flags& flags, const Intervals& rows) const {
    const std::int64_t block = rows.front().begin / sharding_.rows.blocks.unit;
    return flags[static_cast<std::size_t>(block)];
  }

  void look_at(int team) {
    Flags rows(sharding_.rows.owners.size()), keys(sharding_.keys.owners.size());
    const std::vector<Part> parts =
        parts_of(sharding_, team, with_.map, with_.attention.sink.has_value());
    for (int stage = 0; stage < sharding_.stages(); ++stage) {
      Flags more_rows(rows.size()), more_keys(keys.size());
      for (const Part& part : parts) {
        if (part.stage != stage) continue;
        const bool again = marked(more_rows, part.rows) || marked(rows, part.rows);
        mark(more_rows, sharding_.rows.blocks, part.rows);
        mark(more_keys, sharding_.keys.blocks, part.keys);
        compute(team, part, again);
        copies_[index(team, stage)] += copies_ms(team, part);
      }
      const auto at = static_cast<std::size_t>(stage);
      fetch(team, sharding_.rows, more_rows, rows, widths_.row, inputs_[at]);
      fetch(team, sharding_.keys, more_keys, keys, widths_.key, inputs_[at]);
      fetch(team, sharding_.rows, more_rows, rows, widths_.backward_row, backward_inputs_[at]);
      fetch(team, sharding_.keys, more_keys, keys, widths_.backward_key, backward_inputs_[at]);
      add(more_rows, rows);
      add(more_keys, keys);
    }
    made_.push_back({std::move(rows), std::move(keys)});
  }

  void count_makers(const Made& made) {
    row_makers_.resize(made.rows.size());
    key_makers_.resize(made.keys.size());
    for (std::size_t i = 0; i < made.rows.size(); ++i) row_makers_[i] += made.rows[i] ? 1 : 0;
    for (std::size_t i = 0; i < made.keys.size(); ++i) key_makers_[i] += made.keys[i] ? 1 : 0;
  }

  void give_results(int team) {
    const auto& [rows, keys] = made_[static_cast<std::size_t>(team)];
    give(team, sharding_.rows, rows, row_makers_, widths_.of_row, results_);
    give(team, sharding_.rows, rows, row_makers_, widths_.gradient_of_row, gradients_);
    give(team, sharding_.keys, keys, key_makers_, widths_.gradient_of_key, gradients_);
  }

  static void add(const Flags& more, Flags& flags) {
    for (std::size_t i = 0; i < flags.size(); ++i) flags[i] = flags[i] || more[i];
  }

  // `again`: of rows that another part of the team has too; what they give is merged.
  void compute(int team, const Part& part, bool again) {
    const ir::Attention& attention = with_.attention;
    const double of_key = static_cast<double>(with_.map.keys.unit) / kTile;
    const double of_row = static_cast<double>(with_.map.rows.unit) / kTile;
    const double heads = size(attention, Dim::B) * size(attention, Dim::Hq) / sharding_.groups;
    const auto rows = static_cast<double>(count(part.rows)) / kTile;
    Speed::Load load{part.work * of_key * of_row * heads, part.longest * of_key, rows * heads,
                     static_cast<double>(count(part.keys)) * widths_.key};
    compute_[index(team, part.stage)] += with_.forward.milliseconds(load);
    load.most = part.longest_of_keys * of_row;
    compute_backward_[index(team, part.stage)] += with_.backward.milliseconds(load);
    for (int rank = first(team); rank < first(team + 1); ++rank) of(rank).work += load.tiles;
    if (again) {
      compute_[index(team, part.stage)] += with_.forward.moving(3 * kBytesOfPartial * rows * kTile *
                                                                heads * size(attention, Dim::Dv));
    }
  }

  RankEstimate& of(int rank) { return result_.ranks[static_cast<std::size_t>(rank)]; }

  void finish(int rank) {
    RankEstimate& estimate = of(rank);
    estimate.forward_ms = time(rank, inputs_, compute_, results_);
    estimate.backward_ms = time(rank, backward_inputs_, compute_backward_, gradients_);
    const int team = sharding_.team_of(rank);
    for (int stage = 0; stage < sharding_.stages(); ++stage)
      estimate.compute_ms += compute_[index(team, stage)];
    estimate.rows = static_cast<double>(count(sharding_.rows.of(rank)));
    estimate.keys = static_cast<double>(count(sharding_.keys.of(rank)));
    sum(rank, inputs_, results_, estimate.received, estimate.sent);
    sum(rank, backward_inputs_, gradients_, estimate.received_backward, estimate.sent_backward);
  }

  // Exchanges follow each other, beside the stages before and copies of own keys; results are sent
  // beside what was left for the end.
  double time(int rank, const std::vector<Moved>& inputs, const std::vector<double>& compute,
              const Moved& results) const {
    double arrived = 0, done = 0;
    const int team = sharding_.team_of(rank);
    for (int stage = 0; stage < sharding_.stages_of_arrivals(); ++stage) {
      arrived += exchange_ms(rank, inputs[static_cast<std::size_t>(stage)]);
      done = std::max(done + copies_[index(team, stage)], arrived) + compute[index(team, stage)];
    }
    const double sent = done + exchange_ms(rank, results);
    if (!sharding_.own_last) return sent;
    return std::max(sent, done + compute[index(team, sharding_.stages() - 1)]);
  }

  static void sum(int rank, const std::vector<Moved>& inputs, const Moved& results, Traffic& in,
                  Traffic& out) {
    const auto add = [&](const Moved& moved) {
      const Traffic &x = moved.in[static_cast<std::size_t>(rank)],
                    &y = moved.out[static_cast<std::size_t>(rank)];
      in.inside += x.inside, in.between += x.between;
      out.inside += y.inside, out.between += y.between;
    };
    for (const Moved& moved : inputs) add(moved);
    add(results);
  }

  std::vector<Made> made_;                       // by team
  std::vector<int> row_makers_, key_makers_;     // teams, by block
  std::vector<Moved> inputs_, backward_inputs_;  // by stage
  Moved results_, gradients_;
  std::vector<double> copies_, compute_, compute_backward_;  // by team and stage
  Estimate result_;
};

// Share of the longest block of threads by which the last multiprocessor ends after the others.
constexpr double kShareAtEnd = 0.5;

template <typename Get>
double most(const std::vector<RankEstimate>& ranks, const Get& get) {
  double most = 0;
  for (const RankEstimate& rank : ranks) most = std::max(most, get(rank));
  return most;
}

}  // namespace

Result<Link> parse_link(std::string_view text) {
  const Links known;
  if (text == known.inside.name) return known.inside;
  const bool in_gigabits = text.ends_with('g');
  const std::optional<double> value = number(in_gigabits ? text.substr(0, text.size() - 1) : text);
  const double gigabytes = value.value_or(0) * (in_gigabits ? kArrives / 8 : 1);
  if (!(gigabytes >= kSlowest && gigabytes < kFastest)) {
    return {ErrorCode::invalid_argument,
            fmt::format("`{}` is not a link: `nvlink`, gigabits a second as `400g`, or gigabytes a "
                        "second as `120`; at least {} gigabytes",
                        text, kSlowest)};
  }
  return Link{std::string(text), gigabytes, known.between.latency_ms};
}

Speed::Speed(const ir::Attention& attention, const target::Context& context)
    : gpu_(context.gpu), backward_(context.backward()) {
  constexpr double kMany = 1e9;
  // attnc's kernels evaluate masks only in blocks that these hide in part: mostly few, and where
  // all are, engines/native/cost.h predicts about a tenth more.
  ir::Attention unmasked = attention;
  unmasked.masks.clear();
  const auto predicted = [&](const engines::TileWork& work) {
    return engines::predicted_ms_of_tiles(unmasked, work, context);
  };
  start_of_row_ = predicted({0, 0, 0});
  launch_ = engines::predicted_ms_of_moving(0, gpu_);
  tile_ = predicted({kMany, 0, 0}) / kMany;
  row_ = predicted({0, 0, kMany}) / kMany;
  tile_of_row_ = (predicted({0, kMany, 0}) - start_of_row_) / kMany;
}

double Speed::milliseconds(const Load& load) const {
  const double all = launch_ + load.tiles * tile_ + load.rows * row_;
  const double longest = start_of_row_ + undivided(load) * tile_of_row_;
  return std::max({all + kShareAtEnd * longest, longest, moving(load.bytes)});
}

// The longest piece that is not cut. For few rows, kernels cut the keys; backward ones cut the rows
// of a block of keys that takes longer than a fair share.
double Speed::undivided(const Load& load) const {
  constexpr auto kMost = static_cast<double>(engines::kMostKeyPieces);
  if (backward_) return std::min(load.most, load.tiles / gpu_.multiprocessors);
  return load.most / std::clamp(std::floor(gpu_.multiprocessors / load.rows), 1.0, kMost);
}

double Speed::moving(double bytes) const { return engines::predicted_ms_of_moving(bytes, gpu_); }

double Estimate::balance() const {
  double all = 0;
  for (const RankEstimate& rank : ranks) all += rank.work;
  if (all == 0) return 1;
  return most(ranks, [](const RankEstimate& rank) { return rank.work; }) *
         static_cast<double>(ranks.size()) / all;
}

double Estimate::bytes() const {
  return most(ranks, [](const RankEstimate& rank) { return rank.received.bytes(); });
}

double Estimate::forward_ms() const {
  return most(ranks, [](const RankEstimate& rank) { return rank.forward_ms; });
}

double Estimate::backward_ms() const {
  return most(ranks, [](const RankEstimate& rank) { return rank.backward_ms; });
}

double Estimate::compute_ms() const {
  return most(ranks, [](const RankEstimate& rank) { return rank.compute_ms; });
}

Estimate estimate(const Sharding& sharding, const Estimating& estimating) {
  return Estimator(sharding, estimating).run();
}

}  // namespace attn::sharding
