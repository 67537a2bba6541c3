#include "tools/page/layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace attn::tools::page {
namespace {

using Edges = std::vector<std::pair<std::size_t, std::size_t>>;

bool overlap(const Layers& layers, const std::vector<Size>& sizes, std::size_t a, std::size_t b) {
  const double x = std::abs(layers.nodes[a].x - layers.nodes[b].x);
  const double y = std::abs(layers.nodes[a].y - layers.nodes[b].y);
  return x < (sizes[a].width + sizes[b].width) / 2 && y < (sizes[a].height + sizes[b].height) / 2;
}

void expect_sound(const Layers& layers, const std::vector<Size>& sizes, const Edges& edges) {
  ASSERT_EQ(layers.nodes.size(), sizes.size());
  ASSERT_EQ(layers.edges.size(), edges.size());
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    EXPECT_GE(layers.nodes[a].x, sizes[a].width / 2 - 1e-9);
    EXPECT_LE(layers.nodes[a].x + sizes[a].width / 2, layers.size.width + 1e-9);
    EXPECT_LE(layers.nodes[a].y + sizes[a].height / 2, layers.size.height + 1e-9);
    for (std::size_t b = 0; b < a; ++b) EXPECT_FALSE(overlap(layers, sizes, a, b)) << a << " " << b;
  }
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const auto [from, to] = edges[i];
    EXPECT_LT(layers.nodes[from].y, layers.nodes[to].y);
    EXPECT_EQ(layers.edges[i].front().x, layers.nodes[from].x);
    EXPECT_EQ(layers.edges[i].back().x, layers.nodes[to].x);
    EXPECT_DOUBLE_EQ(layers.edges[i].back().y, layers.nodes[to].y - sizes[to].height / 2);
  }
}

TEST(Layers, Nothing) { EXPECT_TRUE(layers_of({}, {}).nodes.empty()); }

TEST(Layers, AChainIsStraight) {
  const std::vector<Size> sizes(3, {80, 40});
  const Edges edges = {{0, 1}, {1, 2}};
  const Layers layers = layers_of(sizes, edges);
  expect_sound(layers, sizes, edges);
  EXPECT_EQ(layers.nodes[0].x, layers.nodes[2].x);
  EXPECT_EQ(layers.size.width, 80);
}

TEST(Layers, ASourceIsJustAboveWhatItLeadsTo) {
  const std::vector<Size> sizes(5, {80, 40});
  const Edges edges = {{0, 1}, {1, 2}, {2, 4}, {3, 4}};
  const Layers layers = layers_of(sizes, edges);
  expect_sound(layers, sizes, edges);
  EXPECT_EQ(layers.nodes[3].y, layers.nodes[2].y);
}

TEST(Layers, ALongEdgePassesBesideNodes) {
  const std::vector<Size> sizes(4, {80, 40});
  const Edges edges = {{0, 1}, {1, 2}, {2, 3}, {0, 3}};
  const Layers layers = layers_of(sizes, edges);
  expect_sound(layers, sizes, edges);
  for (const Point& point : layers.edges[3]) {
    for (const std::size_t node : {1, 2}) {
      const bool level = std::abs(point.y - layers.nodes[node].y) <= 20;
      EXPECT_TRUE(!level || std::abs(point.x - layers.nodes[node].x) > 40);
    }
  }
}

TEST(Layers, ManyEdges) {
  std::vector<Size> sizes;
  Edges edges;
  for (std::size_t i = 0; i < 60; ++i) {
    sizes.push_back({60.0 + 7 * static_cast<double>(i % 9), 40});
    for (std::size_t step : {1, 3, 11}) {
      if (i >= step && (i * step) % 4 != 3) edges.emplace_back(i - step, i);
    }
  }
  expect_sound(layers_of(sizes, edges), sizes, edges);
}

}  // namespace
}  // namespace attn::tools::page
