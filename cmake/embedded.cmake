# Files inside the library that are no code for this processor: models and CUDA kernels, 51 MB. Each program has its own; the tests share
# a library of them, which comes before `ingot`, so that nothing is taken from there. 190 tests of 60 MB were 11 GB to write.
set(EMBEDDED)
if(INGOT_MODEL AND EXISTS ${INGOT_MODEL})
  list(APPEND EMBEDDED "INGOT_EMBED=\"${INGOT_MODEL}\"")
endif()
if(INGOT_EYES AND EXISTS ${INGOT_EYES} AND EXISTS ${INGOT_EYES_MMPROJ})
  list(APPEND EMBEDDED "INGOT_EMBED_EYES=\"${INGOT_EYES}\"" "INGOT_EMBED_MMPROJ=\"${INGOT_EYES_MMPROJ}\"")
endif()
set_source_files_properties(src/engine/embedded_models.c PROPERTIES COMPILE_DEFINITIONS "${EMBEDDED}"
  OBJECT_DEPENDS "${INGOT_MODEL};${INGOT_EYES};${INGOT_EYES_MMPROJ}")
if(NOT BUILD_TESTING OR APPLE)
  function(embedded_shared name)
  endfunction()
  return()
endif()

add_library(ingot_embedded SHARED EXCLUDE_FROM_ALL src/engine/embedded_models.c ${CMAKE_BINARY_DIR}/cuda_images.c)
target_link_libraries(ingot_embedded PRIVATE ingot_flags)
function(embedded_shared name)
  target_link_libraries(${name} PRIVATE -Wl,--push-state,--no-as-needed ingot_embedded -Wl,--pop-state)
  set_target_properties(${name} PROPERTIES BUILD_RPATH_USE_ORIGIN ON) # a test is carried to a GPU together with the library
endfunction()
