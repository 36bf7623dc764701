// page.h - the chat page, embedded in the program.
#pragma once
#include "base/str.h"

struct str page_html(void);
// The page's Content-Security-Policy: only its own scripts and styles run, by their SHA-256, and it connects
// to its own server only. The text lives as long as the program.
const char *page_policy(void);
// The version of markdown-it inside; "": none; then answers are shown as plain text.
const char *page_markdown_it(void);
