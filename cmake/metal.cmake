# Metal kernels: every .metal file, with its headers put in place, goes into the library as text, on every system. The system's compiler
# sees it at run time; no Apple tool is needed to build. build/metal/ holds the texts, for the emulator and for `xcrun metal`.
file(GLOB_RECURSE METAL_SOURCES CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/src src/*.metal)
file(GLOB_RECURSE METAL_HEADERS CONFIGURE_DEPENDS src/ops/*.h src/ops/*.metalh src/gemm/*.h src/gemm/*.metalh src/device/pages.h src/device/metal/*.metalh src/quant/*.h src/base/lang.h src/device/step.h src/device/metal/msl.h)
set(METAL_TEXTS "")
foreach(source ${METAL_SOURCES})
  get_filename_component(name ${source} NAME)
  set(text ${CMAKE_BINARY_DIR}/metal/${name})
  add_custom_command(OUTPUT ${text}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/metal
    COMMAND ${CMAKE_SOURCE_DIR}/tools/msl_flatten ${CMAKE_SOURCE_DIR}/src ${source} > ${text}
    DEPENDS ${CMAKE_SOURCE_DIR}/src/${source} ${METAL_HEADERS} ${CMAKE_SOURCE_DIR}/tools/msl_flatten COMMENT "flatten ${name}" VERBATIM)
  list(APPEND METAL_TEXTS ${text})
endforeach()
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/metal_sources.c
  COMMAND ${CMAKE_SOURCE_DIR}/tools/msl_embed ${METAL_TEXTS} > ${CMAKE_BINARY_DIR}/metal_sources.c
  DEPENDS ${METAL_TEXTS} ${CMAKE_SOURCE_DIR}/tools/msl_embed COMMENT "embed .metal" VERBATIM)
list(APPEND LIBRARY_SOURCES ${CMAKE_BINARY_DIR}/metal_sources.c)
