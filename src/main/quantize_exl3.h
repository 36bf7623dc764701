// quantize_exl3.h - ingot quantize --exl3: reads a text with the model, then writes it as EXL3.
#pragma once
#include "main/settings.h"

// INPUT and OUTPUT are folders. The text is --file's; without one all columns count alike.
int quantize_exl3(const struct settings *s, const char *input, const char *output);
