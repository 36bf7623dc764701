# The chat page as one file: the style, the scripts and markdown-it (from a package) put into src/server/page/index.html. Included, it
# says how; run as a script (cmake -D PAGE=FOLDER -D LIBRARY=FILE -D OUT=FILE -P page.cmake), it does so.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${PAGE}/index.html page)
  foreach(part page.css store.js markdown.js pictures.js page.js markdown-it)
    set(text "")
    if(NOT part STREQUAL "markdown-it")
      file(READ ${PAGE}/${part} text)
    elseif(LIBRARY)
      file(READ ${LIBRARY} text)
    endif()
    string(TOLOWER "${text}" lower)
    if(lower MATCHES "</?(script|style)") # would end the element that it stands in
      message(FATAL_ERROR "${part} holds a tag of a script or style; it cannot stand inside the page. -DINGOT_MARKDOWN_IT= leaves the library out")
    endif()
    string(REPLACE "@${part}@" "${text}" page "${page}")
  endforeach()
  file(WRITE ${OUT} "${page}")
  return()
endif()

# Where Debian's libjs-markdown-it lies, and where `npm install --global markdown-it` puts it.
find_file(INGOT_MARKDOWN_IT NAMES markdown-it.umd.min.js markdown-it.min.js markdown-it.js
  PATHS /usr/share/javascript/markdown-it /opt/homebrew/lib/node_modules/markdown-it/dist /usr/local/lib/node_modules/markdown-it/dist
        /usr/lib/node_modules/markdown-it/dist
  PATH_SUFFIXES browser NO_DEFAULT_PATH DOC "markdown-it as one script, for the chat page; empty: plain text")
set(PAGE_LIBRARY "")
set(PAGE_MARKDOWN_IT "")
if(INGOT_MARKDOWN_IT)
  set(PAGE_LIBRARY ${INGOT_MARKDOWN_IT})
  set(PAGE_MARKDOWN_IT "of an unknown version")
  file(STRINGS ${INGOT_MARKDOWN_IT} line REGEX "markdown-it [0-9.]+" LIMIT_COUNT 1)
  string(REGEX REPLACE "/dist/.*" "/package.json" package ${INGOT_MARKDOWN_IT})
  if(line MATCHES "markdown-it ([0-9.]+)")
    set(PAGE_MARKDOWN_IT ${CMAKE_MATCH_1})
  elseif(package MATCHES "package.json$" AND EXISTS ${package})
    file(READ ${package} text)
    string(JSON PAGE_MARKDOWN_IT GET "${text}" version)
  endif()
  # Its notice: Debian's of the package, or npm's beside the library.
  string(REGEX REPLACE "/dist/.*" "/LICENSE" PAGE_NOTICE ${INGOT_MARKDOWN_IT})
  if(NOT PAGE_NOTICE MATCHES "LICENSE$")
    set(PAGE_NOTICE /usr/share/doc/libjs-markdown-it/copyright)
  endif()
  message(STATUS "Chat page: markdown-it ${PAGE_MARKDOWN_IT}, ${INGOT_MARKDOWN_IT}")
else()
  message(STATUS "Chat page: no markdown-it; answers are shown as plain text (apt-get install libjs-markdown-it, npm install --global markdown-it)")
endif()
set(PAGE_FOLDER ${CMAKE_SOURCE_DIR}/src/server/page)
set(PAGE_HTML ${CMAKE_BINARY_DIR}/page.html)
file(GLOB PAGE_SOURCES CONFIGURE_DEPENDS ${PAGE_FOLDER}/*)
add_custom_command(OUTPUT ${PAGE_HTML} COMMAND ${CMAKE_COMMAND} -D PAGE=${PAGE_FOLDER} -D LIBRARY=${PAGE_LIBRARY} -D OUT=${PAGE_HTML}
    -P ${CMAKE_CURRENT_LIST_DIR}/page.cmake
  DEPENDS ${PAGE_SOURCES} ${PAGE_LIBRARY} ${CMAKE_CURRENT_LIST_DIR}/page.cmake COMMENT "the chat page" VERBATIM)
set_source_files_properties(src/server/page.c PROPERTIES OBJECT_DEPENDS ${PAGE_HTML}
  COMPILE_DEFINITIONS "INGOT_PAGE=\"${PAGE_HTML}\";INGOT_PAGE_MARKDOWN_IT=\"${PAGE_MARKDOWN_IT}\"")
