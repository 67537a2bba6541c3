// The attention specification language. Precedence follows Python (compiler/ast/operators.def lists
// it); every decision is LL(1), and only brackets recurse.
//
// Clauses that are unknown are parsed as loose tokens, so that they get a
// specific diagnostic instead of a syntax error.
grammar AttnSpec;

// Without an attention: a library.
file : item* attention? EOF ;

item : functionClause | importItem ;
importItem : IMPORT STRING ';' ;

attention : ATTENTION name parameters? '{' clause* '}' ;
parameters : '(' (parameter (',' parameter)*)? ')' ;
parameter : name ('=' expr)? ;

clause
  : dimsClause
  | dtypeClause
  | layoutClause
  | tensorClause
  | paramClause
  | letClause
  | scaleClause
  | scoreClause
  | maskClause
  | outputsClause
  | alignClause
  | sinkClause
  | dropoutClause
  | lengthsClause
  | gradClause
  | deterministicClause
  | normalizeClause
  | weightClause
  | epilogueClause
  | quantizeClause
  | shardClause
  | prologueClause
  | branchClause
  | valuesClause
  | gatherClause
  | functionClause
  | otherClause
  ;

dimsClause : DIMS dimEntry (',' dimEntry)* ';' ;
dimEntry : name ('=' (expr | dimSet))? ;
dimSet : '{' expr (',' expr)* '}' ;
// The type of all tensors, and those of keys and values.
dtypeClause : DTYPE name (',' dtypeEntry)* ';' ;
dtypeEntry : name ':' name ;
layoutClause : LAYOUT layoutEntry (',' layoutEntry)* ';' ;
layoutEntry : layoutWord (':' layoutWord)? ;
layoutWord : name ('(' layoutArgument (',' layoutArgument)* ')')? ;
layoutArgument : expr ('=' expr)? ;
// Extents, facts, and the default.
tensorClause
  : (TENSOR | LEARN) name ':' name '[' expr (',' expr)* ']' fact* ('=' fallback)? ';' ;
fact : name ('(' expr (',' expr)* ')')? ;
// An expression of the element's indexes, or all elements: `[3, 0, 7]`, `[[1, 2], [3, 4]]`.
fallback : expr | elements ;
elements : '[' fallback (',' fallback)* ']' ;
paramClause : PARAM name ':' name ';' ;
letClause : LET name '=' expr ';' ;
scaleClause : SCALE expr ';' ;
scoreClause : SCORE expr ';' ;
maskClause : MASK expr ';' ;
outputsClause : OUTPUTS name (',' name)* ';' ;
alignClause : ALIGN name ';' ;
sinkClause : SINK expr ';' ;
dropoutClause : DROPOUT expr (',' expr)? ';' ;
lengthsClause : LENGTHS lengthsEntry (',' lengthsEntry)* ';' ;
lengthsEntry : name ('=' fallback)? ;
gradClause : GRAD name (',' name)* ';' ;
deterministicClause : DETERMINISTIC ';' ;
normalizeClause : NORMALIZE name ';' ;
weightClause : WEIGHT expr ';' ;
epilogueClause : (EPILOGUE | GATE | COMBINE) expr ';' ;
// Begins the clauses of one attention of several.
branchClause : BRANCH name (':' branchInput (',' branchInput)*)? ';' ;
branchInput : name '=' name ;
// What becomes of each row of q or k.
prologueClause : PROLOGUE name ':' expr ';' ;
shardClause : SHARD name ';' ;
// Columns of k that are v.
valuesClause : VALUES name '[' expr RANGE expr ']' ';' ;
// The keys that each row sees, and how many of them.
gatherClause : GATHER name (',' name)? ';' ;
// A way to scale, of `kv` what has a scale, types of tensors, and defaults of scales.
quantizeClause : QUANTIZE name ('(' name ')')? (',' quantizeEntry)* ';' ;
quantizeEntry : name (':' name | '=' fallback) ;
// An expression, or the unchanged body of a Python function.
functionClause
  : FN name '(' (functionParameter (',' functionParameter)*)? ')' ('->' annotation)?
    ('=' expr ';' | '{' binding* RETURN expr ';'? '}') ;
// Annotations are parsed and ignored.
functionParameter : name (':' annotation)? ;
annotation : name ('[' annotation (',' annotation)* ']')? ;
binding : name '=' expr ';'? ;
otherClause : (IMPORT | IDENT) loose* ';' ;
loose : ~(';' | '{' | '}') | '{' loose* '}' ;

expr : andExpr ('||' andExpr)* ;
andExpr : comparison ('&&' comparison)* ;
comparison : bitOr (('<' | '<=' | '>' | '>=' | '==' | '!=') bitOr)* ;
bitOr : bitXor ('|' bitXor)* ;
bitXor : bitAnd ('^' bitAnd)* ;
bitAnd : shift ('&' shift)* ;
shift : sum (('<<' | '>>') sum)* ;
sum : term (('+' | '-') term)* ;
term : power (('*' | '/' | '//' | '%') power)* ;
// -x ** 2 is -(x ** 2); 2 ** -x is fine; a ** b ** c is a ** (b ** c).
power : prefix* operand ('**' prefix* operand)* ;
prefix : '-' | '+' | '!' | '~' ;
operand
  : NUMBER
  | TRUE
  | FALSE
  | FLOAT_INF
  | name (arguments | indexes+)?  // t[i][j] is t[i, j]
  | '(' expr ')'
  ;
arguments : '(' (argument (',' argument)*)? ')' ;
argument : expr bounded? ;
bounded : IN expr RANGE expr ':' expr ;  // any(j in 0..K: ...)
indexes : '[' expr (',' expr)* ']' ;

// Clause keywords are ordinary names elsewhere: `tensor lengths: i32[B];`.
name
  : IDENT | ATTENTION | DIMS | DTYPE | LAYOUT | TENSOR | PARAM | LET | SCALE | SCORE | MASK
  | OUTPUTS | ALIGN | LEARN | SINK | DROPOUT | LENGTHS | GRAD | DETERMINISTIC | NORMALIZE
  | QUANTIZE | SHARD | WEIGHT | PROLOGUE | EPILOGUE | GATE | BRANCH | COMBINE | VALUES | GATHER
  | FN | IMPORT
  ;

ATTENTION : 'attention' ;
DIMS : 'dims' ;
DTYPE : 'dtype' ;
LAYOUT : 'layout' ;
TENSOR : 'tensor' ;
PARAM : 'param' ;
LET : 'let' ;
SCALE : 'scale' ;
SCORE : 'score' ;
MASK : 'mask' ;
OUTPUTS : 'outputs' ;
ALIGN : 'align' ;
LEARN : 'learn' ;
SINK : 'sink' ;
DROPOUT : 'dropout' ;
LENGTHS : 'lengths' ;
GRAD : 'grad' ;
DETERMINISTIC : 'deterministic' ;
NORMALIZE : 'normalize' ;
QUANTIZE : 'quantize' ;
SHARD : 'shard' ;
WEIGHT : 'weight' ;
EPILOGUE : 'epilogue' ;
GATE : 'gate' ;
PROLOGUE : 'prologue' ;
BRANCH : 'branch' ;
COMBINE : 'combine' ;
VALUES : 'values' ;
GATHER : 'gather' ;
FN : 'fn' ;
IMPORT : 'import' ;
RETURN : 'return' ;
IN : 'in' ;
TRUE : 'true' | 'True' ;
FALSE : 'false' | 'False' ;

// Python's spelling of inf.
FLOAT_INF : 'float' [ \t]* '(' [ \t]* ["'] [+-]? ('inf' | 'Inf' | 'infinity') ["'] [ \t]* ')' ;
IDENT : [a-zA-Z_] [a-zA-Z0-9_]* ;
RANGE : '..' ;
// Split into a NUMBER and a RANGE before parsing: `1.` would be a number too.
RANGE_FROM : DIGITS '..' ;
NUMBER
  : DIGITS ('.' DIGITS?)? EXPONENT?
  | '.' DIGITS EXPONENT?
  | '0' [xX] [0-9a-fA-F] ('_'? [0-9a-fA-F])*
  ;
BAD_NUMBER : [0-9] [a-zA-Z0-9_]* ;  // longer than any number that starts here
// A comment at the beginning of a body.
DOCSTRING : '"""' .*? '"""' | '\'\'\'' .*? '\'\'\'' ;
STRING : '"' ~["\r\n]* '"' ;  // of an import
COMMENT : '#' ~[\r\n]* ;  // removed before parsing, and attached to the tree afterwards
SPACE : [ \t\r\n]+ -> skip ;
CONTINUATION : '\\' [ \t]* '\r'? '\n' -> skip ;  // of a line pasted from Python
MODULE : ('torch' | 'math') '.' -> skip ;  // of a function pasted from Python
// Last: one character that no rule above matches.
UNKNOWN : . ;

fragment DIGITS : [0-9] ('_'? [0-9])* ;
fragment EXPONENT : [eE] [+-]? DIGITS ;
