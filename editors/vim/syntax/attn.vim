" Attention specifications of attnc
if exists('b:current_syntax')
  finish
endif

syntax case match

" Clause words are keywords only at the start of a statement.
syntax keyword attnClause attention fn import dims dtype layout tensor learn param let scale score
syntax keyword attnClause mask sink dropout lengths align outputs grad deterministic normalize quantize
syntax keyword attnClause return in monotone runs
syntax keyword attnConstant true false True False inf

syntax keyword attnFunction abs all any atan2 band bnot bor bxor ceil clamp cos erf exp exp2 expm1
syntax keyword attnFunction float floor gelu int isnan log log1p log2 max maximum min minimum pow
syntax keyword attnFunction relu rsqrt shl shr sigmoid silu sin softplus sqrt sum tan tanh where

syntax keyword attnBound b h q_idx kv_idx q_raw
syntax keyword attnDimension B Hq Hkv Sq Skv D Dqk Dv
syntax keyword attnType f16 bf16 f32 f64 i8 u8 i32 i64 bool e4m3 e5m2

syntax match attnInput "\<\(lengths_q\|lengths_kv\|i\d\+\)\>"
syntax match attnNumber "\<0[xX][0-9a-fA-F_]\+\>"
syntax match attnNumber "\<\d[0-9_]*\(\.\.\@!\d*\)\?\([eE][+-]\?\d\+\)\?"
syntax match attnNumber "\.\d[0-9_]*\([eE][+-]\?\d\+\)\?"
syntax region attnString start=+"+ end=+"+ oneline
syntax match attnComment "#.*$" contains=@Spell

highlight default link attnClause Statement
highlight default link attnConstant Constant
highlight default link attnFunction Function
highlight default link attnBound Identifier
highlight default link attnInput Identifier
highlight default link attnDimension Special
highlight default link attnType Type
highlight default link attnNumber Number
highlight default link attnString String
highlight default link attnComment Comment

let b:current_syntax = 'attn'
