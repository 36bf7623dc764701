// prefill_client.h - asks a prefill server over HTTP, for ingot serve --role decode.
#pragma once
#include "main/settings.h"
#include "server/generation/prefetch.h"

struct curl_slist;

struct prefill_client {
    struct prefetch_options options; // for the server
    char url[1024];                  // of the endpoint
    struct curl_slist *headers;
    uint32_t silence_s;
};

bool prefill_client_open(struct prefill_client *client, const struct settings *s, struct err *err);
void prefill_client_close(struct prefill_client *client); // nobody asks any more; a zeroed one is allowed
