# Run by cpack on what is about to be packed: /usr/share/doc and the man page as Debian's policy asks for them.
set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share)
set(doc ${share}/doc/ingot)
file(REMOVE ${doc}/LICENSE ${doc}/CHANGELOG.md)
file(READ ${CMAKE_CURRENT_LIST_DIR}/copyright copyright)
foreach(notice ${CPACK_INGOT_NOTICE})
  file(READ ${notice} text)
  string(APPEND copyright "\nThe chat page inside the program holds markdown-it, whose notice is:\n\n${text}")
endforeach()
file(WRITE ${doc}/copyright "${copyright}")
execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/changelog ${CMAKE_CURRENT_LIST_DIR}/../../CHANGELOG.md "${CPACK_PACKAGE_CONTACT}"
  OUTPUT_FILE ${doc}/changelog COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND gzip -9n ${doc}/changelog ${share}/man/man1/ingot.1 COMMAND_ERROR_IS_FATAL ANY)
