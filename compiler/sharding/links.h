// How fast ranks send to each other.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace attn::sharding {

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

}  // namespace attn::sharding
