// Integers that an expression may have where its operands are in intervals; booleans are 0 and 1.
// Results hold every value that may occur. What would leave 32 bits may be anything.
#pragma once

namespace kernels {

struct Interval {
  long long low, high;
};

constexpr long long kLowestInt = -2147483648ll, kHighestInt = 2147483647ll;

static __device__ Interval point(int value) { return {value, value}; }
static __device__ Interval any_integer() { return {kLowestInt, kHighestInt}; }
static __device__ bool is_point(Interval x) { return x.low == x.high; }
static __device__ Interval in_range(Interval x) {
  return x.low < kLowestInt || x.high > kHighestInt ? any_integer() : x;
}

// Integers of 64 bits are known by the nearest of 32 bits: where that is the first or the last, the
// interval is open.
constexpr long long kFar = 1ll << 62;
static __device__ Interval any_wide() { return {-kFar, kFar}; }
static __device__ Interval opened(Interval x) {
  return {x.low == kLowestInt ? -kFar : x.low, x.high == kHighestInt ? kFar : x.high};
}
// And back.
static __device__ Interval closed(Interval x) {
  return {x.low < kLowestInt ? kLowestInt : x.low, x.high > kHighestInt ? kHighestInt : x.high};
}

static __device__ Interval sum(Interval x, Interval y) {
  return in_range({x.low + y.low, x.high + y.high});
}
static __device__ Interval difference(Interval x, Interval y) {
  return in_range({x.low - y.high, x.high - y.low});
}
static __device__ long long smaller(long long x, long long y) { return x < y ? x : y; }
static __device__ long long larger(long long x, long long y) { return x < y ? y : x; }
static __device__ Interval smaller(Interval x, Interval y) {
  return {smaller(x.low, y.low), smaller(x.high, y.high)};
}
static __device__ Interval larger(Interval x, Interval y) {
  return {larger(x.low, y.low), larger(x.high, y.high)};
}
static __device__ Interval around(Interval x, Interval y) {
  return {smaller(x.low, y.low), larger(x.high, y.high)};
}
static __device__ Interval product(Interval x, Interval y) {
  const long long a = x.low * y.low, b = x.low * y.high, c = x.high * y.low, d = x.high * y.high;
  return in_range({smaller(smaller(a, b), smaller(c, d)), larger(larger(a, b), larger(c, d))});
}
static __device__ Interval opposite(Interval x) { return in_range({-x.high, -x.low}); }
static __device__ Interval magnitude(Interval x) {
  return in_range({larger(0, larger(x.low, -x.high)), larger(-x.low, x.high)});
}
// The quotients where the divisor is one positive number.
static __device__ Interval quotient(Interval x, Interval y) {
  if (!is_point(y) || y.low <= 0) return any_integer();
  const auto floor = [&y](long long n) { return n >= 0 ? n / y.low : -((y.low - 1 - n) / y.low); };
  return {floor(x.low), floor(x.high)};
}
static __device__ Interval remainder(Interval x, Interval y) {
  const Interval part = quotient(x, y);
  if (!is_point(y) || y.low <= 0) return any_integer();
  if (!is_point(part)) return {0, y.low - 1};
  return {x.low - part.low * y.low, x.high - part.low * y.low};
}

static __device__ Interval less(Interval x, Interval y) { return {x.high < y.low, x.low < y.high}; }
static __device__ Interval less_equal(Interval x, Interval y) {
  return {x.high <= y.low, x.low <= y.high};
}
static __device__ Interval equal(Interval x, Interval y) {
  return {is_point(x) && is_point(y) && x.low == y.low, x.low <= y.high && y.low <= x.high};
}
static __device__ Interval inverse(Interval x) { return {1 - x.high, 1 - x.low}; }
static __device__ Interval both(Interval x, Interval y) { return smaller(x, y); }
static __device__ Interval either(Interval x, Interval y) { return larger(x, y); }
static __device__ Interval chosen(Interval condition, Interval x, Interval y) {
  if (is_point(condition)) return condition.low ? x : y;
  return around(x, y);
}

}  // namespace kernels
