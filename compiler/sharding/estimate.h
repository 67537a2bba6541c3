// What a sharding takes, predicted: work, bytes and time of each rank.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/sharding/sharding.h"
#include "compiler/target/context.h"
#include "runtime/base/status.h"

namespace attn::sharding {

// How fast ranks send to each other.
struct Link {
  std::string name;
  double gigabytes = 0;   // a second, in each direction, of one rank
  double latency_ms = 0;  // of an exchange
  double milliseconds(double bytes) const {
    return bytes > 0 ? latency_ms + bytes / (gigabytes * 1e6) : 0;
  }
};

// NVLink is what NCCL's send and receive gave two H200 of one host, with messages of 64 MiB. The
// network is 400 Gb/s for each GPU, of which nine tenths are taken to arrive.
struct Links {
  Link inside{"nvlink", 263, 0.05};
  Link between{"400g", 45, 0.06};
  int ranks_of_host = 8;
};

// "nvlink", "400g" (gigabits a second of a network), or gigabytes a second: "120".
Result<Link> parse_link(std::string_view text);

inline constexpr double kTile = 128;          // rows, and keys
inline constexpr double kBytesOfPartial = 4;  // an element that is summed with others: f32

// Predicted milliseconds of a kernel, by what it computes (engines/shared/cost.h).
class Speed {
 public:
  Speed(const ir::Attention& attention, const target::Context& context);

  struct Load {
    double tiles = 0;  // of 128 rows and 128 keys, of one head of one batch each
    double most = 0;   // of one row of tiles; backward: of one column
    double rows = 0;   // of tiles
    double bytes = 0;  // of keys and values
  };
  double milliseconds(const Load& load) const;
  double moving(double bytes) const;

 private:
  // Tiles that one block of threads computes, at most.
  double undivided(const Load& load) const;

  target::Gpu gpu_;
  bool backward_;
  double launch_, tile_, row_, tile_of_row_, start_of_row_;
};

// Rows, keys and results that a rank sends or receives, in bytes.
struct Traffic {
  double inside = 0;   // its host
  double between = 0;  // hosts

  double bytes() const { return inside + between; }
  void add(bool same_host, double more) { (same_host ? inside : between) += more; }
};

struct RankEstimate {
  double work = 0;            // tiles of 128 x 128 scores
  double rows = 0, keys = 0;  // at home
  Traffic received, sent;     // of the forward
  Traffic received_backward, sent_backward;
  double forward_ms = 0, backward_ms = 0;
  double compute_ms = 0;  // of forward_ms: the kernels
};

struct Estimate {
  std::vector<RankEstimate> ranks;

  double balance() const;  // work of the rank with most, of the mean
  double bytes() const;    // received in the forward, of the rank with most
  double forward_ms() const;
  double backward_ms() const;
  double compute_ms() const;
};

struct Estimating {
  const ir::Attention& attention;
  const WorkMap& map;
  Speed forward, backward;
  Links links;
};

Estimate estimate(const Sharding& sharding, const Estimating& estimating);

}  // namespace attn::sharding
