" Attention specifications of attnc
if exists('b:current_syntax')
  finish
endif

syntax case match

" A clause's word is a keyword where a statement begins, and a name elsewhere.
syntax region attnStatement matchgroup=attnClause
  \ start="\<\%(dims\|dtype\|layout\|tensor\|learn\|param\|let\|scale\|score\|mask\|sink\|dropout\)\>"
  \ start="\<\%(lengths\|align\|outputs\|grad\|deterministic\|normalize\|quantize\|shard\|weight\|prologue\|epilogue\|gate\|branch\|combine\|values\|gather\|import\)\>"
  \ matchgroup=NONE end=";" end="}"me=s-1 contains=@attnExpression,attnSet
syntax region attnSet start="{" end="}" contained contains=@attnExpression
syntax region attnHeader matchgroup=attnClause start="\<attention\>" matchgroup=NONE end="{"me=s-1
  \ contains=@attnExpression
syntax region attnFunctionOfSpec matchgroup=attnClause start="\<fn\>" matchgroup=NONE end=";" end="}"
  \ contains=@attnExpression,attnBody
syntax region attnBody start="{" end="}"me=s-1 contained
  \ contains=@attnExpression,attnReturn,attnDocstring
syntax region attnString contained start=+"+ end=+"+ oneline
syntax region attnDocstring start=+"""+ end=+"""+ contained
syntax region attnDocstring start=+'''+ end=+'''+ contained
syntax cluster attnExpression contains=attnIn,attnFact,attnConstant,attnFunction,attnBound,attnDimension,
  \attnType,attnInput,attnNumber,attnString,attnComment

syntax keyword attnReturn contained return
syntax keyword attnIn contained in
syntax keyword attnFact contained monotone runs
syntax keyword attnConstant contained true false True False inf

syntax keyword attnFunction contained abs all any atan2 band bnot bor bxor ceil clamp cos cumsum erf
syntax keyword attnFunction contained exp exp2 expm1 float floor gelu int isnan log log1p log2 long
syntax keyword attnFunction contained max maximum min minimum pow relu rsqrt shl shr sigmoid silu
syntax keyword attnFunction contained sin softplus sqrt sum tan tanh where
syntax keyword attnBound contained score b h q_idx kv_idx q_raw o d_idx
syntax keyword attnDimension contained B Hq Hkv Sq Skv D Dqk Dv
syntax keyword attnType contained f16 bf16 f32 f64 i8 u8 i32 i64 bool e4m3 e5m2

syntax match attnInput contained "\<\(lengths_q\|lengths_kv\|i\d\+\)\>"
syntax match attnNumber contained "\<0[xX][0-9a-fA-F_]\+\>"
syntax match attnNumber contained "\<\d[0-9_]*\(\.\.\@!\d*\)\?\([eE][+-]\?\d\+\)\?"
syntax match attnNumber contained "\.\d[0-9_]*\([eE][+-]\?\d\+\)\?"
syntax match attnComment "#.*$" contains=@Spell

highlight default link attnClause Statement
highlight default link attnReturn Statement
highlight default link attnIn Statement
highlight default link attnFact StorageClass
highlight default link attnDocstring Comment
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
