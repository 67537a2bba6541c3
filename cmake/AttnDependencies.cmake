# Third-party libraries. Static ones are preferred, so that a built attnc runs on other machines.
find_package(nlohmann_json 3.11 REQUIRED)
find_package(Threads REQUIRED)
set(CMAKE_FIND_LIBRARY_SUFFIXES_SAVED ${CMAKE_FIND_LIBRARY_SUFFIXES})
set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
find_library(ATTN_FMT_LIBRARY fmt REQUIRED)
find_library(ATTN_XXHASH_LIBRARY xxhash REQUIRED)
find_library(ATTN_ZSTD_LIBRARY zstd REQUIRED)
find_library(ATTN_ANTLR4_LIBRARY antlr4-runtime REQUIRED)
set(CMAKE_FIND_LIBRARY_SUFFIXES ${CMAKE_FIND_LIBRARY_SUFFIXES_SAVED})
find_path(ATTN_ANTLR4_INCLUDE_DIR antlr4-runtime.h PATH_SUFFIXES antlr4-runtime REQUIRED)

# Headers only: CUDA and cuDNN are loaded at run time. The usual prefixes first, then the folder
# into which ./quickstart puts the vendor's Python wheels.
set(ATTN_WHEELS "${PROJECT_SOURCE_DIR}/.deps/wheels" CACHE PATH "Folder of the vendor's wheels")
file(GLOB ATTN_CUDA_PREFIXES /usr/local/cuda /usr/local/cuda-1* /opt/cuda
  ${ATTN_WHEELS}/nvidia/cu13 ${ATTN_WHEELS}/nvidia/cuda_runtime ${ATTN_WHEELS}/nvidia/cudnn)
find_path(ATTN_CUDA_INCLUDE_DIR cuda.h HINTS ENV CUDA_HOME PATHS ${ATTN_CUDA_PREFIXES}
  PATH_SUFFIXES include targets/x86_64-linux/include REQUIRED)
find_path(ATTN_CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ENV CUDNN_HOME PATHS ${ATTN_CUDA_PREFIXES}
  PATH_SUFFIXES include REQUIRED)

foreach(name fmt xxhash zstd antlr4)
  add_library(attn_dep_${name} INTERFACE)
  string(TOUPPER ${name} upper)
  target_link_libraries(attn_dep_${name} INTERFACE ${ATTN_${upper}_LIBRARY})
endforeach()
target_link_libraries(attn_dep_antlr4 INTERFACE Threads::Threads)
target_include_directories(attn_dep_antlr4 SYSTEM INTERFACE ${ATTN_ANTLR4_INCLUDE_DIR})

add_library(attn_dep_cuda_headers INTERFACE)
target_include_directories(attn_dep_cuda_headers SYSTEM INTERFACE ${ATTN_CUDA_INCLUDE_DIR})
target_link_libraries(attn_dep_cuda_headers INTERFACE ${CMAKE_DL_LIBS})
add_library(attn_dep_cudnn_headers INTERFACE)
target_include_directories(attn_dep_cudnn_headers SYSTEM INTERFACE ${ATTN_CUDNN_INCLUDE_DIR})
target_link_libraries(attn_dep_cudnn_headers INTERFACE attn_dep_cuda_headers)

if(ATTN_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
