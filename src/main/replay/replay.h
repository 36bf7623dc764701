// replay.h - ingot verify --replay FILE: the request of a record once more, on the devices and with the
// settings that are given now.
#pragma once
#include "main/settings.h"

// Says whether the answer is the same. If not: where its first token differs, by how much the two tokens'
// logits differ here, and which commands of the step that reads the text so far are beyond their limits, or
// come nearest to them. STATUS_OK: the same answer.
int replay_run(const struct settings *settings);
