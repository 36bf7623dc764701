// profile_energy.h - joules per token of prompts and of answers, and the watts of the machine at rest.
//
// Each is measured over at least two seconds. What is at rest is not subtracted: it stands beside.
#pragma once
#include "model_tools/profile/profile_phases.h"

struct energy_figure { // negative: cannot be read
    double processor, gpus;
};
struct profile_energy {
    bool is_measured;                                  // something could be read
    struct energy_figure rest_watts;                   // of the machine with the model loaded
    struct energy_figure answer_joules, prompt_joules; // a token
};

// folder: of RAPL's counters. Nothing is run where nothing can be read.
bool profile_energy_measure(const struct phases_request *request, const char *folder,
                            struct profile_energy *energy, struct err *err);
