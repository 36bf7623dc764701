// svg.h - how a plot begins: printf's format, which takes its width and height. The colours suit light and
// dark pages.
#pragma once

#define SVG_BEGIN                                                                           \
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' font-family='sans-serif' " \
    "font-size='12'>\n<style>text{fill:#777}.title{font-size:14px;font-weight:bold}"        \
    ".left{text-anchor:end}.below{text-anchor:middle}.grid{stroke:#7775}.spread{stroke:#777}</style>\n"
