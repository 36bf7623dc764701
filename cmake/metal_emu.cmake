# The emulated Objective-C runtime and Metal (docs/metal.md), for tests on Linux: one shared library, and every kernel compiled for it
# beforehand, exact and under the checker. Without a clang of 16 or later the tests of Metal are left out.
set(INGOT_METAL_KERNELS "" CACHE PATH "folder of kernels for the emulator that another build of the same sources made (BUILD/metal); empty: compile them")
set(METAL_EMU OFF)
set(METAL_REAL ${APPLE})
if(BUILD_TESTING AND NOT METAL_REAL AND CMAKE_SYSTEM_NAME STREQUAL Linux AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT INGOT_TSAN AND NOT INGOT_VALGRIND
   AND NOT INGOT_FUZZ)
  find_program(MSL_CLANG NAMES clang++-19 clang++-20 clang++-21 clang++-18 clang++-17 clang++-16)
  find_program(PYTHON python3)
  if(MSL_CLANG AND PYTHON)
    set(METAL_EMU ON)
  else()
    message(STATUS "Metal emulator: needs clang++ 16 or later and python3; its tests are left out (make test-metal installs them)")
  endif()
endif()
if(METAL_EMU)
  set(METAL_DIR ${CMAKE_SOURCE_DIR}/tests/metal)
  set(MSLC ${METAL_DIR}/tool/mslc)
  set(METAL_KERNELS ${CMAKE_BINARY_DIR}/metal)
  if(INGOT_METAL_KERNELS)
    set(METAL_KERNELS ${INGOT_METAL_KERNELS})
  endif()
  set(METAL_CACHE ${METAL_KERNELS}/cache)
  file(GLOB METAL_EMU_SOURCES CONFIGURE_DEPENDS ${METAL_DIR}/run/*.c ${METAL_DIR}/emu/*.c)
  add_library(metal_emu SHARED ${METAL_EMU_SOURCES})
  target_compile_definitions(metal_emu PRIVATE _GNU_SOURCE METAL_EMU_CACHE="${METAL_CACHE}" METAL_EMU_MSLC="${MSLC}")
  target_compile_options(metal_emu PRIVATE -O2 -g1 -Wall -Wextra -Wshadow -Wmissing-prototypes $<$<BOOL:${INGOT_WERROR}>:-Werror>)
  target_include_directories(metal_emu INTERFACE ${METAL_DIR}/run ${METAL_DIR}/emu)
  target_link_libraries(metal_emu PRIVATE Threads::Threads ${CMAKE_DL_LIBS})

  set(METAL_MADE "")
  if(NOT INGOT_METAL_KERNELS)
    # What a changed translator or shim has made is worthless.
    file(GLOB METAL_TOOL CONFIGURE_DEPENDS ${METAL_DIR}/tool/mslc ${METAL_DIR}/tool/msl_*.py ${METAL_DIR}/shim/*.hpp ${METAL_DIR}/run/msl_run.h)
    add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/metal/tool.stamp
      COMMAND ${CMAKE_COMMAND} -E rm -rf ${METAL_CACHE} COMMAND ${CMAKE_COMMAND} -E make_directory ${METAL_CACHE}
      COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/metal/tool.stamp DEPENDS ${METAL_TOOL} VERBATIM)
    file(GLOB METAL_TEST_KERNELS CONFIGURE_DEPENDS ${METAL_DIR}/kernels/*.metal)
    foreach(text ${METAL_TEXTS})
      get_filename_component(name ${text} NAME_WE)
      foreach(mode plain fast check)
        set(made ${CMAKE_BINARY_DIR}/metal/${name}.${mode}.stamp)
        add_custom_command(OUTPUT ${made}
          COMMAND ${CMAKE_COMMAND} -E env MSL_CLANG=${MSL_CLANG} ${MSLC} ${text} --cache ${METAL_CACHE} --mode ${mode}
          COMMAND ${CMAKE_COMMAND} -E touch ${made}
          DEPENDS ${text} ${CMAKE_BINARY_DIR}/metal/tool.stamp COMMENT "mslc ${name} ${mode}" VERBATIM)
        list(APPEND METAL_MADE ${made})
      endforeach()
    endforeach()
    foreach(source ${METAL_TEST_KERNELS})
      get_filename_component(name ${source} NAME_WE)
      foreach(mode plain fast check)
        set(made ${CMAKE_BINARY_DIR}/metal/${name}.${mode}.so)
        add_custom_command(OUTPUT ${made}
          COMMAND ${CMAKE_COMMAND} -E env MSL_CLANG=${MSL_CLANG} ${MSLC} ${source} -o ${made} --mode ${mode}
          DEPENDS ${source} ${CMAKE_BINARY_DIR}/metal/tool.stamp COMMENT "mslc ${name} ${mode}" VERBATIM)
        list(APPEND METAL_MADE ${made})
      endforeach()
    endforeach()
  endif()
  add_custom_target(metal_kernels ALL DEPENDS ${METAL_MADE})

  if(NOT INGOT_SANITIZE) # scripts and texts: a sanitizer sees nothing of them
    # Every kernel passes the lint; every seeded mistake does not.
    add_test(NAME metal_lint COMMAND ${METAL_DIR}/tool/mslint ${METAL_TEXTS} ${METAL_DIR}/kernels/good.metal)
    add_test(NAME metal_lint_mistakes COMMAND ${METAL_DIR}/tool/mslint --mistakes ${METAL_DIR}/kernels/mistakes.txt)
    # Selectors, types and numbers of the host are Apple's.
    set(conform ${METAL_DIR}/tool/metal_conform ${METAL_DIR}/facts.tsv ${CMAKE_SOURCE_DIR}/src/device/metal/methods.def
      ${CMAKE_SOURCE_DIR}/src/device/metal/objc.h ${CMAKE_SOURCE_DIR}/src/device/metal ${METAL_DIR}/emu)
    add_test(NAME metal_conform COMMAND ${conform})
    add_test(NAME metal_conform_faults COMMAND ${conform} --faults)
    set_tests_properties(metal_conform metal_conform_faults PROPERTIES LABELS metal)
    set_tests_properties(metal_lint metal_lint_mistakes PROPERTIES LABELS metal TIMEOUT 300 ENVIRONMENT MSL_CLANG=${MSL_CLANG})
  endif()
endif()

# A test of Metal is linked with the emulator, which then stands in for the frameworks (it sets INGOT_METAL, unless that is set). The
# kernels of tests/metal/kernels are METAL_MADE/NAME.MODE.so.
# On a Mac the same tests meet the real thing.
function(metal_test name)
  if(METAL_REAL)
    target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/metal/real_gpu.c)
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/metal/emu)
    target_compile_definitions(${name} PRIVATE METAL_MADE="${CMAKE_BINARY_DIR}/metal")
    return()
  endif()
  target_link_libraries(${name} PRIVATE -Wl,--push-state,--no-as-needed metal_emu -Wl,--pop-state)
  target_compile_definitions(${name} PRIVATE METAL_MADE="${METAL_KERNELS}")
  add_dependencies(${name} metal_kernels)
endfunction()
