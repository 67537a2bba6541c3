// The kernels of libattn itself, compiled for the host: of ranks, append, merge and checks of
// bindings. Included last: it redefines `asm`.
#pragma once

#include "tests/unit/compiler/programs/warps_on_host.h"
#define asm ATTN_ASM_ON_HOST
#include "tests/host/gpu/cuda.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include "attn/ranks.cuh"
#include "operations/append.cuh"
#include "operations/control.cuh"
#include "operations/merge.cuh"
#pragma GCC diagnostic pop
