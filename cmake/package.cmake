# The Debian package: `make deb`, or cpack in a build folder that is configured for /usr. What it needs is read from the binaries.
if(NOT CMAKE_SYSTEM_NAME STREQUAL Linux)
  return()
endif()
set(CPACK_GENERATOR DEB)
# A package's maintainer is who builds it, named as Debian's tools are told.
set(CPACK_PACKAGE_CONTACT "unknown builder <root@localhost>")
if(DEFINED ENV{DEBFULLNAME} AND DEFINED ENV{DEBEMAIL})
  set(CPACK_PACKAGE_CONTACT "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "inference engine for language models")
set(CPACK_PACKAGE_DESCRIPTION "Runs GGUF and safetensors models on CPUs and NVIDIA GPUs as a command line,
an OpenAI-compatible server and a C library. A small model is part of it.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/packaging/deb/docs.cmake)
set(CPACK_INGOT_NOTICE ${PAGE_NOTICE})
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates) # to pull models by name
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libjansson-dev, libjpeg-dev, libpcre2-dev, libpng-dev, libssl-dev, libutf8proc-dev, libwebp-dev") # to link libingot.a
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/packaging/deb/postinst ${CMAKE_SOURCE_DIR}/packaging/deb/prerm
  ${CMAKE_SOURCE_DIR}/packaging/deb/postrm ${CMAKE_SOURCE_DIR}/packaging/deb/triggers)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
