// Classes of a modulus, as in dilated windows, as further heads or batches of one attention: the
// strides of q, k, v and o reach the rows of a class, so that nothing is copied, and no score
// between classes is computed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "compiler/engines/native/chosen_keys.h"
#include "compiler/engines/shared/partition.h"
#include "compiler/ir/attention.h"

namespace attn::engines::native {

// Where row q of the kernel's batch b and head h is in lse, max and sum_exp, in elements:
//   b * batch + h % heads * head + h / heads * of_class + q * row
struct StatisticsPlaces {
  std::int64_t batch = 0, head = 0, of_class = 0, row = 1;
  std::int64_t heads = 1;  // of a class

  std::int64_t place(std::int64_t b, std::int64_t h, std::int64_t q) const {
    return b * batch + h % heads * head + h / heads * of_class + q * row;
  }
};

// What a kernel computes. The program's tensors are those of the whole attention.
struct Form {
  ir::Attention attention;
  StatisticsPlaces statistics;
  std::optional<ChosenKeys> chosen{};  // of an attention over gathered keys
};
// The attention itself, but for gathered keys, where rows are batches (chosen_keys.h).
Form whole_form(const ir::Attention& attention);

// Class c as heads c * Hq + h where the rows of all heads are contiguous (bshd), and as batch c of
// a single batch. Nothing for other strides, and where no class begins at the first row.
std::optional<Form> form_of_classes(const ir::Attention& whole, const Part& classes);

// The same of classes that may not be, and nothing if TMA cannot address one of these tensors.
std::optional<Form> readable_classes(const ir::Attention& whole, const std::optional<Part>& classes,
                                     std::initializer_list<const char*> names);

// The classes of the attention, if it has some that a kernel may compute so. Nothing with lengths
// and random dropout.
std::optional<Part> classes_of(const ir::Attention& whole, const target::Context& context);

}  // namespace attn::engines::native
