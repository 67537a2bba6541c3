// A type that is one of two.
#pragma once

namespace kernels {

template <bool kFirst, class A, class B>
struct Which {
  using Type = A;
};
template <class A, class B>
struct Which<false, A, B> {
  using Type = B;
};

}  // namespace kernels
