// bench_serve.h - ingot bench --serve URL: one row for each number of clients.
#pragma once
#include "main/settings.h"

int bench_serve(const struct settings *settings); // exit status
