# Libraries that stand in for NCCL in test_nccl and test_ranks_nccl, each a libnccl.so.2 in a folder of its own: one whose ranks are threads of
# one process; one whose ranks are processes; one that is too old; one without a function.
foreach(which threads apart old short)
  set(source fake_nccl.c)
  if(which STREQUAL "apart")
    set(source fake_nccl_apart.c)
  endif()
  add_library(fake_nccl_${which} SHARED tests/device/nccl/${source})
  target_link_libraries(fake_nccl_${which} PRIVATE ingot_flags)
  set_target_properties(fake_nccl_${which} PROPERTIES OUTPUT_NAME nccl SOVERSION 2 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake_nccl/${which})
endforeach()
target_compile_definitions(fake_nccl_old PRIVATE FAKE_VERSION=2708)
target_compile_definitions(fake_nccl_short PRIVATE FAKE_WITHOUT_SEND)
