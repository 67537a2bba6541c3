# The runtime with attn.h as its only interface: attn::attn (libattn.so) and attn::attn_static
# (libattn.a).
set(ATTN_API_FOLDER ${PROJECT_SOURCE_DIR}/runtime/api)
set(ATTN_API_HEADERS attn.h attn.hpp attn_distributed.hpp)  # what users include; the parts are in attn/
list(TRANSFORM ATTN_API_HEADERS PREPEND ${ATTN_API_FOLDER}/)
set(ATTN_NO_WHEELS ${PROJECT_SOURCE_DIR}/runtime/base/wheels.cpp)

file(STRINGS ${ATTN_API_FOLDER}/attn/version.h ATTN_API_VERSION REGEX "^#define ATTN_API_VERSION ")
string(REGEX REPLACE "[^0-9]" "" ATTN_API_VERSION "${ATTN_API_VERSION}")
file(STRINGS ${ATTN_API_FOLDER}/symbols.txt ATTN_SYMBOLS)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${ATTN_API_FOLDER}/attn/version.h ${ATTN_API_FOLDER}/symbols.txt)
string(REPLACE ";" "; " ATTN_SYMBOLS "${ATTN_SYMBOLS}")
set(ATTN_MAP ${PROJECT_BINARY_DIR}/package/attn.map)
configure_file(${CMAKE_CURRENT_LIST_DIR}/attn.map.in ${ATTN_MAP} @ONLY)

# attn_installed(TARGET): an installed target does not search the wheels (runtime/base/wheels.h).
function(attn_installed target)
  target_sources(${target} PRIVATE ${ATTN_NO_WHEELS})
  target_compile_definitions(${target} PRIVATE ATTN_WHEELS_FOLDER="")
  target_compile_features(${target} PRIVATE cxx_std_20)
endfunction()

# attn_api_library(TARGET KIND)
function(attn_api_library target kind)
  add_library(${target} ${kind} $<TARGET_OBJECTS:attn_api>)
  attn_installed(${target})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}
    INTERFACE $<BUILD_INTERFACE:${ATTN_API_FOLDER}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME attn
    ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
endfunction()

include(GNUInstallDirs)
attn_api_library(attn_shared SHARED)
target_link_libraries(attn_shared PRIVATE attn_distributed attn_picker attn_operations attn_targets)
target_link_options(attn_shared PRIVATE LINKER:--version-script=${ATTN_MAP})
attn_for_older_systems(attn_shared)
if(NOT ATTN_SANITIZE)
  target_link_options(attn_shared PRIVATE LINKER:--no-undefined)
endif()
set_target_properties(attn_shared PROPERTIES
  EXPORT_NAME attn
  SOVERSION ${ATTN_API_VERSION}
  LINK_DEPENDS ${ATTN_MAP})

# All runtime libraries in one archive, except third-party ones.
attn_api_library(attn_static STATIC)
foreach(room base io graph plan cuda operations cudnn cache process targets execute ranks distributed picker)
  target_sources(attn_static PRIVATE $<TARGET_OBJECTS:attn_${room}>)
endforeach()
target_sources(attn_static PRIVATE $<TARGET_OBJECTS:attn_dep_fmt>)
# The C++ library is named because C programs are linked by the C compiler.
set(ATTN_STATIC_NEEDS stdc++ m xxhash zstd pthread ${CMAKE_DL_LIBS})
target_link_libraries(attn_static INTERFACE ${ATTN_STATIC_NEEDS})

add_library(attn::attn ALIAS attn_shared)
add_library(attn::attn_static ALIAS attn_static)
