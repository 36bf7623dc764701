// pace.h - how many rows of prompts a step may carry beside the rows of running answers.
//
// A prompt of 32k tokens would otherwise stretch every step to that of a full batch, and each stream would stutter for as long as it
// is read. The pace is held by measuring: what a step of answers alone takes, and what a row of a prompt adds. Rows get dearer with
// their position, so both are followed, never computed. A step of less than a millisecond is never held back: nobody sees it, and a small
// model that reads prompts a few rows at a time does so at half its speed. Results do not depend on it: chunks of any size give the same bits.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct pace {
    double stretch;            // a step may take so many times that of the answers alone; 0: without limit
    double answers_ns, row_ns; // 0: not known yet
    uint32_t last_rows;        // of prompts beside answers
    uint32_t n_mixed;          // steps since the answers were measured alone
};

// At most `most`. 0: this step is for measuring.
uint32_t pace_prompt_rows(const struct pace *p, uint32_t n_answers, uint32_t most);
void pace_note(struct pace *p, uint32_t n_answers, uint32_t n_prompt_rows, uint64_t ns); // what a step took
