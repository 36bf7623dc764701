# The plug-in that carries one model over several hosts (docs/devices.md), where mpicc is. A library of its own, which ingot opens when
# mpirun has started it: ingot itself is built without MPI.
option(INGOT_MPI "build the plug-in for MPI where mpicc is" ON)
find_program(MPICC mpicc)
set_source_files_properties(src/engine/ranks/plugin.c PROPERTIES COMPILE_DEFINITIONS "INGOT_PLUGIN_FOLDER=\"${CMAKE_INSTALL_LIBDIR}/ingot\"")
if(NOT INGOT_MPI OR NOT MPICC OR APPLE OR INGOT_FUZZ)
  return()
endif()
set(MPI_PLUGIN ${CMAKE_BINARY_DIR}/libingot_mpi.so)
set(MPI_SOURCES ${CMAKE_SOURCE_DIR}/src/engine/ranks/mpi_plugin.c ${CMAKE_SOURCE_DIR}/src/engine/ranks/mpi_plugin.h)
add_custom_command(OUTPUT ${MPI_PLUGIN} DEPENDS ${MPI_SOURCES} VERBATIM COMMENT "build the plug-in for MPI"
  COMMAND ${MPICC} -std=gnu11 -O2 -Wall -Wextra -fPIC -shared -fvisibility=hidden -I ${CMAKE_SOURCE_DIR}/src -o ${MPI_PLUGIN}
    ${CMAKE_SOURCE_DIR}/src/engine/ranks/mpi_plugin.c)
add_custom_target(ingot_mpi ALL DEPENDS ${MPI_PLUGIN})
