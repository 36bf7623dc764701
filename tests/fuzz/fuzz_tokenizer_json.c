// fuzz_tokenizer_json.c - any bytes as a tokenizer.json: refused with a message, or a tokeniser that encodes
// and decodes.
#include "fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer *t;
    struct err err = { 0 };

    if (tokenizer_load_json(&t, (struct str){ (const char *)data, size }, &err))
        use_tokenizer(t);
    else
        CHECK(err.code != ERR_NONE && err.message[0] && !t);
    return 0;
}
