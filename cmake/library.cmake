# The library as others link it, static and shared: all objects in one, which exports what ingot.h marks INGOT_API and nothing else. So a
# program may have its own file_read. The sources are compiled with hidden visibility; linking the objects into one (ld -r) makes their
# calls of each other final, and then the hidden symbols become local: on ELF by objcopy, on a Mac by ld itself (not yet run there).
# A build with a sanitizer has neither: nobody installs it.
if(INGOT_SANITIZE OR INGOT_TSAN OR INGOT_FUZZ)
  return()
endif()
set(PRELINKED ${CMAKE_BINARY_DIR}/ingot_prelinked.o)
if(APPLE)
  set(LOCALIZE "")
else()
  set(LOCALIZE COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${PRELINKED})
endif()
add_custom_command(OUTPUT ${PRELINKED}
  COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${PRELINKED} $<TARGET_OBJECTS:ingot> ${LOCALIZE}
  DEPENDS $<TARGET_OBJECTS:ingot> COMMAND_EXPAND_LISTS VERBATIM COMMENT "link all objects into one")
set_source_files_properties(${PRELINKED} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)

foreach(kind static shared)
  string(TOUPPER ${kind} KIND)
  add_library(ingot_${kind} ${KIND} ${PRELINKED})
  set_target_properties(ingot_${kind} PROPERTIES OUTPUT_NAME ingot LINKER_LANGUAGE C)
  target_include_directories(ingot_${kind} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
target_link_libraries(ingot_static INTERFACE ${INGOT_NEEDS})
target_link_libraries(ingot_shared PRIVATE ${INGOT_NEEDS})
file(STRINGS include/ingot.h ABI REGEX "^#define INGOT_ABI")
string(REGEX MATCH "[0-9]+" ABI "${ABI}")
set_target_properties(ingot_shared PROPERTIES EXPORT_NAME ingot VERSION ${PROJECT_VERSION} SOVERSION ${ABI})
