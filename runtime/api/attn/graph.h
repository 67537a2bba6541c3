/* Graph: an execute as a CUDA graph. Part of attn.h. */
#pragma once

#include <stddef.h>

#include "binding.h"

typedef struct attn_graph attn_graph;

/* Takes ownership of `*binding` and sets it to NULL. On error the caller keeps the binding,
 * unchanged. Errors: cuda, cudnn. */
ATTN_API attn_status attn_graph_from_binding(attn_binding** binding, attn_graph** graph,
                                             attn_error* error);
/* The same, but takes ownership of `binding` even on error: it must not be used or destroyed
 * afterwards. */
ATTN_API attn_status attn_graph_capture(attn_binding* binding, attn_graph** graph,
                                        attn_error* error);
/* Destroys the graph and the binding in it. */
ATTN_API void attn_graph_destroy(attn_graph* graph);
/* As for a binding. The next launch updates the graph. */
ATTN_API attn_status attn_graph_set_param(attn_graph* graph, const char* name, double value,
                                          attn_error* error);
/* As attn_binding_set_addresses. The next launch updates the graph. */
ATTN_API attn_status attn_graph_set_addresses(attn_graph* graph, void* const* addresses,
                                              size_t count, attn_check check, attn_error* error);
/* Enqueues the execute on `stream` and returns without waiting. Errors: cuda, cudnn. */
ATTN_API attn_status attn_graph_launch(attn_graph* graph, void* stream, attn_error* error);
