# INGOT_COMMIT: the commit that is built, "+" after it when tracked files were changed. A release tarball has it in the next line, where
# git archive puts it; "unknown" in a copy without either.
set(INGOT_COMMIT "$Format:%h$")
find_program(GIT git)
if(INGOT_COMMIT MATCHES Format)
  set(INGOT_COMMIT unknown)
endif()
if(GIT AND INGOT_COMMIT STREQUAL unknown)
  execute_process(COMMAND ${GIT} -C ${CMAKE_SOURCE_DIR} describe --always --dirty=+ --abbrev=9 OUTPUT_VARIABLE commit
    OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status ERROR_QUIET)
  if(status EQUAL 0)
    set(INGOT_COMMIT ${commit})
    execute_process(COMMAND ${GIT} -C ${CMAKE_SOURCE_DIR} rev-parse --git-path logs/HEAD OUTPUT_VARIABLE head
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    get_filename_component(head "${head}" ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})
    if(EXISTS ${head})
      set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${head})
    endif()
  endif()
endif()
