#include "compiler/lowering/split_backward.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/derive/gradients.h"
#include "compiler/derive/learned.h"
#include "compiler/derive/scores.h"
#include "compiler/lowering/checks.h"
#include "compiler/lowering/interface.h"
#include "compiler/lowering/no_keys.h"
#include "compiler/lowering/row_gradients.h"
#include "compiler/lowering/split_parts.h"
#include "compiler/lowering/unsupported.h"

namespace attn::lowering {
namespace {

using ir::Dim;

constexpr const char* kProducts = "scores.products";      // q k^T, f32 [B,Hq,Sq,columns]
constexpr const char* kScores = "scores.modified";        // f32 [B,Hq,Sq,Skv]
constexpr const char* kSinks = "scores.sinks";            // f32 [Hq]
constexpr const char* kKept = "scores.kept";              // i32 [B,Hq,Sq,Skv]
constexpr const char* kCotangents = "scores.cotangents";  // do v^T, f32 [B,Hq,Sq,columns]
constexpr const char* kModified = "scores.d_modified";    // dS', f32 [B,Hq,Sq,columns]
constexpr const char* kGradients = "scores.d_products";   // dS scale, [B,Hq,Sq,columns]
constexpr const char* kWeights = "scores.weights";        // P keep, [B,Hq,Sq,columns]
constexpr const char* kLse = "rows.lse";                  // f32 [B,Hq,Sq]
constexpr const char* kDeltas = "rows.deltas";            // f32 [B,Hq,Sq]

bool any_gathers(const gradient::Derivatives& derivatives,
                 std::vector<gradient::Gather> gradient::TensorGradient::*where) {
  return std::ranges::any_of(derivatives.tensors,
                             [&](const auto& tensor) { return !(tensor.*where).empty(); });
}

// The first learned tensor that a score reads, or nothing.
std::optional<std::string> learned_by_score(const gradient::Derivatives& derivatives) {
  for (const gradient::TensorGradient& tensor : derivatives.tensors) {
    if (!tensor.score.empty()) return tensor.tensor;
  }
  return std::nullopt;
}

// The rule of docs/cudnn.md, "Learned tensors beside random dropout".
Status check_dropout(const gradient::Derivatives& derivatives) {
  const auto& dropout = derivatives.attention.dropout;
  if (!dropout || dropout->keep) return {};
  const std::optional<std::string> learned = learned_by_score(derivatives);
  return unsupported(
      dropout->pos,
      learned
          ? fmt::format("the gradient of `{}` needs to know what random dropout keeps, and only "
                        "cuDNN's fused kernels know it",
                        *learned)
          : "only cuDNN's fused kernels know what their dropout keeps",
      learned ? fmt::format("give the mask, `dropout p, keep[b, h, q_idx, kv_idx]`, or leave `{}` "
                            "out of `grad`",
                            *learned)
              : "give the mask: `dropout p, keep[b, h, q_idx, kv_idx]`");
}

class Backward {
 public:
  explicit Backward(const gradient::Derivatives& derivatives)
      : derivatives_(derivatives),
        attention_(derivatives.attention),
        parts_(attention_),
        by_score_(any_gathers(derivatives, &gradient::TensorGradient::score)),
        by_sink_(any_gathers(derivatives, &gradient::TensorGradient::sink)) {}

  // Of q, k and v, as far as they are wanted, and what is learned.
  Result<plan::Program> program() && {
    const auto wanted = gradient::wanted_gradients(attention_);
    for (const char* name : {"q", "k", "v"}) {
      if (std::ranges::find(wanted, name) != wanted.end()) wanted_.emplace_back(name);
    }
    ATTN_RETURN_IF_ERROR(add_cotangents());
    add_inputs();
    add_learned();
    ATTN_RETURN_IF_ERROR(parts_.check_bytes());
    plan::Program program = parts_.program([&](const auto& used, const Controls& controls) {
      return backward_tensors(attention_, used, controls, gradient_names(attention_));
    });
    derive::check_scores(attention_, program);
    return program;
  }

  // Of what is learned.
  Result<LearnedGradients> learned() && {
    ATTN_RETURN_IF_ERROR(add_cotangents());
    add_learned();
    ATTN_RETURN_IF_ERROR(parts_.check_bytes());
    return LearnedGradients{parts_.internals(), parts_.steps()};
  }

 private:
  bool wants(std::string_view name) const {
    return std::ranges::find(wanted_, name) != wanted_.end();
  }

  std::string if_any(bool there, const char* name) const { return there ? name : ""; }

  void add_of_scores(const char* name, DType dtype) {
    parts_.add_internal(name, dtype, parts_.scores_dims(parts_.columns()));
  }

  // What the gradients are made of. Only sinks are read by rows alone.
  Status add_cotangents() {
    if (!wanted_.empty() || by_score_) {
      ATTN_RETURN_IF_ERROR(check_dropout(derivatives_));
      add_scores();
    } else if (by_sink_) {
      add_rows();
    }
    return {};
  }

  // dS', and the weights if they are wanted.
  void add_scores() {
    parts_.add_copies_in({"q", "k", "v", "do"});
    add_of_scores(kProducts, DType::f32);
    parts_.add_product(parts_.copy("q"), turned(parts_.copy("k")),
                       parts_.scores(kProducts, DType::f32));
    add_of_scores(kCotangents, DType::f32);
    parts_.add_product(parts_.copy("do"), turned(parts_.copy("v")),
                       parts_.scores(kCotangents, DType::f32));
    add_modified();
    add_of_scores(kModified, DType::f32);
    if (wants("v")) add_of_scores(kWeights, attention_.dtype);
    if (by_sink_) add_statistics();
    parts_.add_step(
        row_gradients(attention_, {kScores, if_any(attention_.sink.has_value(), kSinks),
                                   if_any(attention_.dropout.has_value(), kKept), kCotangents,
                                   kModified, if_any(wants("v"), kWeights), if_any(by_sink_, kLse),
                                   if_any(by_sink_, kDeltas), parts_.columns()}));
  }

  // The scores as the forward had them.
  void add_modified() {
    const std::vector<std::int64_t> dims = parts_.scores_dims(attention_.dims[Dim::Skv]);
    parts_.add_internal(kScores, DType::f32, dims);
    if (attention_.dropout) parts_.add_internal(kKept, DType::i32, dims);
    if (attention_.sink) parts_.add_internal(kSinks, DType::f32, {attention_.dims[Dim::Hq]});
    parts_.add_step(
        derive::scores_step(attention_, {kProducts, parts_.columns(), kScores, kKept, kSinks}));
  }

  void add_statistics() {
    const ir::Dims& d = attention_.dims;
    for (const char* name : {kLse, kDeltas}) {
      parts_.add_internal(name, DType::f32, {d[Dim::B], d[Dim::Hq], d[Dim::Sq]});
    }
  }

  void add_rows() {
    parts_.add_copies_in({"o", "do"});
    add_statistics();
    const Matrix o = parts_.copy("o"), d_o = parts_.copy("do");
    parts_.add_step(row_deltas(attention_, {o.tensor, d_o.tensor, kLse, kDeltas, o.dims[2]}));
  }

  void add_inputs() {
    if (wanted_.empty()) return;
    if (wants("q") || wants("k")) add_gradients();
    const Matrix gradients = parts_.scores(kGradients, attention_.dtype);
    if (wants("q")) add_input("dq", gradients, parts_.copy("k"));
    if (wants("k")) add_input("dk", turned(gradients), parts_.copy("q"));
    if (wants("v")) {
      add_input("dv", turned(parts_.scores(kWeights, attention_.dtype)), parts_.copy("do"));
    }
    std::vector<std::string> outputs;
    for (const std::string& name : wanted_) outputs.push_back(gradient::gradient_name(name));
    parts_.add_copies_out(outputs);
  }

  void add_gradients() {
    add_of_scores(kGradients, attention_.dtype);
    parts_.add_step(derive::score_gradients_step(
        derivatives_, {kProducts, kModified, parts_.columns(), kGradients}));
  }

  void add_input(const std::string& name, const Matrix& a, const Matrix& b) {
    parts_.add_copy(name);
    parts_.add_product(a, b, parts_.copy(name));
  }

  void add_learned() {
    derive::LearnedSteps made = derive::learned_steps(
        derivatives_, {kProducts, kModified, parts_.columns(), kLse, kDeltas});
    for (const plan::TensorInfo& tensor : made.internals) {
      parts_.add_internal(tensor.name, tensor.dtype, tensor.dims);
    }
    for (plan::DeriveStep& step : made.steps) parts_.add_step(std::move(step));
  }

  const gradient::Derivatives& derivatives_;
  const ir::Attention& attention_;
  SplitParts parts_;
  const bool by_score_, by_sink_;
  std::vector<std::string> wanted_;  // of q, k and v
};

}  // namespace

Result<plan::Program> lower_split_backward(const ir::Attention& attention) {
  ATTN_RETURN_IF_ERROR(check_attention(attention));
  ATTN_RETURN_IF_ERROR(check_gradients(attention));
  if (attention.dims[Dim::Skv] == 0) return no_keys_backward(attention);
  const gradient::Derivatives derivatives = gradient::differentiate(attention);
  ATTN_ASSIGN(plan::Program program, Backward(derivatives).program());
  ATTN_RETURN_IF_ERROR(check_program(attention, program));
  return program;
}

Result<LearnedGradients> learned_gradients(const gradient::Derivatives& derivatives) {
  return Backward(derivatives).learned();
}

}  // namespace attn::lowering
