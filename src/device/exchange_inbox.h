// exchange_inbox.h - how the ranks that play a tape each exchange on their own devices, inside their tapes.
//
// Every rank has an inbox, memory of its device to which the others' kernels write. A number is its own flag:
// where nothing has arrived the inbox holds minus zero, which nobody sends (plus zero goes in its stead), and
// who takes a number puts minus zero back. So there is no other flag, fence or order of stores. Inbox:
//   sums    [2][sender][sum_words]  of all-reduces, in turn; the step says which is next
//   parts   [sender][part_words]    of the first rank: the others' columns of the logits
//   tokens  [token_words]           of the others: what the first rank has drawn
// A sender is one of the n - 1 other ranks. Two all-reduces' room is enough: who sends the next but one has
// the next one's numbers of every rank, and these have taken what they were sent before. The others have room
// of their own: between two of them lies an all-reduce. All ranks play the same tapes, in the same order.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct buffer;
struct device;
struct err;

enum { EXCHANGE_RANKS = 8 };       // at most, whatever they exchange by
#define EXCHANGE_EMPTY 0x80000000u // minus zero
enum { STEP_EXCHANGED };           // which reserved word of the step: all-reduces of the steps before

struct exchange { // of one rank
    uint32_t rank, n;
    uint32_t most_rows;                 // more rows are added up elsewhere: the all-reduce is a border
    uint64_t inboxes[EXCHANGE_RANKS];   // addresses of all ranks', as this one's device sees them
    const struct buffer *inbox;         // its own
    uint32_t part_cols[EXCHANGE_RANKS]; // columns of the logits that each rank has
    uint64_t sum_words, part_words, token_words; // multiples of 4
    uint64_t error; // address of a u32 that the host sees: 1 + the rank that did not answer; 0: none
};

static inline uint32_t exchange_slot(uint32_t owner, uint32_t sender)
{
    return sender < owner ? sender : sender - 1;
}
// In words from the inbox's begin.
static inline uint64_t exchange_at_sums(const struct exchange *x, uint32_t owner, uint32_t sender)
{
    return exchange_slot(owner, sender) * x->sum_words;
}
static inline uint64_t exchange_turn_words(const struct exchange *x) // from one all-reduce's room to the next
{
    return (x->n - 1) * x->sum_words;
}
static inline uint64_t exchange_at_parts(const struct exchange *x, uint32_t sender)
{
    return 2 * exchange_turn_words(x) + exchange_slot(0, sender) * x->part_words;
}
static inline uint64_t exchange_at_tokens(const struct exchange *x)
{
    return 2 * exchange_turn_words(x);
}
static inline uint64_t exchange_words(const struct exchange *x, uint32_t owner) // of its whole inbox
{
    return 2 * exchange_turn_words(x) + (owner == 0 ? (x->n - 1) * x->part_words : x->token_words);
}
