#include "compiler/sema/other_clauses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>

#include "compiler/ast/print.h"
#include "compiler/ast/syntax.h"
#include "compiler/sema/names.h"
#include "compiler/support/text.h"

namespace attn::sema {

using diag::Code;
using support::quoted;

namespace {

// An option of another system, in small letters, and the clause that says the same. `{}` in the
// clause is the value that was written, or `usual`.
struct Option {
  std::string_view names;  // each between spaces
  std::string_view clause;
  std::string_view usual = "";
  std::string_view more = "";  // behind the clause in the help
};
constexpr Option kOptions[] = {
    {" causal is_causal ", "mask q_idx >= kv_idx;"},
    {" window window_size sliding_window window_left left_window local_window_size ",
     "mask 0 <= q_idx - kv_idx < {};", "128", ", or `mask window({});` with `masks.attn`"},
    {" softcap soft_cap logit_softcap logits_soft_cap tanh_softcap ",
     "score {0} * tanh(score / {0});", "50", ", or `score softcap({});` with `scores.attn`"},
    {" alibi use_alibi ", "score alibi();", "", " with `scores.attn`"},
    {" softmax_scale sm_scale qk_scale scaling attn_scale scale_factor ", "scale {};", "0.125"},
    {" heads num_heads n_heads nheads num_q_heads q_heads ", "dims Hq = {};", "32",
     "; `Hkv` are the heads of k and v"},
    {" kv_heads num_kv_heads n_kv_heads ", "dims Hkv = {};", "8"},
    {" batch batch_size ", "dims B = {};", "4"},
    {" seq seqlen seq_len seq_length sequence_length max_seq_len ", "dims Sq = {};", "4096"},
    {" head_dim head_size ", "dims D = {};", "128"},
    {" dropout_p attn_dropout p_dropout ", "dropout {};", "0.1"},
    {" type datatype data_type precision ", "dtype {};", "bf16"},
    {" out returns return_lse ", "outputs {};", "o, lse"},
    {" gradient gradients requires_grad ", "grad {};", "q, k, v"},
    {" input inputs buffer ", "tensor {};", "bias: f32[Hq]"},
    {" const constant var auto ", "let {};", "window = 128"},
    {" seqlens seq_lens kv_lens lengths_kv context_lens cache_seqlens seqused_k ", "lengths kv;"},
    {" seqlens_q q_lens lengths_q seqused_q ", "lengths q;"},
    {" cu_seqlens cu_seqlens_q cu_seqlens_k cu_seqlens_kv varlen packed ", "layout thd;"},
    {" page_size paged block_table page_table ", "layout paged(page = {});", "64"},
    {" sigmoid sigmoid_attention ", "normalize sigmoid;"},
    {" fp8 use_fp8 ", "quantize per_tensor;", "", " with `dtype e4m3;`"},
    {" bias attn_bias attn_mask attention_mask ", "tensor bias: f32[Hq, Sq, Skv];", "",
     " and `score score + bias[h, q_idx, kv_idx];`"},
};

// Options that have no counterpart, and why.
struct Needless {
  std::string_view names;
  std::string_view why;
};
constexpr std::string_view kTuning =
    "delete it: attnc finds blocks from the mask, and chooses tiles and stages itself";
constexpr Needless kNeedless[] = {
    {" block block_size block_m block_n block_q block_k block_kv block_d block_mask "
     "sparse_block_size ",
     kTuning},
    {" tile tiles tile_size tile_m tile_n tile_q tile_k tile_kv ", kTuning},
    {" warps num_warps stages num_stages threads num_threads splits num_splits split_kv unroll "
     "kernel_options pipeline_stages ",
     kTuning},
    {" softmax ", "delete it: softmax follows the last `score` clause by itself"},
    {" gqa enable_gqa mqa ", "delete it: `dims Hq = 32, Hkv = 8;` makes groups of heads"},
    {" target gpu arch device ", "delete it: the GPU is an option of `attnc compile`, `--target`"},
};

template <typename Row>
const Row* find_row(std::span<const Row> rows, std::string_view word) {
  std::string name = fmt::format(" {} ", word);
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto found = std::ranges::find_if(
      rows, [&](const Row& row) { return row.names.find(name) != std::string_view::npos; });
  return found == rows.end() ? nullptr : &*found;
}

// What is written between the word and the `;`, if it is short, and one value unless `any`.
std::string value_of(const ast::Clause& clause, const diag::Sink& sink, bool any) {
  constexpr std::size_t kLongest = 60;
  if (sink.source().is_json()) return "";
  std::string_view text = sink.source().text().substr(clause.keyword.span.end,
                                                      clause.span.end - clause.keyword.span.end);
  if (text.ends_with(';')) text.remove_suffix(1);
  const auto trim = [&text](std::string_view all) {
    text.remove_prefix(std::min(text.find_first_not_of(all), text.size()));
    text = text.substr(0, text.find_last_not_of(" \t") + 1);
  };
  trim(" \t=:");
  const bool is_short = text.size() <= kLongest && text.find_first_of("\n{}\"") == text.npos;
  const bool is_one = text.find_first_of(",:= ") == text.npos && text != "true" && text != "True";
  return is_short && (any || is_one) ? std::string(text) : "";
}

bool is_off(std::string_view value) { return value == "false" || value == "False" || value == "0"; }

void replace(const ast::Clause& clause, std::string_view title, std::string text,
             diag::Diagnostic& diagnostic) {
  diagnostic.fixes.push_back({std::string(title), {{clause.span, std::move(text)}}});
}

// Help for an option of another system; false if the word is none.
bool explain_option(const ast::Clause& clause, const diag::Sink& sink,
                    diag::Diagnostic& diagnostic) {
  const bool is_dsl = !sink.source().is_json();
  const std::string_view word = clause.keyword.text;
  const auto* needless = find_row<Needless>(kNeedless, word);
  const auto* option = find_row<Option>(kOptions, word);
  if (needless == nullptr && option == nullptr) return false;
  const bool is_list =
      option != nullptr && option->usual.find_first_of(",:=") != std::string_view::npos;
  const std::string value = value_of(clause, sink, is_list);
  const bool has_value = option != nullptr && option->clause.find('{') != std::string_view::npos;
  if (needless != nullptr || (is_off(value) && !has_value)) {
    diagnostic.help = needless != nullptr ? std::string(needless->why)
                                          : "delete it: it is off unless a clause asks for it";
    if (is_dsl) replace(clause, "delete the clause", "", diagnostic);
    return true;
  }
  const std::string_view filled = value.empty() ? option->usual : value;
  const std::string instead = fmt::format(fmt::runtime(option->clause), filled);
  diagnostic.help = ast::hint_for(
      sink.source(),
      fmt::format("write `{}`{}", instead, fmt::format(fmt::runtime(option->more), filled)));
  const bool is_whole = option->more.find(" with ") != 0 && option->more.find(" and ") != 0;
  if (is_dsl && is_whole && (!has_value || !value.empty())) {
    replace(clause, fmt::format("write `{}`", instead), instead, diagnostic);
  }
  return true;
}

}  // namespace

void report_other_clause(const ast::Clause& clause, diag::Sink& sink) {
  const std::string& word = clause.keyword.text;
  if (word == "import") {
    sink.report(Code::unknown_clause, clause.keyword.span, "an import goes above the attention")
        .help = "move it to the top of the file";
    return;
  }
  if (const std::string_view help = ast::foreign_help(word); !help.empty()) {
    sink.report(Code::unknown_clause, clause.keyword.span,
                fmt::format("unknown clause {}", quoted(word)))
        .help = help;
    return;
  }
  auto& diagnostic = sink.report(Code::unknown_clause, clause.keyword.span,
                                 fmt::format("unknown clause {}", quoted(word)));
  if (word == "score_mod" || word == "mask_mod") {
    did_you_mean(word == "score_mod" ? "score" : "mask").put(diagnostic, clause.keyword.span);
    return;
  }
  if (explain_option(clause, sink, diagnostic)) return;
  did_you_mean(support::nearest(word, built_clauses())).put(diagnostic, clause.keyword.span);
  if (diagnostic.help.empty()) diagnostic.help = "expected " + support::one_of(built_clauses());
}

bool has_only_known_clauses(const ast::Spec& spec, diag::Sink& sink) {
  bool known = true;
  for (const auto* clauses : {&spec.preamble, &spec.clauses}) {
    for (const ast::Clause& clause : *clauses) {
      if (!std::holds_alternative<ast::OtherClause>(clause.body)) continue;
      report_other_clause(clause, sink);
      known = false;
    }
  }
  return known;
}

}  // namespace attn::sema
