// Requests of a server: which rows each has in a step, in which pages its keys are, and what its
// attention must be. All on the host, without attn.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace examples {

// Sizes of a plan, and how many pages the cache has.
struct Sizes {
  std::int64_t sequences, rows, keys;  // the most of a batch, and of a sequence
  std::int64_t heads, heads_kv, depth;
  std::int64_t page, pages;
  std::int64_t columns() const { return (keys + page - 1) / page; }  // pages of a sequence
};

enum class Kind { query, key, value };

// An element of q, k or v, as a model would have computed it: a number that bf16 has, from -2 to 2.
inline float element_of(int layer, Kind kind, int request, std::int64_t position, std::int64_t head,
                        std::int64_t element) {
  std::uint64_t x = 0;
  for (const std::int64_t part : {std::int64_t{layer}, static_cast<std::int64_t>(kind),
                                  std::int64_t{request}, position, head, element}) {
    x = (x ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
  }
  return static_cast<float>(static_cast<int>(x % 128) - 64) / 32;
}

struct Request {
  int number;
  std::int64_t prompt, tokens;  // of the prompt, and with those that are generated
  std::int64_t done = 0;        // whose keys are in the cache
  std::vector<std::int32_t> pages = {};
};

// Rows of a request in a step: the positions from `first` on.
struct Part {
  const Request* request;
  std::int64_t first, rows;
  // The slot of one of its positions in the cache.
  std::int64_t slot(std::int64_t position, std::int64_t page) const {
    return request->pages[static_cast<std::size_t>(position / page)] * page + position % page;
  }
};

// Requests that arrive, are served together, and leave. Pages of those that left are given to
// others.
class Requests {
 public:
  Requests(const Sizes& sizes, int count) : sizes_(sizes) {
    for (int number = count; number-- > 0;) {
      const std::int64_t prompt = random(1, sizes.keys * 2 / 3);
      waiting_.push_back({number, prompt, std::min(prompt + random(1, 40), sizes.keys)});
    }
    for (std::int64_t page = 1; page < sizes.pages; ++page) {
      free_.push_back(static_cast<std::int32_t>(page));
    }
    std::shuffle(free_.begin(), free_.end(), generator_);
  }

  // The next step, of at most so many rows: decodes, and chunks of prompts. Empty if all requests
  // were served.
  std::vector<Part> next(std::int64_t rows) {
    leave();
    arrive();
    std::vector<Part> parts;
    for (Request& request : running_) {
      const std::int64_t missing = std::max<std::int64_t>(request.prompt - request.done, 1);
      const std::int64_t here = std::min({missing, sizes_.rows, rows});
      if (here == 0) break;  // the others wait for the next step
      parts.push_back({&request, request.done, here});
      request.done += here;
      rows -= here;
    }
    return parts;
  }

 private:
  std::int64_t random(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(generator_);
  }
  void leave() {
    for (Request& request : running_) {
      if (request.done < request.tokens) continue;
      free_.insert(free_.end(), request.pages.begin(), request.pages.end());
      request.pages.clear();
    }
    running_.erase(std::remove_if(running_.begin(), running_.end(),
                                  [](const Request& request) { return request.pages.empty(); }),
                   running_.end());
  }
  // Admits those for all of whose tokens there are pages: up to three in a step.
  void arrive() {
    for (std::int64_t left = random(0, 3); left > 0 || running_.empty(); --left) {
      if (waiting_.empty() || static_cast<std::int64_t>(running_.size()) == sizes_.sequences)
        return;
      Request& request = waiting_.back();
      const auto needed = (request.tokens + sizes_.page - 1) / sizes_.page;
      if (static_cast<std::int64_t>(free_.size()) < needed) return;
      request.pages.assign(free_.end() - needed, free_.end());
      free_.erase(free_.end() - needed, free_.end());
      running_.push_back(std::move(request));
      waiting_.pop_back();
    }
  }

  Sizes sizes_;
  std::mt19937 generator_{1};
  std::vector<Request> waiting_, running_;
  std::vector<std::int32_t> free_;  // pages
};

// Rows of a step as the projection of a layer would have them: heads of q, of k and of v.
inline std::vector<float> projection_of(const Sizes& sizes, int layer,
                                        const std::vector<Part>& parts) {
  std::vector<float> elements;
  const auto add = [&](Kind kind, int request, std::int64_t position, std::int64_t heads) {
    for (std::int64_t i = 0; i < heads * sizes.depth; ++i) {
      elements.push_back(
          element_of(layer, kind, request, position, i / sizes.depth, i % sizes.depth));
    }
  };
  for (const Part& part : parts) {
    for (std::int64_t row = part.first; row < part.first + part.rows; ++row) {
      add(Kind::query, part.request->number, row, sizes.heads);
      add(Kind::key, part.request->number, row, sizes.heads_kv);
      add(Kind::value, part.request->number, row, sizes.heads_kv);
    }
  }
  return elements;
}

// Causal attention of one row and head of a request, in double: [depth].
inline std::vector<double> attention_of(const Sizes& sizes, int layer, int request,
                                        std::int64_t position, std::int64_t head) {
  const std::int64_t head_kv = head * sizes.heads_kv / sizes.heads;
  std::vector<double> scores, o(static_cast<std::size_t>(sizes.depth), 0.0);
  for (std::int64_t key = 0; key <= position; ++key) {
    double score = 0;
    for (std::int64_t i = 0; i < sizes.depth; ++i) {
      score += double{element_of(layer, Kind::query, request, position, head, i)} *
               double{element_of(layer, Kind::key, request, key, head_kv, i)};
    }
    scores.push_back(score / std::sqrt(static_cast<double>(sizes.depth)));
  }
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - most);
  for (std::int64_t key = 0; key <= position; ++key) {
    const double weight = scores[static_cast<std::size_t>(key)] / sum;
    for (std::int64_t i = 0; i < sizes.depth; ++i) {
      o[static_cast<std::size_t>(i)] +=
          weight * double{element_of(layer, Kind::value, request, key, head_kv, i)};
    }
  }
  return o;
}

}  // namespace examples
