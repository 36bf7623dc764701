// page.h - the chat page, inside the program.
#pragma once
#include "base/str.h"

struct str page_html(void);
// The page's Content-Security-Policy: its own scripts and styles run, by their SHA-256, and nothing else; it
// asks its own server only. It lives as long as the program.
const char *page_policy(void);
// The version of markdown-it inside; "": none, and answers are shown as plain text.
const char *page_markdown_it(void);
