#include <fmt/format.h>

#include <memory>
#include <span>
#include <utility>

#include "runtime/api/bound.h"
#include "runtime/api/failure.h"
#include "runtime/api/handles.h"
#include "runtime/api/sized.h"

namespace attn::api {
namespace {

Result<execute::Workspace> workspace_of(const attn_bind_options& read) {
  switch (read.workspace) {
    case ATTN_WORKSPACE_OWNED: return execute::Workspace::owned();
    case ATTN_WORKSPACE_CALLER: return execute::Workspace::of(read.workspace_memory);
    case ATTN_WORKSPACE_STREAM_ORDERED: return execute::Workspace::stream_ordered();
    default: break;
  }
  return {ErrorCode::invalid_argument, fmt::format("{} is not an attn_workspace", read.workspace)};
}

Result<execute::Binding> bind(const execute::Executable& executable,
                              const attn_arguments& arguments, const attn_bind_options* options) {
  ATTN_ASSIGN(const attn_bind_options read, read_sized(options));
  ATTN_ASSIGN(const execute::Workspace workspace, workspace_of(read));
  const std::uint64_t kept =
      read.kept_addresses != 0 ? read.kept_addresses : execute::kKeptAddresses;
  ATTN_RETURN_IF_ERROR(check_devices(arguments, executable.device().ordinal()));
  return executable.bind(arguments.arguments, workspace, kept, read.stream,
                         read.schedule == nullptr ? nullptr : &read.schedule->schedule);
}

}  // namespace

ATTN_API attn_status attn_binding_create(const attn_executable* executable,
                                         const attn_arguments* arguments,
                                         const attn_bind_options* options, attn_binding** binding,
                                         attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given({{executable, "the executable"},
                                      {arguments, "the arguments"},
                                      {binding, "the output pointer for the binding"}}));
    ATTN_ASSIGN(execute::Binding bound, bind(executable->executable, *arguments, options));
    *binding = new attn_binding{std::move(bound)};
    return {};
  });
}

ATTN_API void attn_binding_destroy(attn_binding* binding) { delete binding; }

ATTN_API attn_status attn_binding_set_param(attn_binding* binding, const char* name, double value,
                                            attn_error* error) {
  return guarded(error, {{binding, "the binding"}},
                 [&] { return set_param(binding->binding, name, value); });
}

ATTN_API attn_status attn_binding_set_addresses(attn_binding* binding, void* const* addresses,
                                                size_t count, attn_check check, attn_error* error) {
  return guarded(error, {{binding, "the binding"}},
                 [&] { return set_addresses(binding->binding, addresses, count, check); });
}

ATTN_API attn_status attn_binding_set_views(attn_binding* binding, void* const* addresses,
                                            const int64_t* const* strides, size_t count,
                                            attn_check check, attn_error* error) {
  return guarded(error, {{binding, "the binding"}}, [&]() -> Status {
    if (count > 0)
      ATTN_RETURN_IF_ERROR(check_given({{addresses, "addresses"}, {strides, "strides"}}));
    ATTN_ASSIGN(const execute::Check how, check_of(check));
    return binding->binding.set_views(std::span(addresses, count), std::span(strides, count), how);
  });
}

ATTN_API attn_status attn_binding_set_workspace(attn_binding* binding, void* memory,
                                                attn_error* error) {
  return guarded(error, {{binding, "the binding"}},
                 [&] { return binding->binding.set_workspace(memory); });
}

ATTN_API attn_status attn_binding_execute(attn_binding* binding, void* stream, attn_error* error) {
  return guarded(error, {{binding, "the binding"}},
                 [&] { return binding->binding.execute(stream); });
}

ATTN_API attn_status attn_binding_check(attn_binding* binding, void* stream, attn_error* error) {
  return guarded(error, {{binding, "the binding"}}, [&] { return binding->binding.check(stream); });
}

ATTN_API attn_status attn_binding_cuda_graph(attn_binding* binding, void** graph,
                                             attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(
        check_given({{binding, "the binding"}, {graph, "the output pointer for the graph"}}));
    ATTN_ASSIGN(*graph, binding->binding.graph());
    return {};
  });
}

ATTN_API attn_status attn_graph_from_binding(attn_binding** binding, attn_graph** graph,
                                             attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(
        check_given({{binding, "the binding"}, {graph, "the output pointer for the graph"}}));
    ATTN_RETURN_IF_ERROR(check_given({{*binding, "the binding"}}));
    auto holder = std::make_unique<attn_graph>();  // before the binding is taken
    ATTN_ASSIGN(holder->graph, execute::CudaGraph::capture(std::move((*binding)->binding)));
    *graph = holder.release();
    delete std::exchange(*binding, nullptr);
    return {};
  });
}

ATTN_API attn_status attn_graph_capture(attn_binding* binding, attn_graph** graph,
                                        attn_error* error) {
  const std::unique_ptr<attn_binding> taken(binding);
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(
        check_given({{binding, "the binding"}, {graph, "the output pointer for the graph"}}));
    auto holder = std::make_unique<attn_graph>();
    ATTN_ASSIGN(holder->graph, execute::CudaGraph::capture(std::move(taken->binding)));
    *graph = holder.release();
    return {};
  });
}

ATTN_API void attn_graph_destroy(attn_graph* graph) { delete graph; }

ATTN_API attn_status attn_graph_set_param(attn_graph* graph, const char* name, double value,
                                          attn_error* error) {
  return guarded(error, {{graph, "the graph"}},
                 [&] { return set_param(*graph->graph, name, value); });
}

ATTN_API attn_status attn_graph_set_addresses(attn_graph* graph, void* const* addresses,
                                              size_t count, attn_check check, attn_error* error) {
  return guarded(error, {{graph, "the graph"}},
                 [&] { return set_addresses(*graph->graph, addresses, count, check); });
}

ATTN_API attn_status attn_graph_launch(attn_graph* graph, void* stream, attn_error* error) {
  return guarded(error, {{graph, "the graph"}}, [&] { return graph->graph->launch(stream); });
}

}  // namespace attn::api
