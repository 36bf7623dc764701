// settings.h - every option of every verb: the struct that receives the values, and the tables that name
// them.
//
// One struct for all verbs, so that an option that several verbs share is written once. A verb sees only its
// own groups.
#pragma once
#include "base/options.h"

struct settings {
    bool help, verbose, no_mmproj;
    const char *config, *log;
    // the model and where it runs
    const char *model, *hub_name, *device, *n_gpu_layers, *stages, *experts, *limits, *aim, *cache_type_k,
        *cache_type_v, *gemm;
    uint32_t n_threads, n_context, n_batch, n_ubatch, n_kv_tokens, commit_every, n_tensor_parallel;
    bool probe_anew, exact, invariant, no_repack, no_prefix_cache, offline;
    const char *cache_dir, *speculate, *draft, *record, *replay;
    uint32_t draft_most;
    uint32_t cache_gib;
    // the prompt and the answer
    const char *prompt, *file, *system, *system_file, *think, *mmproj;
    struct option_list images, loras;
    bool chat, no_chat, one_turn, no_shift, no_split, escape, special, json, quiet, ignore_eos, trace;
    uint32_t n_predict;
    const char *grammar, *grammar_file, *json_schema, *json_schema_file;
    struct option_list stop;
    // sampling
    float temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    uint32_t top_k, repeat_last_n;
    uint64_t seed; // UINT64_MAX: a random one
    // bench
    struct option_numbers n_prompt, n_gen, depth, bench_threads, bench_batch;
    struct option_list prompt_gen, bench_device, bench_type_k, bench_type_v;
    uint32_t repetitions;
    const char *output;
    struct option_list peers;
    bool no_warmup;
    const char *serve_url, *svg;
    struct option_numbers n_clients;
    uint32_t n_requests;
    // profile
    uint32_t profile_depth;
    bool brief;
    const char *html, *trace_json, *against;
    float tolerance;
    // embed
    const char *prefix, *pooling, *normalize, *query;
    uint32_t dimensions;
    bool whole;
    // quantize, imatrix
    const char *imatrix, *imatrix_output;
    struct option_list tensor_types;
    uint32_t exl3_bits;
    bool dry_run;
    // eval
    const char *save_logits, *kl_file, *scratch;
    struct option_list eval_types, eval_pages;
    uint32_t n_chunks;
    // inspect, tokenize, synth, verify
    bool ids, tensors, list, all, verify_gemm, hollow;
    uint32_t n_synth_layers; // 0: the shape's
    const char *type;
    uint32_t n_verify, n_plan_sequences, plan_depth;
    // serve
    const char *host, *alias;
    uint32_t port, n_parallel, n_queued, body_mib, drain_s, keep_alive_s, write_s;
    float step_stretch;
    struct option_list api_keys, origins;
    bool strict, no_shared_prefix;
    const char *role, *prefill, *prefill_key;
    uint32_t prefill_least, prefill_silence_s;
};

extern const struct option_program ingot_program;
extern const struct option_verb ingot_chat_settings; // what a chat can change
extern const struct option_group llama_common, llama_answer, llama_run, llama_serve,
    llama_bench; // settings_llama.c

struct verb_call {
    const struct option_verb *verb;
    const struct settings *settings;
    const struct option_operands *operands;
    struct arena *arena; // for the length of the program
};

// Exit statuses.
enum { STATUS_OK = 0, STATUS_ERROR = 1, STATUS_USAGE = 2, STATUS_RANK_LOST = 3, STATUS_INTERRUPTED = 130 };

// One function per verb: returns the exit status, having printed its own errors.
int verb_run(const struct verb_call *call);
int verb_bench(const struct verb_call *call);
int verb_inspect(const struct verb_call *call);
int verb_tokenize(const struct verb_call *call);
int verb_quantize(const struct verb_call *call);
int verb_synth(const struct verb_call *call);
int verb_verify(const struct verb_call *call);
int verb_doctor(const struct verb_call *call);
int verb_serve(const struct verb_call *call);
int verb_pull(const struct verb_call *call);
int verb_ls(const struct verb_call *call);
int verb_rm(const struct verb_call *call);
int verb_eval(const struct verb_call *call);
int verb_plan(const struct verb_call *call);
int verb_imatrix(const struct verb_call *call);
int verb_embed(const struct verb_call *call);
int verb_profile(const struct verb_call *call);
