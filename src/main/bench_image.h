// bench_image.h - ingot bench --image: what a question about a picture costs, stage by stage.
#pragma once
#include "main/settings.h"

// Runs the rounds and prints a row for each picture. Returns the exit status.
int bench_image(const struct settings *settings);
