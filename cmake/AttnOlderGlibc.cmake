# The wheel runs on older systems than the one that builds it: with ATTN_OLDER_ROOT, a folder with the glibc of such
# a system and the files to link with it (.ci/wheel makes one), its programs and libraries are linked with that, and
# have libstdc++ inside. What that glibc lacks is in older_glibc.cpp, else the link fails.
set(ATTN_OLDER_ROOT "" CACHE PATH "Folder with the glibc of an older system, which the wheel's files are linked with")

# attn_for_older_systems(TARGET)
function(attn_for_older_systems target)
  if(NOT ATTN_OLDER_ROOT)
    return()
  endif()
  set(libraries ${ATTN_OLDER_ROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
  set(shared_libraries ${ATTN_OLDER_ROOT}/lib/${CMAKE_LIBRARY_ARCHITECTURE})
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/older_glibc.cpp)
  target_link_options(${target} PRIVATE
    --sysroot=${ATTN_OLDER_ROOT} -B${libraries} -L${libraries} -L${shared_libraries}
    -static-libstdc++ LINKER:--exclude-libs,libstdc++.a)
  target_link_libraries(${target} PRIVATE pthread dl m)
endfunction()
