# What `make install` puts where. The man page and the completions are written by the program itself, from its option table. A build with
# a sanitizer has no library to install.
if(NOT TARGET ingot_static)
  return()
endif()
foreach(library ${CMAKE_DL_LIBS})
  string(APPEND INGOT_DL "-l${library} ")
endforeach()
# The file finds its prefix from its own place, so that the tree can be moved.
file(RELATIVE_PATH INGOT_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/ingot.pc.in ingot.pc @ONLY)
configure_package_config_file(cmake/ingotConfig.cmake.in ingotConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ingot)
write_basic_package_version_file(ingotConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS ingot_static ingot_shared EXPORT ingotTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT ingotTargets NAMESPACE ingot:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ingot)
install(FILES include/ingot.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/ingot.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/ingotConfig.cmake ${CMAKE_BINARY_DIR}/ingotConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ingot)

if(TARGET ingot_program)
  install(TARGETS ingot_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  set(PAGES ${CMAKE_BINARY_DIR}/pages)
  file(MAKE_DIRECTORY ${PAGES})
  add_custom_command(OUTPUT ${PAGES}/ingot.1 DEPENDS ingot_program VERBATIM
    COMMAND sh -c "\"$1\" man >ingot.1 && \"$1\" completion bash >ingot && \"$1\" completion zsh >_ingot && \"$1\" completion fish >ingot.fish"
      sh $<TARGET_FILE:ingot_program>
    WORKING_DIRECTORY ${PAGES})
  add_custom_target(pages ALL DEPENDS ${PAGES}/ingot.1)
  install(FILES ${PAGES}/ingot.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${PAGES}/ingot DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${PAGES}/_ingot DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${PAGES}/ingot.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
if(TARGET ingot_mpi)
  install(PROGRAMS ${MPI_PLUGIN} DESTINATION ${CMAKE_INSTALL_LIBDIR}/ingot)
endif()
install(FILES LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET ingot_server AND CMAKE_SYSTEM_NAME STREQUAL Linux)
  configure_file(packaging/ingot.service.in ingot.service @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/ingot.service DESTINATION lib/systemd/system)
endif()
