# Third-party libraries. Static ones are preferred, so that a built attnc runs on other machines.
find_package(nlohmann_json 3.11 REQUIRED)
find_package(Threads REQUIRED)
if(ATTN_BUILD_COMPILER OR ATTN_BUILD_BENCH)
  find_package(CLI11 2.1 REQUIRED)
endif()
find_path(ATTN_FMT_INCLUDE_DIR fmt/format-inl.h REQUIRED)
find_path(ATTN_DLPACK_INCLUDE_DIR dlpack/dlpack.h REQUIRED)
set(CMAKE_FIND_LIBRARY_SUFFIXES_SAVED ${CMAKE_FIND_LIBRARY_SUFFIXES})
set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
find_library(ATTN_XXHASH_LIBRARY xxhash REQUIRED)
find_library(ATTN_ZSTD_LIBRARY zstd REQUIRED)
if(ATTN_BUILD_COMPILER)
  include(AttnAntlr)
  find_path(ATTN_PNG_INCLUDE_DIR png.h REQUIRED)
  find_library(ATTN_PNG_LIBRARY NAMES png16 png REQUIRED)
  find_library(ATTN_ZLIB_LIBRARY z REQUIRED)
  find_path(ATTN_MUSTACHE_INCLUDE_DIR kainjow/mustache.hpp REQUIRED)
endif()
set(CMAKE_FIND_LIBRARY_SUFFIXES ${CMAKE_FIND_LIBRARY_SUFFIXES_SAVED})

# Headers only: CUDA and cuDNN are loaded at run time. Searches the usual prefixes, then the folder of
# NVIDIA's Python wheels that .ci/setup fills.
option(ATTN_SYSTEM_CUDA "Look for CUDA and cuDNN headers outside the vendor's wheels too" ON)
set(ATTN_WHEELS "${PROJECT_SOURCE_DIR}/.deps/wheels" CACHE PATH "Folder of the vendor's wheels")
set(ATTN_WHEEL_PREFIXES ${ATTN_WHEELS}/nvidia/cu13 ${ATTN_WHEELS}/nvidia/cudnn)
if(ATTN_SYSTEM_CUDA)
  file(GLOB ATTN_CUDA_PREFIXES /usr/local/cuda /usr/local/cuda-1* /opt/cuda)
  list(APPEND ATTN_CUDA_PREFIXES ${ATTN_WHEEL_PREFIXES})
  find_path(ATTN_CUDA_INCLUDE_DIR cuda.h HINTS ENV CUDA_HOME PATHS ${ATTN_CUDA_PREFIXES}
    PATH_SUFFIXES include targets/x86_64-linux/include REQUIRED)
  find_path(ATTN_CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ENV CUDNN_HOME PATHS ${ATTN_CUDA_PREFIXES}
    PATH_SUFFIXES include REQUIRED)
else()
  find_path(ATTN_CUDA_INCLUDE_DIR cuda.h PATHS ${ATTN_WHEEL_PREFIXES} PATH_SUFFIXES include
    REQUIRED NO_DEFAULT_PATH)
  find_path(ATTN_CUDNN_INCLUDE_DIR cudnn_graph.h PATHS ${ATTN_WHEEL_PREFIXES}
    PATH_SUFFIXES include REQUIRED NO_DEFAULT_PATH)
endif()

add_library(attn_dep_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt.cpp)
foreach(name xxhash zstd)
  add_library(attn_dep_${name} INTERFACE)
  string(TOUPPER ${name} upper)
  target_link_libraries(attn_dep_${name} INTERFACE ${ATTN_${upper}_LIBRARY})
endforeach()

if(ATTN_BUILD_COMPILER)
  add_library(attn_dep_png INTERFACE)
  target_include_directories(attn_dep_png SYSTEM INTERFACE ${ATTN_PNG_INCLUDE_DIR})
  target_link_libraries(attn_dep_png INTERFACE ${ATTN_PNG_LIBRARY} ${ATTN_ZLIB_LIBRARY} m)
  add_library(attn_dep_mustache INTERFACE)
  target_include_directories(attn_dep_mustache SYSTEM INTERFACE ${ATTN_MUSTACHE_INCLUDE_DIR})
endif()

add_library(attn_dep_cuda_headers INTERFACE)
target_include_directories(attn_dep_cuda_headers SYSTEM INTERFACE ${ATTN_CUDA_INCLUDE_DIR})
target_link_libraries(attn_dep_cuda_headers INTERFACE ${CMAKE_DL_LIBS})
add_library(attn_dep_cudnn_headers INTERFACE)
target_include_directories(attn_dep_cudnn_headers SYSTEM INTERFACE ${ATTN_CUDNN_INCLUDE_DIR})
target_link_libraries(attn_dep_cudnn_headers INTERFACE attn_dep_cuda_headers)

# Optional: ccache speeds up rebuilds. Without the setting it skips sources that include a precompiled header.
find_program(ATTN_CCACHE ccache)
if(ATTN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${ATTN_CCACHE})
endif()

# The oracle and the command-line tests need a Python with numpy, which is not always the first one on
# the path.
function(attn_find_python)
  foreach(candidate $ENV{PYTHON} python3 /usr/bin/python3)
    execute_process(COMMAND ${candidate} -c "import numpy, sys; print(sys.executable)"
      RESULT_VARIABLE failed OUTPUT_VARIABLE path ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT failed)
      set(ATTN_PYTHON ${path} CACHE FILEPATH "A Python with numpy")
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "the tests need Python 3 with numpy (Debian and Ubuntu: python3-numpy)")
endfunction()

if(ATTN_BUILD_TESTS)
  find_package(GTest REQUIRED)
  if(NOT ATTN_PYTHON)
    attn_find_python()
  endif()
endif()
