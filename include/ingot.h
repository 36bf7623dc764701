// ingot.h - the public interface of ingot, an inference engine for language models.
//
// Three nouns: an engine is a loaded model on its devices; a session is one timeline of tokens with its KV
// pages; a request is one generation. Three ways to generate, from simple to general:
//   ingot_generate        one request, a callback per piece of text, returns when done
//   ingot_generate_batch  many requests in one go; rows of all requests share each step
//   ingot_submit          returns at once; ingot_wait or ingot_step advances all requests, ingot_poll takes
//                         their events
//
// Errors: functions that can fail return false or NULL and fill *error, which may be NULL. Nothing here
// exits, and only the log prints. Text is UTF-8.
// Ownership: what is passed in is copied by the call. What comes out belongs to the library, and its
// declaration says how long it lasts.
// Sizes: options begin with their size in the program that was compiled, and the functions called
// ..._defaults set it. Members are only ever added at the end, so a program built against an older header
// works with a newer library. A size of 0, as in a zeroed struct, and a size larger than the library's own
// are errors. Structs without a size never change.
// Threads: any thread may call any function at any time, but for an object that another thread frees. One
// thread at a time makes a step. Functions marked [step] wait until that step is over; the others do not.
#ifndef INGOT_H
#define INGOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define INGOT_API __attribute__((visibility("default"))) // what the library exports, and nothing else
#else
#define INGOT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define INGOT_VERSION_MAJOR 0
#define INGOT_VERSION_MINOR 1
#define INGOT_VERSION_PATCH 0
#define INGOT_ABI           2 // another number: programs built against the header before must be built again

struct ingot_engine;
struct ingot_session;
struct ingot_request;
struct ingot_prompt;
struct ingot_pages;

enum ingot_code {
    INGOT_OK,
    INGOT_INPUT,       // a file or an option holds something that is not allowed
    INGOT_NOT_FOUND,   // no such file or tensor
    INGOT_IO,          // the system refused a read or write
    INGOT_MEMORY,      // no memory
    INGOT_LIMIT,       // a limit was reached: context, pages, sequences
    INGOT_UNSUPPORTED, // valid, but not something this build can do
    INGOT_CANCELLED,   // the caller asked to stop
    INGOT_NUMERIC,     // NaN or infinity in the logits
    INGOT_DEVICE,      // the device failed
    INGOT_TIMEOUT,     // the deadline passed
};

struct ingot_error { // never changes
    enum ingot_code code;
    char message[504]; // one line: what was found, what was expected, what to do
};

INGOT_API const char *ingot_version(void); // of the library that runs, as in "0.1.0"
INGOT_API uint32_t ingot_abi(void);        // INGOT_ABI of the library that runs

enum ingot_log_level { INGOT_LOG_ERROR, INGOT_LOG_WARNING, INGOT_LOG_INFO, INGOT_LOG_DEBUG };

// One line of the log, for the whole process and from any thread, one at a time. `level` is an
// ingot_log_level, `tag` names the part that speaks. The callback must not call the library.
typedef void ingot_on_log(void *arg, int level, const char *tag, const char *message);
// Lines up to `highest` go to the callback from now on; NULL: to stderr, which is what a program begins with,
// for errors and warnings. When this returns, the callback before is not running and will not be called
// again.
INGOT_API void ingot_log_set(enum ingot_log_level highest, ingot_on_log *on_log, void *arg);

// ---- engine -----------------------------------------------------------------------------------------------

// Formats of K and V in the cache: 4, 2, 2 and 1.0625 bytes a number. Q8_0 wants heads of a multiple of 32
// numbers, BF16 of 2. auto: F32 with exact, else BF16 on a processor with instructions for it, else F16.
enum ingot_kv { INGOT_KV_AUTO, INGOT_KV_F32, INGOT_KV_F16, INGOT_KV_BF16, INGOT_KV_Q8_0 };

// Whose kernels multiply the many rows of a prompt: ingot's own, or the vendor's matrix library (cuBLAS,
// found at run time), which reads weights converted to bf16: for comparison and as a fallback. Auto: ingot's
// own. A device without the choice uses its own.
enum ingot_gemm { INGOT_GEMM_AUTO, INGOT_GEMM_OWN, INGOT_GEMM_VENDOR };

// Speculative decoding: the text's own repeats (n-grams), a smaller model or the model's own draft layer
// (MTP) guess tokens; one step verifies them and keeps those that the model would have sampled itself.
// Answers stay the same: on a CPU and with `invariant` to the bit; else on a GPU where two tokens are not as
// likely as each other within the kernels' error. Auto: while steps that are timed show that it gains.
enum ingot_speculate { INGOT_SPECULATE_AUTO, INGOT_SPECULATE_OFF, INGOT_SPECULATE_ALWAYS };

// What layers are placed for: the least time of one answer, or the most tokens of many. Auto: of many with
// more than two sequences.
enum ingot_aim { INGOT_FOR_AUTO, INGOT_FOR_ONE, INGOT_FOR_MANY };

// The models that ship inside the library, by the names that `model` may have where no file has them: a small
// one for text, and one that sees. A build may leave them out.
#define INGOT_BUILTIN      "ingot-7m"
#define INGOT_BUILTIN_EYES "ingot-eyes"

// A LoRA adapter: a GGUF file (general.type adapter), or what PEFT writes: a folder with adapter_config.json
// and adapter_model.safetensors. It goes with a model of either format.
struct ingot_adapter { // never changes
    const char *path;
    const char *name; // requests name the adapter so; NULL: the name of its file or folder, without .gguf
    float scale;      // how much a request that uses it adds; 1: as it was trained
};

// clang-format off
struct ingot_engine_options {
    size_t size;                // of this struct; ingot_engine_defaults sets it
    const char *model;          // a .gguf file, a safetensors folder, a model inside the library, or NULL: INGOT_BUILTIN
    const char *device;         // "auto" (GPUs if there are, and the processor for what has no room there), "cpu", "cuda", "cuda:1", "metal", or "cpu:plain": the defining loops; several share the layers: "cuda:0,cpu"
    const char *stages;         // layers at which a new stage begins, "4,8", or NULL: one stage, or of several devices the plan's choice
    uint32_t n_threads;         // 0: every processor this process may use
    uint32_t n_context;         // tokens of one sequence; 0: the model's own limit, at most 8192
    uint32_t n_sequences;       // sequences that may run at once
    // What the KV pages of all sequences and of kept prompts hold, reserved at the start; at least n_context.
    // 0: n_sequences times n_context, with which no request ever waits for a page.
    uint32_t n_kv_tokens;
    uint32_t n_batch;           // rows of one step at most: the token budget; 0: 512, on GPUs up to 2048 of a small model or a mixture where that fits in memory
    float step_stretch;         // a step that decodes may take this many times longer with prompts in it; 0: without limit
    enum ingot_kv cache_type_k; // of K; every device has all of them
    enum ingot_kv cache_type_v; // of V, which may be another
    uint32_t commit_every;      // Metal: commands in a command buffer; 0: as many as give a step 4 of them at most
    bool exact;                 // activations stay fp32 in products with quantised weights
    bool invariant;             // GPUs: same bits for any batch and any chunks, slower; the CPU always does
    enum ingot_gemm gemm;       // opening fails if the vendor is asked for and its library is not there
    bool no_repack;             // use weights as they lie in the file: less memory, slower
    bool no_prefix_cache;       // compute every prompt anew
    const char *cache_dir;      // where pages of prompts outlive the process; NULL: they do not
    uint64_t cache_bytes;       // that all files there may take, the longest unused go first; 0: 10 GiB
    uint32_t cpu_features;      // mask of processor features to use, 0: all; for tests
    bool (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes); // while loading; false stops. May be NULL
    void *progress_arg;
    // The eyes of a GGUF model: the mmproj file that belongs to it. NULL: the only mmproj*.gguf beside the
    // model, if that can see; "": none. A safetensors folder of a model that sees holds its own.
    const char *mmproj;
    // Rows of a step that can have logits; 0: n_sequences, at least 16. With more, prompts whose logits are asked for are read in
    // larger steps. No more than fit 256 MiB.
    uint32_t n_logit_rows;
    // Speculative decoding.
    uint64_t draft_most;        // drafted tokens of a request and step at most; 0: 7, which is also the most
    enum ingot_speculate speculate;
    // Where a mixture's experts are computed. "cpu": by the processor, from the host's memory, in all layers;
    // "cpu:N": in the last N layers. "none": on `device`, as the rest. NULL: there, but for those of as many of the
    // last layers as must leave it where not all have room.
    const char *experts;
    // The draft model of speculative decoding: a path as in `model`, of a smaller model with the same vocabulary; NULL: none. It is
    // asked where the text itself has no repeat to draft from. Its memory, on the first device, is not in ingot_engine_estimate.
    const char *draft;
    // Adapters that requests can use, each request its own: [n_adapters], at most 64.
    const struct ingot_adapter *adapters;
    size_t n_adapters;
    // Limits on the use of this machine. A preset ("conservative", "balanced", "aggressive"), or keys with values
    // ("compute=0.5,nice=10"), or a preset and then keys; docs/limits.md lists them. NULL: none. The keys nice
    // and io lower the priority of the thread that calls ingot_engine_open, too.
    const char *limits;
    // Of several devices without `stages`, which layers go where is chosen by the time that some layers take on each
    // of them, which is kept in the user's cache folder. probe_anew: measure again.
    enum ingot_aim aim;
    bool probe_anew;
    // Tensor parallel: as many ranks, at most 8, have a part of every layer each, and add up twice a layer. `device` names one for each
    // rank, or one that all of them open; of "auto" and "cuda" the first GPUs where there are as many. Threads of the processor are
    // divided. All must be of one kind. 0, 1: off. docs/devices.md says which models and options go with it.
    uint32_t n_tensor_parallel;
};
// clang-format on
// Fills in the defaults of a struct of `size` bytes. C and C++ use ingot_engine_defaults; other languages
// call this one.
INGOT_API void ingot_engine_options_init(struct ingot_engine_options *options, size_t size);
static inline struct ingot_engine_options ingot_engine_defaults(void)
{
    struct ingot_engine_options options;
    ingot_engine_options_init(&options, sizeof options);
    return options;
}

// Loads a model; takes seconds. Close what it returns. NULL: *error says why. Sets a handler of SIGBUS, which
// answers for the model's files alone and leaves the rest to the one before: requests on a file that is cut
// end with INGOT_IO, and so do all that come after, until the model is opened again.
INGOT_API struct ingot_engine *ingot_engine_open(const struct ingot_engine_options *options,
                                                 struct ingot_error *error);
// The path of a model that `ingot pull` or another program has put into the Hugging Face cache of this
// machine, by its name: USER/REPO, USER/REPO:QUANT, with @REVISION behind. A name that is a file is its own
// path. Never asks the network. INGOT_NOT_FOUND: *error says what there is instead, and how to get it.
INGOT_API bool ingot_model_find(const char *name, char *path, size_t capacity, struct ingot_error *error);

struct ingot_memory {
    // that an engine takes; scratch: all that steps compute in
    uint64_t weight_bytes, page_bytes, scratch_bytes;
    uint64_t free_bytes, device_bytes; // of the devices the options choose, in sum
    // of weight_bytes and scratch_bytes: what belongs to the tower that reads pictures
    uint64_t tower_weight_bytes, tower_scratch_bytes;
    // of weights beside weight_bytes: where a GPU's memory is short, a table that lies in the host's
    uint64_t host_weight_bytes;
};
// What ingot_engine_open would need with these options. Reads the file's beginning and opens the device;
// loads nothing.
INGOT_API bool ingot_engine_estimate_fill(const struct ingot_engine_options *options,
                                          struct ingot_memory *memory, size_t size,
                                          struct ingot_error *error);
static inline bool ingot_engine_estimate(const struct ingot_engine_options *options,
                                         struct ingot_memory *memory, struct ingot_error *error)
{
    return ingot_engine_estimate_fill(options, memory, sizeof *memory, error);
}

// [step] Ends every request with INGOT_FINISH_CANCELLED and returns. Requests and sessions are freed as ever,
// before or after; the memory goes with the last of them. NULL is allowed.
INGOT_API void ingot_engine_close(struct ingot_engine *engine);
// From now on patch_ms and connect_ms of results are measured on GPUs too, which means two waits more for an
// encoder's play and no graph: it takes a little longer.
INGOT_API void ingot_time_stages(struct ingot_engine *engine, bool apart);
// [step] Writes the pages of prompts that are not in cache_dir yet. Closing does so too, and so does a page
// whose memory is needed. INGOT_INPUT: there is no cache_dir. INGOT_IO: a page could not be written.
INGOT_API bool ingot_engine_save(struct ingot_engine *engine, struct ingot_error *error);

// What is made of the hidden states of a prompt's rows, after the last norm: their mean, the last or the
// first of them; what the model's file asks for; or, of a pair of texts, a reranker's score from 0 to 1.
enum ingot_embed {
    INGOT_EMBED_NONE,
    INGOT_EMBED_MEAN,
    INGOT_EMBED_LAST,
    INGOT_EMBED_CLS,
    INGOT_EMBED_MODEL,
    INGOT_EMBED_RANK,
};

struct ingot_engine_info {
    char model_name[128], architecture[32], format[32], device[160];
    uint64_t n_parameters, weight_bytes, page_bytes, scratch_bytes;
    uint32_t n_layers, n_vocab, n_embedding, n_context, n_sequences, n_batch, n_stages;
    enum ingot_kv cache_type_k, cache_type_v; // never auto
    bool has_tokenizer;
    uint32_t longest_token; // bytes: no text of more than n_context times as many fits
    uint32_t page_tokens;   // of a KV page: prompts are kept in whole pages
    bool takes_pictures;    // the model has eyes
    uint32_t n_adapters;    // see ingot_adapter_info
    size_t n_vector;        // numbers of an embedding
    // As the model's file says what it makes of a text: MEAN, CLS or LAST for an embedding, RANK for a score.
    // NONE: it says nothing, and MEAN is taken for INGOT_EMBED_MODEL.
    enum ingot_embed embed;
    bool is_encoder; // it makes embeddings or scores alone, and no text
    bool ranks;      // INGOT_EMBED_RANK and ingot_rank_tokens work
};
// Fills the first `size` bytes of *info. Of it only what belongs to the devices changes, when one is lost and
// the others take its layers.
INGOT_API void ingot_engine_info_fill(const struct ingot_engine *engine, struct ingot_engine_info *info,
                                      size_t size);
static inline void ingot_engine_info(const struct ingot_engine *engine, struct ingot_engine_info *info)
{
    ingot_engine_info_fill(engine, info, sizeof *info);
}

struct ingot_adapter_info {
    const char *name; // as long as the engine
    float scale;
    uint32_t rank, n_matrices; // the largest rank; how many matrices of the model it adds to
};
// Fills the first `size` bytes of *info with the engine's adapter of this number, from 0. False: there is no
// such adapter.
INGOT_API bool ingot_adapter_info_fill(const struct ingot_engine *engine, uint32_t adapter,
                                       struct ingot_adapter_info *info, size_t size);
static inline bool ingot_adapter_info(const struct ingot_engine *engine, uint32_t adapter,
                                      struct ingot_adapter_info *info)
{
    return ingot_adapter_info_fill(engine, adapter, info, sizeof *info);
}

struct ingot_engine_stats {
    uint32_t n_running, n_waiting; // requests that have a sequence, and that wait for one
    // Of 16 tokens: all, in use by sequences, and kept for prompts to come. The rest is free.
    uint32_t n_pages, n_pages_held, n_pages_idle;
    uint64_t n_pauses;              // how often a request gave its pages to an older one and went on later
    uint64_t n_steps, n_rows;       // played so far
    uint64_t n_drafted, n_accepted; // tokens of speculative decoding
    // Of limits: requests started under them, steps behind which the next one waited for its share of the
    // time, requests that a pause or the interval kept from starting at once, pauses, and all waiting.
    uint64_t n_limited, n_slowed_steps, n_held, n_load_pauses;
    double limits_wait_s;
    bool is_paused; // other programs keep the machine busy
    // The same of the pages of layers with a window: all, in use, kept. 0: the model has none.
    uint64_t n_window_pages, n_window_pages_held, n_window_pages_idle;
};
// Fills the first `size` bytes of *stats, as of now.
INGOT_API void ingot_engine_stats_fill(struct ingot_engine *engine, struct ingot_engine_stats *stats,
                                       size_t size);
static inline void ingot_engine_stats(struct ingot_engine *engine, struct ingot_engine_stats *stats)
{
    ingot_engine_stats_fill(engine, stats, sizeof *stats);
}

// ---- tokenizer --------------------------------------------------------------------------------------------

// Tokens are numbers below n_vocab. None of these functions waits for a step, and what they point to lives as
// long as the engine. Without a tokenizer (ingot_engine_info: has_tokenizer) they are INGOT_UNSUPPORTED, and
// there is no token to be found.

enum ingot_text_flags {
    INGOT_PARSE_SPECIAL = 1, // control tokens written in the text become tokens: only for text that you trust
    INGOT_ADD_SPECIAL = 2,   // BOS, EOS, or whatever else the model puts around a text
    INGOT_KEEP_SPECIAL = 4,  // to text: control tokens appear as the vocabulary spells them, else not at all
};

// Tokens of text[n_bytes], UTF-8, into tokens[capacity]. `flags`: INGOT_PARSE_SPECIAL and INGOT_ADD_SPECIAL.
// Returns the number of tokens, of which at most `capacity` are stored: with 0, it counts. -1: *error says
// why.
INGOT_API int64_t ingot_encode(const struct ingot_engine *engine, const char *text, size_t n_bytes,
                               unsigned flags, uint32_t *tokens, size_t capacity, struct ingot_error *error);
// Text of tokens[n_tokens] into text[capacity], valid UTF-8 and ended by NUL. `flags`: INGOT_KEEP_SPECIAL.
// Returns the number of bytes without the NUL, of which at most capacity - 1 are stored. -1: *error says why.
INGOT_API int64_t ingot_decode(const struct ingot_engine *engine, const uint32_t *tokens, size_t n_tokens,
                               unsigned flags, char *text, size_t capacity, struct ingot_error *error);
// ingot_encode with no flag but INGOT_PARSE_SPECIAL, and ingot_decode without flags.
INGOT_API int64_t ingot_tokenize(const struct ingot_engine *engine, const char *text, size_t n_bytes,
                                 bool parse_special, uint32_t *tokens, size_t capacity,
                                 struct ingot_error *error);
INGOT_API int64_t ingot_detokenize(const struct ingot_engine *engine, const uint32_t *tokens, size_t n_tokens,
                                   char *text, size_t capacity, struct ingot_error *error);

enum ingot_token_kind {
    INGOT_TOKEN_NORMAL,
    INGOT_TOKEN_UNKNOWN,      // stands for what the vocabulary lacks
    INGOT_TOKEN_CONTROL,      // has no text of its own, and comes from a text only with INGOT_PARSE_SPECIAL
    INGOT_TOKEN_USER_DEFINED, // found in any text before merging, for example <think>
    INGOT_TOKEN_UNUSED,       // and what is not in the vocabulary
    INGOT_TOKEN_BYTE,         // <0xNN>
};

struct ingot_token_info {
    const char *spelling; // as the vocabulary has it, for example "\xc4\xa0the"; n_spelling bytes
    const char *bytes; // that it adds within a text, " the"; n_bytes, maybe half a character. Control tokens:
                       // their spelling
    size_t n_spelling, n_bytes;
    enum ingot_token_kind kind;
    bool ends_answer; // EOS, end of turn, end of message
};
// Fills the first `size` bytes of *info. False: there is no such token.
INGOT_API bool ingot_token_info_fill(const struct ingot_engine *engine, uint32_t token,
                                     struct ingot_token_info *info, size_t size);
static inline bool ingot_token_info(const struct ingot_engine *engine, uint32_t token,
                                    struct ingot_token_info *info)
{
    return ingot_token_info_fill(engine, token, info, sizeof *info);
}
// The token with this spelling; -1: none.
INGOT_API int64_t ingot_token_find(const struct ingot_engine *engine, const char *spelling, size_t n_bytes);

enum ingot_special {
    INGOT_SPECIAL_BOS,
    INGOT_SPECIAL_EOS,
    // Around a gap that the model fills: before the text ahead of it, before the text behind it, where the
    // answer begins; before the project's name, before a file's name.
    INGOT_SPECIAL_FIM_PREFIX,
    INGOT_SPECIAL_FIM_SUFFIX,
    INGOT_SPECIAL_FIM_MIDDLE,
    INGOT_SPECIAL_FIM_REPO,
    INGOT_SPECIAL_FIM_FILE,
};
// -1: the model has none
INGOT_API int64_t ingot_token_special(const struct ingot_engine *engine, enum ingot_special which);

// ---- requests ---------------------------------------------------------------------------------------------

struct ingot_message {   // its size is the options' message_size
    const char *role;    // "system", "user", "assistant" or "tool", which some templates call "observation"
    const char *content; // never becomes a control token
    // JSON text: an object of what else belongs to the message, named as in OpenAI's chat completions:
    // tool_calls, tool_call_id, name, reasoning_content, or a content that is a list of parts {"type":
    // "text", "text": ...}. It may have role and content too, which are NULL then. NULL: nothing else.
    const char *fields;
};

struct ingot_sampling {
    float temperature;       // 0: greedy
    uint32_t top_k;          // 0: off
    float top_p, min_p;      // 1 and 0: off
    float repeat_penalty;    // 1: off; above 1 makes seen tokens less likely
    float presence_penalty;  // 0: off; positive makes seen tokens less likely
    float frequency_penalty; // 0: off; positive, once for each time a token was seen
    uint32_t penalty_window; // how many of the last tokens count as seen
    uint64_t seed;           // the same seed and request give the same tokens
    uint32_t reserved[16];   // 0; parameters to come
};

struct ingot_adapter_use { // never changes
    const char *name;      // of one of the engine's adapters
    float scale;           // times the engine's own for it; 1: that
};

struct ingot_bias { // never changes
    uint32_t token;
    float bias; // added to the token's logit before anything else
};

struct ingot_picture;                 // see below
#define INGOT_IMAGE_PLACE 0xffffffffu // in tokens: the place of a row of a picture

// One source of the prompt is set: messages (rendered with the model's template), text, or tokens. All is
// copied by the call.
// clang-format off
struct ingot_request_options {
    size_t size;                       // of this struct; ingot_request_defaults sets it, and these three:
    size_t message_size, event_size, result_size; // of ingot_message, ingot_event and ingot_result

    // The prompt. A session to continue: what its tokens share with the prompt is not computed again. NULL: a
    // fresh one.
    struct ingot_session *session;
    const struct ingot_message *messages; // [n_messages]
    size_t n_messages;
    const char *text;
    const uint32_t *tokens;            // [n_tokens]
    size_t n_tokens;
    bool parse_special;                // in text

    // The answer.
    struct ingot_sampling sampling;
    uint32_t max_tokens;               // at most; 0: as many as the context has room for
    const char *const *stop;           // [n_stop]; generation ends before the first of these, even across tokens; they are not in the text
    size_t n_stop;
    bool ignore_eos;
    const char *grammar;               // GBNF: only tokens that fit may come, and the end only where the grammar may end. NULL: none
    const char *json_schema;           // JSON text of a schema that the answer has to fulfil, instead of a grammar. NULL: none
    const struct ingot_bias *bias;     // [n_bias], at most 1024
    size_t n_bias;
    enum ingot_embed embed;            // read the prompt and make an embedding of it; no token is generated
    bool keep_special;                 // show control tokens in the answer's text
    uint32_t n_logits;                 // return logits: last n prompt positions and every new token (ingot_event)

    // How it runs.
    int32_t priority;                  // lower runs earlier and is the last to be paused; among equals the older one does
    uint32_t deadline_ms;              // from submission; after it the request ends with INGOT_TIMEOUT. 0: none
    uint32_t n_unread;                 // rows of logits that may wait to be taken; one more ends the request with INGOT_LIMIT. 0: 256 MiB
    // Prompts are shared only between requests of the same salt, so that one tenant cannot learn from the
    // time to the first token what another has asked. NULL: "".
    const char *cache_salt;

    // Of a prompt made of messages; ingot_template_info says whether the template shows tools.
    const char *tools;                 // JSON text: a list as OpenAI's chat completions write it. NULL: none
    const char *template_variables;    // JSON text: an object, for example {"enable_thinking": false}. NULL: none
    bool no_generation_prompt;         // the prompt ends with the last message, not with the beginning of an answer
    bool continue_last;                // the last message is from the assistant; the answer continues it

    // Return log-probabilities (ingot_event): of the last n_logprobs prompt tokens and of every new token,
    // each with its n_top_logprobs likeliest alternatives, at most 1,024. 0: none. n_unread also limits the
    // number of unread events with log-probabilities.
    uint32_t n_logprobs, n_top_logprobs;

    // Pictures of the prompt. Each fills one part {"type": "image"} of the messages' `fields`, in their
    // order. Without such parts the pictures come before the text of the last message, or before `text`.
    // `tokens` has INGOT_IMAGE_PLACE for each row of theirs, as ingot_prompt_tokens gives it. They may be
    // freed after the call.
    const struct ingot_picture *const *pictures;
    size_t n_pictures;
    bool no_split;         // each picture as one tile: fewer tokens, fewer details
    const bool *no_splits; // [n_pictures] the same for each picture. NULL: as no_split

    // Which of the engine's adapters add to the model's products in this request; 0: none. A session whose
    // tokens were read with others is read anew, and kept prompts are shared among the same ones alone.
    const struct ingot_adapter_use *adapters; // [n_adapters]
    size_t n_adapters;
    // Of an embedding: its first numbers alone, for models that were trained so. 0: all.
    uint32_t n_dimensions;
    bool no_normalize;     // leave its length as it is, instead of 1
    bool deferred;         // ingot_submit alone: it waits for ingot_start, and holds nothing up meanwhile
    // ingot_generate alone: asked with its `arg` between two steps, while the prompt is read too, where no event comes. false cancels
    // the request. NULL: nobody is asked
    bool (*on_step)(void *arg);
};
// clang-format on
// Fills in the defaults of a struct of `size` bytes: temperature 0.8, top_k 40, top_p 0.95, min_p 0.05,
// window 64. C and C++ use ingot_request_defaults; other languages call this one and set the three other
// sizes, which it leaves 0.
INGOT_API void ingot_request_options_init(struct ingot_request_options *options, size_t size);

enum ingot_finish {
    INGOT_FINISH_NONE,
    INGOT_FINISH_EOS,
    INGOT_FINISH_STOP,   // a stop string
    INGOT_FINISH_LENGTH, // max_tokens, or the end of the context
    INGOT_FINISH_CANCELLED,
    INGOT_FINISH_ERROR,
};

enum ingot_miss_reason {
    INGOT_MISS_NONE,    // nothing is missing: all but the last tokens were kept
    INGOT_MISS_NEW,     // nothing was kept that goes on like this
    INGOT_MISS_DIFFERS, // what was kept has another token at `position`
    INGOT_MISS_EVICTED, // it was kept until its memory was needed
    INGOT_MISS_SALT,    // it is kept for another salt or other adapters. For the operator's eyes: it tells of
                        // other tenants
};

// Where and why a prompt first differed from what was kept.
struct ingot_miss { // never changes
    enum ingot_miss_reason reason;
    uint32_t position;          // in the prompt
    uint32_t token, kept_token; // there: the prompt's, and the kept one. UINT32_MAX: none
};

struct ingot_result { // its size is the options' result_size
    enum ingot_finish finish;
    uint32_t stop;            // with INGOT_FINISH_STOP: which of the request's stop strings
    struct ingot_error error; // with INGOT_FINISH_ERROR
    // tokens; n_reused of the prompt were kept from before and not computed again
    uint32_t n_prompt, n_reused, n_generated;
    uint32_t n_pauses;                // how often it gave its pages to an older request
    struct ingot_miss miss;           // why n_reused is not more
    double first_token_ms;            // from submission to the first token
    double prefill_ms, decode_ms;     // of the prompt; of the tokens after the first
    uint32_t n_tiles, n_tiles_cached; // of the pictures; of which an earlier request had left the embeddings
    double encode_ms;                 // that the encoder took for the others
    double split_ms; // that resizing pictures and cutting them into tiles took, before the request was queued
    double read_ms;  // that decoding the pictures' files took, when they were made
    // of encode_ms: patch embedding, connector; 0 on a GPU without ingot_time_stages
    double patch_ms, connect_ms;
    // Speculative decoding: tokens that were drafted, and of these accepted; how many times faster its steps
    // were than as many tokens one by one, or 0 where that is not known.
    double draft_gain;
    uint32_t n_drafted, n_accepted;
};

struct ingot_logprob { // never changes
    uint32_t token;
    double logprob; // natural logarithm, at most 0
};

struct ingot_event {  // its size is the options' event_size
    const char *text; // whole UTF-8 characters, n_bytes long and ended by NUL; may be empty
    size_t n_bytes;
    uint32_t token; // that was generated; UINT32_MAX: none (text that was held back, logits of the prompt, or
                    // the end)
    const float *logits; // [n_vocab] of position `position`, when asked for; else NULL
    uint32_t position;
    const float *embedding; // [n_numbers] with the last event when asked for, of length 1; else NULL
    bool done;              // the last event: result is complete
    const struct ingot_result *result;
    // When asked for, [n_logprobs]: of the token behind `position`, which is `token` or the prompt's next,
    // and then of the likeliest, the likeliest first. They are the model's own: before temperature,
    // penalties, biases and grammars. Else NULL and 0.
    const struct ingot_logprob *logprobs;
    uint32_t n_logprobs;
    size_t n_numbers; // of the embedding; 1 of INGOT_EMBED_RANK
};

static inline struct ingot_request_options ingot_request_defaults(void)
{
    struct ingot_request_options options;
    ingot_request_options_init(&options, sizeof options);
    options.message_size = sizeof(struct ingot_message);
    options.event_size = sizeof(struct ingot_event);
    options.result_size = sizeof(struct ingot_result);
    return options;
}

// Called for every event, in order, by the thread that generates, between two steps. It may call any function
// but those that free the request; returning false cancels the request. Pointers are valid during the call.
typedef bool ingot_on_event(void *arg, const struct ingot_event *event);

// Runs one request to its end, and makes steps for all others meanwhile. True unless it ended with an error;
// result may be NULL.
INGOT_API bool ingot_generate(struct ingot_engine *engine, const struct ingot_request_options *options,
                              ingot_on_event *on_event, void *arg, struct ingot_result *result,
                              struct ingot_error *error);

// Runs n requests together; their options and results have one size. texts[i], when texts is not NULL,
// receives the whole answer, or NULL when it could not begin; free each with ingot_free. One request's error
// does not touch the others: see results[i]. Logits are not delivered. False only when nothing could be run.
INGOT_API bool ingot_generate_batch(struct ingot_engine *engine, const struct ingot_request_options *options,
                                    size_t n, struct ingot_result *results, char **texts,
                                    struct ingot_error *error);

// Queues a request, which the next steps run. Free it with ingot_request_free. NULL: INGOT_INPUT or
// INGOT_LIMIT for what is wrong with the options; a full engine is no error, the request waits. Costs the
// time to render and tokenise the prompt.
INGOT_API struct ingot_request *ingot_submit(struct ingot_engine *engine,
                                             const struct ingot_request_options *options,
                                             struct ingot_error *error);
// [step] Runs one step for all requests. *busy says whether work is left. False when the device failed: every
// request ends with that error.
INGOT_API bool ingot_step(struct ingot_engine *engine, bool *busy, struct ingot_error *error);
// Takes the request's next event; false when there is none yet. Pointers are valid until the next call for
// this request. Events wait until they are taken. Room for all tokens' events and texts is reserved by
// ingot_submit, and a request without a reader goes on to its end; logits take 4 n_vocab bytes a row until
// the event after theirs is taken, and n_unread bounds them.
INGOT_API bool ingot_poll(struct ingot_request *request, struct ingot_event *event);
// Sleeps until the request has an event to take, or with request NULL until any request has one, and makes
// steps itself while no other thread does: a program needs either ingot_step or this. False: timeout_ms
// passed (UINT32_MAX: never), or the request's last event was taken. A step that has begun is finished first.
INGOT_API bool ingot_wait(struct ingot_engine *engine, struct ingot_request *request, uint32_t timeout_ms);
// How many events there have been, taken or not; *done: the last one is among them. For a thread that steps
// and wakes readers.
INGOT_API size_t ingot_request_n_events(const struct ingot_request *request, bool *done);
// A request that was submitted `deferred` may run from now on.
INGOT_API void ingot_start(struct ingot_request *request);
// it ends with INGOT_FINISH_CANCELLED before the next step
INGOT_API void ingot_cancel(struct ingot_request *request);
// [step] cancels it when it still runs. NULL is allowed
INGOT_API void ingot_request_free(struct ingot_request *request);

// ---- prompts and the chat template ------------------------------------------------------------------------

// None of these functions waits for a step.

struct ingot_template_info {
    const char *text; // as the model's file has it, n_bytes; empty: none, and ChatML is used
    size_t n_bytes;   // without the NUL behind them
    bool is_usable;   // messages can become a prompt; else ingot_prompt_render says why not
    // the template shows the model what tools there are; and its calls and their results
    bool takes_tools, takes_calls;
    bool takes_parts; // content may be a list of parts, so that pictures have a place
};
// Fills the first `size` bytes of *info. The text lives as long as the engine.
INGOT_API void ingot_template_info_fill(const struct ingot_engine *engine, struct ingot_template_info *info,
                                        size_t size);
static inline void ingot_template_info(const struct ingot_engine *engine, struct ingot_template_info *info)
{
    ingot_template_info_fill(engine, info, sizeof *info);
}
// Whether the template reads a variable of this name, for example "enable_thinking".
INGOT_API bool ingot_template_uses(const struct ingot_engine *engine, const char *variable);

// What a request with these options would read. Of the options the prompt's source counts, and how it is
// rendered. Free it with ingot_prompt_free while the engine is open; one thread at a time may use it. NULL:
// *error says why, as ingot_submit would.
INGOT_API struct ingot_prompt *ingot_prompt_render(const struct ingot_engine *engine,
                                                   const struct ingot_request_options *options,
                                                   struct ingot_error *error);

enum ingot_reasoning { // how a prompt ends, by its marks <think> and </think>
    INGOT_REASONING_NONE,
    INGOT_REASONING_OPEN,   // within the model's reasoning, which the answer goes on with
    INGOT_REASONING_CLOSED, // behind it, or within the answer: no reasoning follows
};

struct ingot_prompt_info {
    const char *text; // as the model reads it, n_bytes and a NUL, until ingot_prompt_free; empty for a prompt
                      // of tokens
    size_t n_bytes;
    enum ingot_reasoning reasoning;
};
// Fills the first `size` bytes of *info.
INGOT_API void ingot_prompt_info_fill(const struct ingot_prompt *prompt, struct ingot_prompt_info *info,
                                      size_t size);
static inline void ingot_prompt_info(const struct ingot_prompt *prompt, struct ingot_prompt_info *info)
{
    ingot_prompt_info_fill(prompt, info, sizeof *info);
}
// The prompt's tokens, until ingot_prompt_free. The first call makes them, which takes a second for some
// megabytes of text. They may be more than the context holds. NULL: *error says why.
INGOT_API const uint32_t *ingot_prompt_tokens(struct ingot_prompt *prompt, size_t *n_tokens,
                                              struct ingot_error *error);
INGOT_API void ingot_prompt_free(struct ingot_prompt *prompt); // NULL is allowed

// How many tokens at the beginning of tokens[n_tokens] a request of this salt without adapters would find
// kept in memory now, in whole pages and all but the last token at most. What is on disk does not count. Does
// not wait for a step; NULL is the empty salt.
INGOT_API size_t ingot_prompt_kept(struct ingot_engine *engine, const uint32_t *tokens, size_t n_tokens,
                                   const char *cache_salt);

// ---- pages of prompts, from engine to engine --------------------------------------------------------------

// A prompt that one engine has read need not be read by another one: its pages move, as a stream of the very
// files that cache_dir holds. The same tokens come as without, if both engines agree in all of this.
struct ingot_pages_info {
    char version[32];                 // of ingot
    char weights[65];                 // digest of the model's weights and numbers, in hexadecimal digits
    char devices[512];                // which device computes from which layer on, and whether it is `exact`
    char cache_types[32];             // of K and V
    uint32_t cpu_features;            // of the processor, as far as they are used
    uint64_t page_bytes, state_bytes; // of one page; of a state, where the model has them
    char identity[65];                // digest of all of it, which the head of each file has
};
// Fills the first `size` bytes of *info. False: pages of this engine cannot move (INGOT_UNSUPPORTED: it keeps
// none, or has them on several ranks).
INGOT_API bool ingot_pages_info_fill(struct ingot_engine *engine, struct ingot_pages_info *info, size_t size,
                                     struct ingot_error *error);
static inline bool ingot_pages_info(struct ingot_engine *engine, struct ingot_pages_info *info,
                                    struct ingot_error *error)
{
    return ingot_pages_info_fill(engine, info, sizeof *info, error);
}

// Pages on their way: those that hold tokens[n_tokens] but for the last token at least, and, of a model with
// states, up to the last of them. Without pictures and adapters; NULL is the empty salt. The engine that has
// read the prompt gives them, from those on that hold the tokens behind n_known; the other takes them.
// Neither call waits for a step. Close what they return, from one thread at a time. NULL: *error says why.
INGOT_API struct ingot_pages *ingot_pages_offer(struct ingot_engine *engine, const uint32_t *tokens,
                                                size_t n_tokens, size_t n_known, const char *cache_salt,
                                                struct ingot_error *error);
INGOT_API struct ingot_pages *ingot_pages_expect(struct ingot_engine *engine, const uint32_t *tokens,
                                                 size_t n_tokens, const char *cache_salt,
                                                 struct ingot_error *error);
// The tokens whose pages are there: given, or taken and kept from before.
INGOT_API size_t ingot_pages_n_tokens(const struct ingot_pages *pages);
// The tokens whose pages can be there.
INGOT_API size_t ingot_pages_most_tokens(const struct ingot_pages *pages);
// [step] The next bytes, of several pages, until the next call; NULL: there are no more, since all were given
// or the next was forgotten or the device failed. A call takes about as long as copying 4 MiB.
INGOT_API const void *ingot_pages_give(struct ingot_pages *pages, size_t *n_bytes);
// [step] Takes bytes as they come, in pieces of any size. False: they are not what was expected, which
// *error names, or there is no room; what was taken before is kept. Who sent them is trusted with the
// numbers.
INGOT_API bool ingot_pages_take(struct ingot_pages *pages, const void *bytes, size_t n_bytes,
                                struct ingot_error *error);
// [step] After the last bytes. False: they end within a file.
INGOT_API bool ingot_pages_finish(struct ingot_pages *pages, struct ingot_error *error);
// Pages that were taken may be lost from now on, as others of the prompt cache. NULL is allowed.
INGOT_API void ingot_pages_close(struct ingot_pages *pages);

// ---- rerankers --------------------------------------------------------------------------------------------

// How well documents answer a query, by a model that was trained to tell (info: ranks). The tokens of a
// request with INGOT_EMBED_RANK, whose one number is the score: those of the pair in the form that the model
// knows, into tokens[capacity]. instruction: what it should look for, which some models read; NULL: the
// model's own words. No text becomes a control token. Returns as ingot_encode does. Does not wait for a step.
struct ingot_pair { // never changes
    const char *query, *document, *instruction;
    size_t n_query, n_document, n_instruction; // bytes
};
INGOT_API int64_t ingot_rank_tokens(const struct ingot_engine *engine, const struct ingot_pair *pair,
                                    uint32_t *tokens, size_t capacity, struct ingot_error *error);

// ---- grammars and schemas ---------------------------------------------------------------------------------

// Whether a request could follow this GBNF. False: *error says what is wrong and where.
INGOT_API bool ingot_grammar_check(const char *grammar, struct ingot_error *error);
// The GBNF whose texts fulfil a JSON Schema, as a request with json_schema follows it, into
// grammar[capacity], ended by NUL. Returns the number of bytes without it, of which at most capacity - 1 are
// stored. -1: *error names the keyword that cannot be followed.
INGOT_API int64_t ingot_schema_to_grammar(const char *json_schema, char *grammar, size_t capacity,
                                          struct ingot_error *error);

// ---- sessions ---------------------------------------------------------------------------------------------

// Takes one of n_sequences. INGOT_LIMIT: all are in use.
INGOT_API struct ingot_session *ingot_session_create(struct ingot_engine *engine, struct ingot_error *error);
// that it holds; not while a request runs on it
INGOT_API uint32_t ingot_session_n_tokens(const struct ingot_session *session);
// The tokens it holds, INGOT_IMAGE_PLACE for rows of pictures, of which at most `capacity` are stored;
// returns how many there are. Not while a request runs on it.
INGOT_API uint32_t ingot_session_tokens(const struct ingot_session *session, uint32_t *tokens,
                                        uint32_t capacity);
// [step] Writes its tokens and their KV pages to a file, which appears whole or not at all. INGOT_INPUT: a
// request runs on it. INGOT_LIMIT: it holds a picture that was shown thousands of pictures ago.
INGOT_API bool ingot_session_save(struct ingot_session *session, const char *path, struct ingot_error *error);
// [step] A new session from such a file, made with the same weights, device, cache types and version of
// ingot; its sum is checked, and who wrote it is trusted with the numbers. A request on it whose prompt
// begins with its tokens, and which has the salt of the requests before, computes only the rest. NULL: *error
// says why; INGOT_LIMIT: no sequence, no pages, or a context that is too short.
INGOT_API struct ingot_session *ingot_session_load(struct ingot_engine *engine, const char *path,
                                                   struct ingot_error *error);
// [step] Its requests end with INGOT_FINISH_CANCELLED. NULL is allowed.
INGOT_API void ingot_session_free(struct ingot_session *session);

INGOT_API void ingot_free(void *memory); // what ingot_generate_batch handed out. NULL is allowed

// ---- pictures ---------------------------------------------------------------------------------------------

// A picture as a model gets it: red, green and blue of 8 bits, upright, transparency on white. Nothing
// changes it: any number of threads may use it. The functions that make one return NULL and say why in
// *error: INGOT_LIMIT for a file of more than 20 MiB, a side of more than 16,384 or more than 50 million
// pixels, which is known before memory is taken; INGOT_INPUT for a damaged or cut off file; INGOT_UNSUPPORTED
// for a format other than PNG, JPEG and WebP, or one that this build has no library for.
struct ingot_picture;

// From the bytes of a PNG, JPEG or WebP file, which are not needed afterwards; of an animation the first
// frame. The bytes tell the format.
INGOT_API struct ingot_picture *ingot_picture_from_memory(const void *bytes, size_t n_bytes,
                                                          struct ingot_error *error);
INGOT_API struct ingot_picture *ingot_picture_from_file(const char *path, struct ingot_error *error);
// From pixels, which are copied: [height] rows of 3 * width bytes, the next one row_bytes further on.
// row_bytes 0: 3 * width.
INGOT_API struct ingot_picture *ingot_picture_from_rgb(const uint8_t *rgb, uint32_t width, uint32_t height,
                                                       size_t row_bytes, struct ingot_error *error);
// in pixels
INGOT_API void ingot_picture_size(const struct ingot_picture *picture, uint32_t *width, uint32_t *height);
// Its pixels, [height, width, 3], until ingot_picture_free.
INGOT_API const uint8_t *ingot_picture_rgb(const struct ingot_picture *picture);
INGOT_API void ingot_picture_free(struct ingot_picture *picture); // NULL is allowed

#ifdef __cplusplus
}
#endif
#endif
