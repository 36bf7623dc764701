// remote.h - a model whose layers are on several ranks: rank 0 has the first stage, requests and scheduler,
// the others a stage each. This is the link between them: it takes a step's activations to the next rank, and
// the last rank's results back to rank 0.
//
// One message a link and step (step_message.h): a rank plays its layers and passes the message on with its
// own activations in it, unless the ranks' devices send these themselves (device/communicator.h): then no
// rank but the last waits for its device. What rank 0 writes to the page tables and histories of its stage,
// the others need too: it is collected, and travels with the next step.
#pragma once
#include <pthread.h>
#include "engine/ranks/ranks.h"
#include "engine/stage/place.h"
#include "engine/stage/step_message.h"

struct remote {
    struct ranks *ranks;
    struct communicator *communicator; // of the ranks' devices; NULL: messages carry the activations
    struct placement placement;        // of all ranks: range i is rank i's
    struct step_limits limits;
    pthread_mutex_t telling; // of news
    struct step_news news, sending;
    uint64_t sequence;
    bool is_running;             // on rank 0: the others are in their loops
    struct rank_message *result; // collected last
    struct step_result view;     // of it
};

// Makes the engines that this process opens from now on part of the group that mpirun started.
void remote_want(void);
bool remote_is_wanted(void);
bool remote_was_open(void); // in this process
struct remote *remote_open(struct err *err);
// On rank 0: ends the others' loops. NULL is allowed.
void remote_close(struct remote *r);
bool remote_is_first(const struct remote *r);
struct layer_range remote_layers(const struct remote *r); // of this rank
void remote_limits(struct remote *r, const struct step_limits *limits);
// All ranks, once each is loaded: the activations go from device to device where all devices can, and arrive.
bool remote_join(struct remote *r, struct stage *stage, struct err *err);

// Rank 0. The state lock is held for the first two. Entries of both page tables from these on.
void remote_table_write(struct remote *r, const struct kv *kv, uint32_t slot, uint32_t from,
                        uint32_t window_from);
void remote_history_write(struct remote *r, uint32_t slot, const uint32_t *tokens, uint32_t n);
// Sends the batch and what `from` has made of it.
bool remote_send(struct remote *r, struct batch *b, const struct stage *from,
                 step_constraint_of *constraint_of, struct err *err);
// Waits for the results of the batch, the oldest that was sent.
bool remote_collect(struct remote *r, struct batch *b, struct err *err);
// Of the batch that was collected last; NULL: the last rank did not send it.
const float *remote_logits(const struct remote *r, const struct batch *b, uint32_t output);
const float *remote_hidden(const struct remote *r, const struct batch *b, uint32_t row);

// The other ranks: plays steps until rank 0 closes its engine. False: the group is lost.
struct remote_player {
    struct stage *stage;
    struct batch *batch;
};
bool remote_play(struct remote *r, struct remote_player *player, struct err *err);
// "cpu for layers 0 to 3, rank 1 (host) for layers 4 to 7"
void remote_describe(struct remote *r, const char *device, char *to, size_t n);
