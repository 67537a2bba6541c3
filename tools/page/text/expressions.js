"use strict";

// Evaluates the conditions of a mask for one score, as compiler/reference does: integers have 32
// bits, or 64 (BigInt), and wrap, and what has no value (an index outside of its tensor, a division by 0) has none
// here either: undefined. So has what needs a tensor that is too large for the page, or a function
// whose last bit is not the same everywhere (exp, tanh, pow and others): those are not in the list.
const wrapped = (x) => BigInt.asIntN(64, x);
const rest = (x, y) => (x % y !== 0n && (x < 0n) !== (y < 0n) ? x % y + y : x % y);
const smaller = (x, y) => (Number.isNaN(x) || x < y ? x : y);
const larger = (x, y) => (Number.isNaN(x) || x > y ? x : y);
const compare = (holds) => (x, y) => (holds(x, y) ? 1 : 0);
const OPERATIONS = {
  add: {integer: (x, y) => (x + y) | 0, real: (x, y) => x + y, wide: (x, y) => wrapped(x + y)},
  sub: {integer: (x, y) => (x - y) | 0, real: (x, y) => x - y, wide: (x, y) => wrapped(x - y)},
  mul: {integer: Math.imul, real: (x, y) => x * y, wide: (x, y) => wrapped(x * y)},
  floordiv: {
    integer: (x, y) => (y === 0 ? undefined : Math.floor(x / y) | 0),
    real: (x, y) => Math.floor(x / y),
    wide: (x, y) => (y === 0n ? undefined : wrapped((x - rest(x, y)) / y)),
  },
  mod: {
    integer: (x, y) => (y === 0 ? undefined : (x - y * Math.floor(x / y)) | 0),
    real: (x, y) => x - y * Math.floor(x / y),
    wide: (x, y) => (y === 0n ? undefined : rest(x, y)),
  },
  min: {integer: smaller, real: smaller, wide: (x, y) => (x < y ? x : y)},
  max: {integer: larger, real: larger, wide: (x, y) => (x > y ? x : y)},
  neg: {integer: (x) => -x | 0, real: (x) => -x, wide: (x) => wrapped(-x)},
  abs: {
    integer: (x) => Math.abs(x) | 0,
    real: Math.abs,
    wide: (x) => wrapped(x < 0n ? -x : x),
  },
  div: (x, y) => x / y,
  floor: Math.floor,
  ceil: Math.ceil,
  sqrt: Math.sqrt,
  rsqrt: (x) => 1 / Math.sqrt(x),
  lt: compare((x, y) => x < y),
  le: compare((x, y) => x <= y),
  gt: compare((x, y) => x > y),
  ge: compare((x, y) => x >= y),
  eq: compare((x, y) => x === y),
  ne: compare((x, y) => x !== y),
  not: (x) => (x === 0 ? 1 : 0),
  bit_and: (x, y) => x & y,
  bit_or: (x, y) => x | y,
  bit_xor: (x, y) => x ^ y,
  bit_not: (x) => ~x,
  shift_left: {
    integer: (x, y) => (y < 0 || y > 31 ? undefined : x << y),
    wide: (x, y) => (y < 0n || y > 63n ? undefined : wrapped(x << y)),
  },
  shift_right: {
    integer: (x, y) => (y < 0 || y > 31 ? undefined : x >> y),
    wide: (x, y) => (y < 0n || y > 63n ? undefined : x >> y),
  },
  widen: BigInt,
  narrow: (x) => Math.min(Math.max(Number(x), -(2 ** 31)), 2 ** 31 - 1),
  to_real: Number,
  to_int: (x) => x,
  truncate: (x) => (Math.trunc(x) >= -(2 ** 31) && Math.trunc(x) < 2 ** 31 ? x | 0 : undefined),
};

const INDEXES = {
  batch: (place) => place.batch,
  head: (place) => place.head,
  row: (place) => place.row,
  column: (place) => place.column,
};

// "0*120,1" -> 120 times 0, then 1: the value of each run, and where it ends. The elements of a
// short text can be more than memory holds.
function parsedRuns(runs, parsed) {
  const values = [];
  const ends = [];
  let end = 0;
  for (const run of runs === "" ? [] : runs.split(",")) {
    const [value, count = 1] = run.split("*");
    values.push(parsed(value));
    ends.push(end += Number(count));
  }
  return {values, ends};
}

// The value of the first run that ends after the element.
function element({values, ends}, at) {
  let first = 0;
  for (let last = ends.length - 1; first < last;) {
    const middle = (first + last) >> 1;
    if (ends[middle] > at) last = middle;
    else first = middle + 1;
  }
  return values[first];
}

class Conditions {
  constructor({nodes, roots, tensors}) {
    this.roots = roots;
    this.values = new Array(nodes.length);
    this.tensors = {};
    for (const [name, tensor] of Object.entries(tensors)) {
      if (tensor === null) continue;
      const parsed = tensor.wide ? BigInt : Number;
      this.tensors[name] = {dims: tensor.dims, ...parsedRuns(tensor.runs, parsed)};
    }
    this.nodes = nodes.map((node) => this.compiled(node));
  }

  // For each condition 1 or 0, or undefined.
  at(place) {
    this.nodes.forEach((node, i) => { this.values[i] = node(place); });
    return this.roots.map((root) => this.values[root]);
  }

  // A function of the place that reads the values of the nodes before it.
  compiled({op, type, of = [], value, name}) {
    const values = this.values;
    const [x, y, z] = of;
    if (value !== undefined) {
      const constant = type === "wide" ? BigInt(value) : Number(value);
      return () => constant;
    }
    if (op in INDEXES) return INDEXES[op];
    if (op === "load") return this.load(of, name);
    if (op === "select") {
      return () => (values[x] === undefined ? undefined : values[x] !== 0 ? values[y] : values[z]);
    }
    if (op === "and" || op === "or") {
      const decides = op === "and" ? 0 : 1;
      return () => {
        if (values[x] === decides || values[y] === decides) return decides;
        return values[x] === undefined ? undefined : values[y];
      };
    }
    const operation = OPERATIONS[op]?.[type] ?? OPERATIONS[op];
    if (typeof operation !== "function") return () => undefined;
    return () => {
      if (of.some((operand) => values[operand] === undefined)) return undefined;
      return operation(values[x], values[y]);
    };
  }

  load(of, name) {
    const tensor = this.tensors[name];
    if (tensor === undefined) return () => undefined;
    return () => {
      let at = 0;
      for (let i = 0; i < of.length; ++i) {
        const index = this.values[of[i]];
        if (index === undefined || index < 0 || index >= tensor.dims[i]) return undefined;
        at = at * tensor.dims[i] + index;
      }
      return element(tensor, at);
    };
  }
}
