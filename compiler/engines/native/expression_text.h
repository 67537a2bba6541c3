// The text that the expressions of the forward and of the backward kernel have in common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/expression_writer.h"
#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/native/tables.h"
#include "compiler/ir/attention.h"
#include "compiler/masks/padding.h"

namespace attn::engines::native {

inline constexpr const char* kIndices = "int b, int h, int row, int column";

// A method whose body is the writer's statements.
std::string method(const std::string& head, const codegen::ExpressionWriter& writer,
                   const std::string& value);
std::string float_literal(double value);

// A method that tells whether all terms hold.
std::string mask_method(const char* name, const std::vector<ir::ExprId>& terms,
                        const std::string& parameters, codegen::ExpressionWriter& writer);
// A method that tells whether a length of a batch is more than there is, or less than none.
std::string beyond_method(const ir::Attention& attention);
// The methods of lengths: of keys and of queries, and of those that masks show.
std::string lengths_text(const ir::Attention& attention);
std::optional<masks::Padding> padding_of(const ir::Attention& attention);

// What dropout scales the kept weights by, the method of its mask, and the text of a random one.
double kept_scale(const ir::Attention& attention);
std::string keep_method(const ir::Attention& attention, const std::string& parameters,
                        codegen::ExpressionWriter& writer);
std::string random_text(const ir::Attention& attention, codegen::ExpressionWriter& writer);

// Adds lengths, what random dropout reads and, unless the kernel has others, scales of 8-bit
// floats.
void add_controls(const ir::Attention& attention, codegen::KernelInputs& inputs,
                  bool scales = true);

// Sets the score of a block of statements: `product` times the scale. Constant factors of the score
// and the scale are one. 8-bit floats have scales that are known at run time: the kernel has
// multiplied their product.
void set_scaled_score(const ir::Attention& attention, ir::ExprId root,
                      codegen::ExpressionWriter& writer);

// Whether a tensor is read by row or column, but for the one that is copied.
bool reads_by_index(const ir::Attention& attention, const std::vector<ir::ExprId>& roots,
                    const std::optional<Table>& table);

bool is_zero(const ir::Dag& dag, ir::ExprId id);

}  // namespace attn::engines::native
