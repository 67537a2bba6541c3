// What `explain --ranks` prints.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "tools/console.h"
#include "tools/ranks.h"
#include "tools/table.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

using sharding::Estimate;
using sharding::RankEstimate;
using enum Align;

constexpr std::size_t kMostRows = 16;  // of the table of ranks; of more, only what is extreme

// Lines of the terminal.
std::string lines(std::string_view head, std::string_view text) {
  return wrapped(head, text, line_width());
}

std::string bytes(double value) { return bytes_text(static_cast<std::int64_t>(value)); }

// A column of milliseconds, with as many decimals as three digits of the longest have.
std::vector<std::string> ms_texts(const std::vector<double>& all) {
  const double most = all.empty() ? 0 : std::ranges::max(all);
  const int decimals = most < 10 ? 3 : most < 100 ? 2 : 1;
  std::vector<std::string> texts;
  for (const double each : all) texts.push_back(fmt::format("{:.{}f}", each, decimals));
  return texts;
}

std::string share_text(double part, double all) {
  return all > 0 ? percent_text(part / all) : percent_text(0);
}

std::string masks_text(const Sharded& sharded) {
  if (sharded.map.exactness == masks::Exactness::exact)
    return "known: blocks that they hide are not computed";
  const std::string text = "not all known: what they might show counts as visible";
  std::vector<std::string> names;
  for (const std::string& name : names_read(sharded.attention, Needs::masks))
    names.push_back(shown(name));
  if (sharded.known || names.empty()) return text;
  return text + fmt::format(" (--in gives values of {})", fmt::join(names, ", "));
}

std::string head_text(const Sharded& sharded) {
  const auto& [inside, between, of_host] = sharded.links;
  const int ranks = sharded.choice.sharding.ranks;
  std::string text = fmt::format("{} on {} {}, predicted for {}", shown(sharded.attention.name),
                                 ranks, ranks == 1 ? "rank" : "ranks", sharded.target);
  if (ranks > 1) text += fmt::format("; {} at {:.4g} GB/s", inside.name, inside.gigabytes);
  if (ranks > of_host)
    text += fmt::format(" in a host of {}, {} at {:.4g} GB/s between hosts", of_host, between.name,
                        between.gigabytes);
  text = lines("", text);
  text += lines("  sharding  ", sharded.choice.sharding.to_text());
  text += lines("  masks     ", masks_text(sharded));
  for (const Sharded::Input& input : sharded.inputs)
    text += lines(fmt::format("  {:<9} ", shown(input.name)),
                  fmt::format("{}: the sharding is right for these values alone", input.origin));
  return text;
}

// The ranks with the extremes, if they are many.
std::vector<std::size_t> listed(const Estimate& estimate) {
  std::vector<std::size_t> all(estimate.ranks.size());
  std::iota(all.begin(), all.end(), 0);
  if (all.size() <= kMostRows) return all;
  const auto by = [&](auto get) {
    const auto [least, most] = std::ranges::minmax_element(
        all, {}, [&](std::size_t rank) { return get(estimate.ranks[rank]); });
    return std::pair(*least, *most);
  };
  std::vector<std::size_t> some = {0, all.size() - 1};
  for (const auto& [least, most] :
       {by([](const RankEstimate& rank) { return rank.work; }),
        by([](const RankEstimate& rank) { return rank.received.bytes(); }),
        by([](const RankEstimate& rank) { return rank.forward_ms; })}) {
    some.insert(some.end(), {least, most});
  }
  std::ranges::sort(some);
  some.erase(std::ranges::unique(some).begin(), some.end());
  return some;
}

// The table of ranks, column by column.
class OfRanks {
 public:
  explicit OfRanks(const Sharded& sharded)
      : sharded_(sharded),
        dealt_(sharded.choice.sharding),
        estimate_(sharded.choice.estimate),
        listed_(listed(estimate_)) {}

  std::string run() {
    const ir::Dims& dims = sharded_.attention.dims;
    const bool same = dims[ir::Dim::Sq] == dims[ir::Dim::Skv];
    add({"rank", right}, [](std::size_t rank) { return std::to_string(rank); });
    add({"rows", left},
        [&](std::size_t rank) { return home_text(dealt_.rows.of(static_cast<int>(rank))); });
    if (!same)
      add({"keys", left},
          [&](std::size_t rank) { return home_text(dealt_.keys.of(static_cast<int>(rank))); });
    if (dealt_.groups > 1)
      add({"key heads", left}, [&](std::size_t rank) { return heads_text(rank); });
    double all = 0;
    for (const RankEstimate& rank : estimate_.ranks) all += rank.work;
    add({"work", right}, [&](std::size_t rank) { return share_text(of(rank).work, all); });
    add({"received", right}, [&](std::size_t rank) { return bytes(of(rank).received.bytes()); });
    add({"sent", right}, [&](std::size_t rank) { return bytes(of(rank).sent.bytes()); });
    add_ms("kernels ms", &RankEstimate::compute_ms);
    add_ms("forward ms", &RankEstimate::forward_ms);
    if (sharded_.trains()) add_ms("backward ms", &RankEstimate::backward_ms);
    std::string text = table();
    if (listed_.size() < estimate_.ranks.size())
      text += lines("  ",
                    fmt::format("of {} ranks, those with least and most", estimate_.ranks.size()));
    return text + legend(same);
  }

 private:
  const RankEstimate& of(std::size_t rank) const { return estimate_.ranks[rank]; }

  std::string heads_text(std::size_t rank) const {
    return sharding::to_text({dealt_.key_heads(static_cast<int>(rank), sharded_.attention)});
  }

  template <typename Text>
  void add(Table::Column column, const Text& text) {
    columns_.push_back(std::move(column));
    std::vector<std::string>& cells = cells_.emplace_back();
    for (const std::size_t rank : listed_) cells.push_back(text(rank));
  }

  void add_ms(const char* title, double RankEstimate::*ms) {
    std::vector<double> all;
    for (const std::size_t rank : listed_) all.push_back(of(rank).*ms);
    columns_.push_back({title, right});
    cells_.push_back(ms_texts(all));
  }

  std::string table() const {
    Table table(columns_);
    for (std::size_t row = 0; row < listed_.size(); ++row) {
      std::vector<Table::Cell> cells;
      for (const std::vector<std::string>& column : cells_) cells.emplace_back(column[row]);
      table.add(std::move(cells));
    }
    return table.to_text("  ");
  }

  std::string legend(bool same) const {
    std::string text = same ? "rows: what the rank has of q, k, v and o"
                            : "rows: what the rank has of q and o; keys: of k and v";
    if (dealt_.groups > 1) text += "; key heads: those that it computes";
    return lines("  ", text) +
           lines("  ", "work: share of all; received, sent, kernels ms: of the forward");
  }

  const Sharded& sharded_;
  const sharding::Sharding& dealt_;
  const Estimate& estimate_;
  const std::vector<std::size_t> listed_;
  std::vector<Table::Column> columns_;
  std::vector<std::vector<std::string>> cells_;  // by column
};

// A way to divide, as a row of the table of schemes.
struct Way {
  std::string_view name;
  double balance = 1, received = 0, forward_ms = 0, backward_ms = 0;
};

std::vector<Way> ways_of(const Sharded& sharded) {
  const auto way = [](std::string_view name, const Estimate& of) {
    return Way{name, of.balance(), of.bytes(), of.forward_ms(), of.backward_ms()};
  };
  std::vector<Way> ways = {way("attnc", sharded.choice.estimate)};
  for (const sharding::Scheme& scheme : sharded.schemes) {
    if (!scheme.refusal.empty()) continue;
    ways.push_back(
        {scheme.name, scheme.balance, scheme.received, scheme.forward_ms, scheme.backward_ms});
  }
  ways.push_back(way("one GPU", sharded.alone));
  return ways;
}

std::string schemes_text(const Sharded& sharded) {
  const bool backward = sharded.trains();
  std::vector<Table::Column> columns = {{"scheme"},
                                        {"balance", right},
                                        {"received", right},
                                        {"forward ms", right},
                                        {"speed-up", right}};
  if (backward) columns.insert(columns.end(), {{"backward ms", right}, {"speed-up", right}});
  const std::vector<Way> ways = ways_of(sharded);
  const auto column_of = [&](double Way::*ms) {
    std::vector<double> all;
    for (const Way& way : ways) all.push_back(way.*ms);
    return ms_texts(all);
  };
  const auto speed_up = [&](const Way& way, double Way::*ms) -> Table::Cell {
    return way.*ms > 0 ? fmt::format("{:.2f}", ways.back().*ms / (way.*ms)) : "-";
  };
  const std::vector<std::string> forward = column_of(&Way::forward_ms),
                                 back = column_of(&Way::backward_ms);
  Table table(columns);
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const Way& way = ways[i];
    std::vector<Table::Cell> cells = {std::string(way.name), fmt::format("{:.3f}", way.balance),
                                      bytes(way.received), forward[i],
                                      speed_up(way, &Way::forward_ms)};
    if (backward) {
      cells.emplace_back(back[i]);
      cells.push_back(speed_up(way, &Way::backward_ms));
    }
    table.add(std::move(cells));
  }
  std::string text = table.to_text("  ");
  for (const sharding::Scheme& scheme : sharded.schemes) {
    if (!scheme.refusal.empty())
      text += lines("  ", fmt::format("{} is not possible: {}", scheme.name, scheme.refusal));
  }
  text += lines("  ",
                "balance: work of the rank with most, over the mean; received: by the rank that "
                "receives most");
  if (ways.front().forward_ms > ways.back().forward_ms)
    text += lines("  ", "note: one GPU is predicted to be faster");
  return text;
}

}  // namespace

std::string home_text(const sharding::Intervals& set) {
  return set.empty() ? "none" : sharding::to_text(set);
}

std::string to_text(const Sharded& sharded) {
  return head_text(sharded) + "\n" + OfRanks(sharded).run() + "\n" + schemes_text(sharded);
}

}  // namespace attn::tools
