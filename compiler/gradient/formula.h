// Derivatives as they are written in real_functions.def: `dx * (1 - f * f)`. A Formula is an
// expression, a Derivative a tangent that is linear in those of the operands. Their nodes are added
// from left to right when the whole is built, and only if a tangent needs them. Internal to
// compiler/gradient.
#pragma once

#include <concepts>
#include <functional>

#include "compiler/gradient/tangent.h"

namespace attn::gradient {

class Formula {
 public:
  using Build = std::function<ir::ExprId(TangentBuilder&)>;

  explicit Formula(Build build) : build_(std::move(build)) {}
  Formula(double value) : build_([value](TangentBuilder& to) { return to.real(value); }) {}
  static Formula of(ir::ExprId id) {
    return Formula([id](TangentBuilder&) { return id; });
  }

  ir::ExprId operator()(TangentBuilder& to) const { return build_(to); }

 private:
  Build build_;
};

inline Formula applied(ir::Op op, const Formula& x) {
  return Formula([=](TangentBuilder& to) { return to.make(op, {x(to)}); });
}
inline Formula applied(ir::Op op, const Formula& x, const Formula& y) {
  return Formula([=](TangentBuilder& to) { return to.make(op, {x(to), y(to)}); });
}

inline Formula operator-(const Formula& x) { return applied(ir::Op::neg_, x); }
inline Formula operator+(const Formula& x, const Formula& y) { return applied(ir::Op::add_, x, y); }
inline Formula operator-(const Formula& x, const Formula& y) { return applied(ir::Op::sub_, x, y); }
inline Formula operator*(const Formula& x, const Formula& y) { return applied(ir::Op::mul_, x, y); }
#define ATTN_REAL_FUNCTION(name, ...)                    \
  template <std::same_as<Formula>... Operands>           \
  Formula name(const Formula& x, const Operands&... y) { \
    return applied(ir::Op::name##_, x, y...);            \
  }
#include "compiler/ir/real_functions.def"
#undef ATTN_REAL_FUNCTION

class Derivative {
 public:
  using Build = std::function<MaybeTangent(TangentBuilder&)>;

  explicit Derivative(Build build) : build_(std::move(build)) {}
  static Derivative of(const MaybeTangent& tangent) {
    return Derivative([tangent](TangentBuilder&) { return tangent; });
  }

  MaybeTangent operator()(TangentBuilder& to) const { return build_(to); }

 private:
  Build build_;
};

inline Derivative operator*(const Derivative& d, double by) {
  return Derivative([=](TangentBuilder& to) { return to.scaled(d(to), by); });
}
inline Derivative operator/(const Derivative& d, double by) {
  return Derivative([=](TangentBuilder& to) { return to.divided(d(to), by); });
}
inline Derivative operator-(const Derivative& d) { return d * -1.0; }

inline Derivative operator*(const Derivative& d, const Formula& by) {
  return Derivative([=](TangentBuilder& to) {
    const MaybeTangent tangent = d(to);
    return tangent ? to.times(tangent, by(to)) : std::nullopt;
  });
}
inline Derivative operator/(const Derivative& d, const Formula& by) {
  return Derivative([=](TangentBuilder& to) {
    const MaybeTangent tangent = d(to);
    return tangent ? to.over(tangent, by(to)) : std::nullopt;
  });
}
inline Derivative operator+(const Derivative& a, const Derivative& b) {
  return Derivative([=](TangentBuilder& to) {
    const MaybeTangent first = a(to);
    return to.plus(first, b(to));
  });
}
inline Derivative operator-(const Derivative& a, const Derivative& b) { return a + -b; }

}  // namespace attn::gradient
