// Parts of a score that cannot change the weights of keys.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::masks {

// Whether the score does not depend on the products of q and k, and is no constant.
bool ignores_products(const ir::Attention& attention);

struct Ineffective {
  ir::ExprId term;                 // a summand of the score, the same for every key of a row
  std::vector<std::string> names;  // of tensors and params that are read in such summands alone
};

// Tensors and params that softmax cancels, each with the first summand that reads it: softmax
// subtracts what all scores of a row have in common, unless that is -inf. None of summands that
// look made to hide rows, with a huge or infinite constant or a logarithm; none with a sink, which
// is no score of a key, with the sigmoid of each score, and with a single key.
std::vector<Ineffective> ineffective(const ir::Attention& attention);

}  // namespace attn::masks
