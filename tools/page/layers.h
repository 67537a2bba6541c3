// Places the nodes of a directed acyclic graph in layers, from top to bottom.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace attn::tools::page {

struct Size {
  double width = 0, height = 0;
};

struct Point {
  double x = 0, y = 0;
};

struct Layers {
  std::vector<Point> nodes;  // the middle of each
  // The points that each edge goes through, in the order of the edges: from the bottom of its
  // first node to the top of its second, between the nodes of the layers that it passes.
  std::vector<std::vector<Point>> edges;
  Size size;
};

// Edges are pairs of nodes; the first of a pair has the smaller number. A node that no edge leads
// to is one layer above the first node that it leads to; any other one is below all that lead to
// it. Nodes of one layer do not overlap, and are near what they are connected to.
Layers layers_of(const std::vector<Size>& nodes,
                 const std::vector<std::pair<std::size_t, std::size_t>>& edges);

}  // namespace attn::tools::page
