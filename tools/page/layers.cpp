#include "tools/page/layers.h"

#include <algorithm>
#include <numeric>

namespace attn::tools::page {
namespace {

constexpr double kAcross = 22;  // between the nodes of a layer
constexpr double kDown = 30;    // between layers
constexpr double kBend = 10;    // width that an edge takes in a layer that it passes
constexpr int kSweeps = 12;

using Edge = std::pair<std::size_t, std::size_t>;

// Nodes of the graph, then a bend for each layer that an edge passes.
class Placer {
 public:
  Placer(const std::vector<Size>& nodes, const std::vector<Edge>& edges)
      : sizes_(nodes), edges_(edges), layer_(layer_numbers()) {
    add_bends();
    const std::size_t last = *std::ranges::max_element(layer_);
    rows_.resize(last + 1);
    for (std::size_t i = 0; i < sizes_.size(); ++i) rows_[layer_[i]].push_back(i);
    x_.resize(sizes_.size());
  }

  Layers run(std::size_t nodes) {
    for (auto& row : rows_) pack(row);
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      const bool may_swap = sweep < kSweeps / 2;
      const bool down = sweep % 2 == 0;
      for (std::size_t i = 0; i < rows_.size(); ++i) {
        auto& row = rows_[down ? i : rows_.size() - 1 - i];
        settle(row, down ? above_ : below_, may_swap);
      }
    }
    return result(nodes);
  }

 private:
  std::vector<std::size_t> layer_numbers() const {
    std::vector<std::size_t> layers(sizes_.size(), 0);
    std::vector<bool> is_source(sizes_.size(), true);
    std::vector<std::vector<std::size_t>> next(sizes_.size());
    for (const auto& [from, to] : edges_) {
      next[from].push_back(to);
      is_source[to] = false;
    }
    for (std::size_t from = 0; from < next.size(); ++from) {
      for (const std::size_t to : next[from]) layers[to] = std::max(layers[to], layers[from] + 1);
    }
    for (std::size_t i = 0; i < next.size(); ++i) {
      if (!is_source[i] || next[i].empty()) continue;
      std::size_t first = layers[next[i].front()];
      for (const std::size_t to : next[i]) first = std::min(first, layers[to]);
      layers[i] = first - 1;
    }
    return layers;
  }

  void add_bends() {
    for (const auto& [from, to] : edges_) {
      std::vector<std::size_t> way{from};
      for (std::size_t layer = layer_[from] + 1; layer < layer_[to]; ++layer) {
        way.push_back(sizes_.size());
        sizes_.push_back({kBend, 0});
        layer_.push_back(layer);
      }
      way.push_back(to);
      ways_.push_back(std::move(way));
    }
    above_.resize(sizes_.size());
    below_.resize(sizes_.size());
    for (const auto& way : ways_) {
      for (std::size_t i = 1; i < way.size(); ++i) {
        above_[way[i]].push_back(way[i - 1]);
        below_[way[i - 1]].push_back(way[i]);
      }
    }
  }

  double apart(std::size_t left, std::size_t right) const {
    return (sizes_[left].width + sizes_[right].width) / 2 + kAcross;
  }

  // Side by side, the middle at 0.
  void pack(const std::vector<std::size_t>& row) {
    for (std::size_t i = 1; i < row.size(); ++i) {
      x_[row[i]] = x_[row[i - 1]] + apart(row[i - 1], row[i]);
    }
    const double middle = (x_[row.front()] + x_[row.back()]) / 2;
    for (const std::size_t node : row) x_[node] -= middle;
  }

  // Moves each node to the middle of its neighbours, as far as the others of its row let it.
  void settle(std::vector<std::size_t>& row,
              const std::vector<std::vector<std::size_t>>& neighbours, bool may_swap) {
    std::vector<double> wanted = x_;
    for (const std::size_t node : row) {
      if (neighbours[node].empty()) continue;
      double sum = 0;
      for (const std::size_t other : neighbours[node]) sum += x_[other];
      wanted[node] = sum / static_cast<double>(neighbours[node].size());
    }
    if (may_swap) std::ranges::stable_sort(row, {}, [&](std::size_t node) { return wanted[node]; });
    // Both passes keep the order; their mean favours neither side.
    std::vector<double> from_left = wanted, from_right = wanted;
    for (std::size_t i = 1; i < row.size(); ++i) {
      from_left[row[i]] =
          std::max(wanted[row[i]], from_left[row[i - 1]] + apart(row[i - 1], row[i]));
    }
    for (std::size_t i = row.size() - 1; i > 0; --i) {
      from_right[row[i - 1]] =
          std::min(wanted[row[i - 1]], from_right[row[i]] - apart(row[i - 1], row[i]));
    }
    for (const std::size_t node : row) x_[node] = (from_left[node] + from_right[node]) / 2;
  }

  Layers result(std::size_t nodes) const {
    double left = 0, right = 0;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      left = std::min(left, x_[i] - sizes_[i].width / 2);
      right = std::max(right, x_[i] + sizes_[i].width / 2);
    }
    std::vector<double> tops, heights;
    double y = 0;
    for (const auto& row : rows_) {
      double height = 0;
      for (const std::size_t node : row) height = std::max(height, sizes_[node].height);
      tops.push_back(y);
      heights.push_back(height);
      y += height + kDown;
    }
    Layers layers;
    layers.size = {right - left, y - kDown};
    for (std::size_t i = 0; i < nodes; ++i) {
      layers.nodes.push_back({x_[i] - left, tops[layer_[i]] + heights[layer_[i]] / 2});
    }
    for (const auto& way : ways_) {
      std::vector<Point> points;
      for (const std::size_t i : way) {
        const double middle = tops[layer_[i]] + heights[layer_[i]] / 2;
        const double half = sizes_[i].height / 2;
        // A bend is as high as its layer.
        const double reach = i < nodes ? half : heights[layer_[i]] / 2;
        if (i != way.front()) points.push_back({x_[i] - left, middle - reach});
        if (i != way.back()) points.push_back({x_[i] - left, middle + reach});
      }
      layers.edges.push_back(std::move(points));
    }
    return layers;
  }

  std::vector<Size> sizes_;
  const std::vector<Edge>& edges_;
  std::vector<std::size_t> layer_;
  std::vector<std::vector<std::size_t>> ways_;           // of each edge
  std::vector<std::vector<std::size_t>> above_, below_;  // neighbours
  std::vector<std::vector<std::size_t>> rows_;           // of each layer, from left to right
  std::vector<double> x_;
};

}  // namespace

Layers layers_of(const std::vector<Size>& nodes, const std::vector<Edge>& edges) {
  if (nodes.empty()) return {};
  return Placer(nodes, edges).run(nodes.size());
}

}  // namespace attn::tools::page
