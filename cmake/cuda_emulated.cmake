# CUDA kernels without PTX on an emulated GPU (docs/testing.md), for tests on Linux: one library that runs them, one of the kernels, compiled as
# C++ under its checker. Where the Metal emulator is, since it wants the same compiler; its checker finds what AddressSanitizer would.
set(CUDA_EMULATED OFF)
if(METAL_EMU AND NOT INGOT_SANITIZE)
  set(CUDA_EMULATED ON)
endif()
if(CUDA_EMULATED)
  set(CUDA_EMULATED_DIR ${CMAKE_SOURCE_DIR}/tests/cuda_emulated)
  file(GLOB CUDA_EMULATED_RUN CONFIGURE_DEPENDS ${CUDA_EMULATED_DIR}/run/*.c)
  add_library(cuda_emulated SHARED ${CUDA_EMULATED_RUN})
  target_compile_definitions(cuda_emulated PRIVATE _GNU_SOURCE CUDA_EMULATED_KERNELS="${CMAKE_BINARY_DIR}/cuda_emulated/kernels.so")
  # its threads' variables are reached without a call: it is never loaded later than the program
  target_compile_options(cuda_emulated PRIVATE -O2 -g1 -ftls-model=initial-exec -Wall -Wextra -Wshadow -Wmissing-prototypes $<$<BOOL:${INGOT_WERROR}>:-Werror>)
  target_include_directories(cuda_emulated PRIVATE ${CMAKE_SOURCE_DIR}/src INTERFACE ${CUDA_EMULATED_DIR})
  target_link_libraries(cuda_emulated PRIVATE Threads::Threads ${CMAKE_DL_LIBS})

  # Those of which the tests below have cases; first the three that take clang longest, so that none is compiled alone at the end.
  # More have no PTX: attend_plain, attend_all, patches, scale_add, scatter, shuffle.
  set(CUDA_EMULATED_KERNELS trellis/trellis attend/attend_few trellis_experts/trellis_experts activate/activate angles/angles conv_step/conv_step delta_step/delta_step gated_norm/gated_norm latent/latent_few rmsnorm/rmsnorm rmsnorm_sum/rmsnorm_sum rope_store/rope_store
    rope_store/rope_store_few sample/sample scan/scan scan/scan_blocks select/select temper/temper trellis/trellis_expand trellis_search/trellis_search)
  list(TRANSFORM CUDA_EMULATED_KERNELS REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/src/ops/\\1.cu")
  list(APPEND CUDA_EMULATED_KERNELS ${CMAKE_SOURCE_DIR}/src/device/cuda/exchange.cu ${CMAKE_SOURCE_DIR}/src/gemm/cuda/weight_pack.cu ${CUDA_EMULATED_DIR}/kernels/emulator_cases.cu)
  foreach(name experts/experts_group trellis_experts/trellis_experts_rows)
    list(APPEND CUDA_EMULATED_KERNELS ${CMAKE_SOURCE_DIR}/src/ops/${name}.cu)
  endforeach()
  # Loops stay as they are written: vectors read what lies between a loop's numbers too, at addresses that are multiples of less.
  set(CUDA_EMULATED_FLAGS -std=c++17 -O2 -g1 -march=native -fno-vectorize -fPIC -fno-exceptions -fno-rtti -fno-strict-aliasing -w -fvisibility-inlines-hidden
    -ffp-contract=fast -fsanitize=thread,alignment,bounds,integer-divide-by-zero,shift-exponent -fno-sanitize-link-runtime
    -mllvm -tsan-instrument-atomics=0 -mllvm -tsan-instrument-func-entry-exit=0
    -I${CMAKE_SOURCE_DIR}/src -I${CUDA_EMULATED_DIR}/run -I${CUDA_EMULATED_DIR}/shim)
  set(CUDA_EMULATED_MADE "")
  foreach(source ${CUDA_EMULATED_KERNELS} ${CUDA_EMULATED_DIR}/shim/dynamic.cpp)
    get_filename_component(name ${source} NAME_WE)
    set(made ${CMAKE_BINARY_DIR}/cuda_emulated/${name}.o)
    set(shim -include ${CUDA_EMULATED_DIR}/shim/cuda_emulated.hpp)
    if(source MATCHES "dynamic.cpp")
      set(shim "")
    endif()
    add_custom_command(OUTPUT ${made}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda_emulated
      COMMAND ${MSL_CLANG} ${CUDA_EMULATED_FLAGS} ${shim} -MD -MF ${made}.d -MT ${made} -x c++ -c -o ${made} ${source}
      DEPENDS ${source} DEPFILE ${made}.d COMMENT "clang++ ${name}.cu for the emulator" VERBATIM)
    list(APPEND CUDA_EMULATED_MADE ${made})
  endforeach()
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/cuda_emulated/kernels.so
    COMMAND ${MSL_CLANG} -shared -Wl,-Bsymbolic -Wl,--wrap=__ubsan_handle_type_mismatch_v1 -Wl,--wrap=__ubsan_handle_out_of_bounds -Wl,--wrap=__ubsan_handle_divrem_overflow
      -Wl,--wrap=__ubsan_handle_shift_out_of_bounds -o ${CMAKE_BINARY_DIR}/cuda_emulated/kernels.so ${CUDA_EMULATED_MADE} $<TARGET_FILE:cuda_emulated>
    DEPENDS ${CUDA_EMULATED_MADE} cuda_emulated COMMENT "link the emulator's kernels" VERBATIM)
  add_custom_target(cuda_emulated_kernels ALL DEPENDS ${CMAKE_BINARY_DIR}/cuda_emulated/kernels.so)
endif()

# Comes before the library: its kernels stand in for those of this build.
function(cuda_emulated_test name)
  target_sources(${name} PRIVATE ${CUDA_EMULATED_DIR}/install.c)
  target_link_libraries(${name} PRIVATE cuda_emulated)
  add_dependencies(${name} cuda_emulated_kernels)
endfunction()

# The cases of a GPU's test, of one of its tests.
function(cuda_emulated_cases source pattern)
  get_filename_component(gpu ${source} NAME_WE)
  set(name ${gpu}_emulated)
  if(NOT TARGET ${name})
    add_executable(${name} ${source})
    cuda_emulated_test(${name})
    embedded_shared(${name})
    target_link_libraries(${name} PRIVATE ingot ingot_flags PkgConfig::CMOCKA)
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    target_compile_definitions(${name} PRIVATE SOURCE_DIR="${CMAKE_SOURCE_DIR}" BINARY_DIR="${CMAKE_BINARY_DIR}")
  endif()
  add_test(NAME ${name}_${pattern} COMMAND ${name} ${pattern} ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name}_${pattern} PROPERTIES TIMEOUT ${TEST_SECONDS} FAIL_REGULAR_EXPRESSION "skipped")
endfunction()
