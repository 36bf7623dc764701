// page.h - the chat page, inside the program.
#pragma once
#include "base/str.h"

struct str page_html(void);
