# The libraries that read pictures. A build without one of them works, and refuses pictures of its format.
#
# PICTURE_NEEDS, PICTURE_DEFINITIONS: for the library. PICTURE_PACKAGES, PICTURE_FINDS: for who links it, in ingot.pc and ingotConfig.cmake.
function(picture_library format) # the packages: with the oldest version that will do
  pkg_check_modules(${format} IMPORTED_TARGET ${ARGN})
  if(NOT ${format}_FOUND)
    message(STATUS "${format} pictures will be refused, for want of ${ARGN}")
    return()
  endif()
  list(TRANSFORM ARGN REPLACE "[<>].*" "" OUTPUT_VARIABLE names)
  list(JOIN names " " names)
  list(JOIN ARGN " " packages)
  set(PICTURE_NEEDS ${PICTURE_NEEDS} PkgConfig::${format} PARENT_SCOPE)
  set(PICTURE_DEFINITIONS ${PICTURE_DEFINITIONS} INGOT_${format} PARENT_SCOPE)
  set(PICTURE_PACKAGES "${PICTURE_PACKAGES} ${names}" PARENT_SCOPE)
  set(PICTURE_FINDS "${PICTURE_FINDS}pkg_check_modules(${format} REQUIRED IMPORTED_TARGET ${packages})\n" PARENT_SCOPE)
endfunction()

picture_library(PNG libpng>=1.6)
picture_library(JPEG libjpeg<9) # 9 is the other library of this name
picture_library(WEBP libwebp libwebpdemux)
