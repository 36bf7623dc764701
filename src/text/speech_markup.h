// speech_markup.h - calls whose arguments are marked up instead of written as JSON.
#pragma once
#include "base/str.h"

// <function=NAME><parameter=KEY>VALUE</parameter>...</function> (Qwen3-Coder, Qwen3.5), or
// NAME <arg_key>KEY</arg_key><arg_value>VALUE</arg_value>... (GLM-4.x). A value that is JSON and no plain text stays JSON, any other
// becomes a string. False: the body is neither; name and arguments may then hold anything.
bool speech_read_markup(struct str body, struct buf *name, struct buf *arguments);
