// api_request.c - see api_request.h. Four tables list all known fields: plain ones with type and range, those
// with a function of their own, ignored ones, and unsupported ones.
#include "server/api/api_request.h"
#include <stdarg.h>
#include "base/mem.h"
#include "server/http/sse.h"

enum { MAX_PENALTY_WINDOW = 65536 };

enum kind {
    KIND_U32,
    KIND_LIMIT, // -1: none
    KIND_FLOAT,
    KIND_BOOL,
    KIND_NOT,    // a bool, negated
    KIND_TEXT,   // a string
    KIND_VALUE,  // json_t *, checked later
    KIND_OBJECT, // json_t *, an object
};

struct field {
    const char *name;
    unsigned dialects;
    enum kind kind;
    size_t at;
    double min, max;
};

#define AT(member) offsetof(struct api_request, member)
enum {
    CHAT = DIALECT_CHAT,
    TEXT = DIALECT_TEXT,
    MESSAGES = DIALECT_MESSAGES,
    COUNT = DIALECT_COUNT,
    TEMPLATE = DIALECT_TEMPLATE,
    RESPONSES = DIALECT_RESPONSES,
    EMBED = DIALECT_EMBED,
    OPENAI = CHAT | TEXT,
    ANTHROPIC = MESSAGES | COUNT,
    LLAMACPP = DIALECTS_LLAMACPP,
    INFILL = DIALECT_INFILL,
    OLLAMA = DIALECTS_OLLAMA,
    OLLAMA_TEXT = DIALECT_OLLAMA_TEXT,
    OLLAMA_EMBED = DIALECT_OLLAMA_EMBED,
    OPTIONS = DIALECT_OPTIONS,
    RERANK = DIALECT_RERANK,
    ANSWERS = OPENAI | MESSAGES | RESPONSES | LLAMACPP | OLLAMA,
    SAMPLES = OPENAI | MESSAGES | RESPONSES | LLAMACPP | OPTIONS,
    CONVERSATIONS = CHAT | ANTHROPIC | TEMPLATE | DIALECT_OLLAMA_CHAT,
    ALL = ANSWERS | COUNT | TEMPLATE | EMBED | OLLAMA_EMBED | RERANK,
};

// clang-format off
static const struct field fields[] = {
    { "model", ALL, KIND_TEXT, AT(model), 0, 0 },
    { "messages", CONVERSATIONS, KIND_VALUE, AT(messages), 0, 0 },
    { "prompt", TEXT | LLAMACPP | OLLAMA_TEXT, KIND_VALUE, AT(prompt), 0, 0 },
    { "system", ANTHROPIC | OLLAMA_TEXT, KIND_VALUE, AT(system), 0, 0 },
    { "input", RESPONSES | EMBED | OLLAMA_EMBED, KIND_VALUE, AT(input), 0, 0 },
    { "instructions", RESPONSES, KIND_VALUE, AT(system), 0, 0 },
    { "max_output_tokens", RESPONSES, KIND_LIMIT, AT(max_tokens), 1, 2147483647 },
    { "max_tokens", CHAT | MESSAGES, KIND_LIMIT, AT(max_tokens), 1, 2147483647 },
    { "max_tokens", TEXT, KIND_LIMIT, AT(max_tokens), 0, 2147483647 },
    { "max_completion_tokens", CHAT, KIND_LIMIT, AT(max_tokens), 1, 2147483647 },
    { "n_predict", LLAMACPP, KIND_LIMIT, AT(max_tokens), 0, 2147483647 },
    { "num_predict", OPTIONS, KIND_LIMIT, AT(max_tokens), 1, 2147483647 },
    { "temperature", SAMPLES, KIND_FLOAT, AT(sampling.temperature), 0, 100 },
    { "top_p", SAMPLES, KIND_FLOAT, AT(sampling.top_p), 0, 1 },
    { "top_k", SAMPLES, KIND_LIMIT, AT(sampling.top_k), 0, 2147483647 },
    { "min_p", SAMPLES, KIND_FLOAT, AT(sampling.min_p), 0, 1 },
    { "presence_penalty", SAMPLES, KIND_FLOAT, AT(sampling.presence_penalty), -100, 100 },
    { "frequency_penalty", SAMPLES, KIND_FLOAT, AT(sampling.frequency_penalty), -100, 100 },
    { "repeat_penalty", SAMPLES, KIND_FLOAT, AT(sampling.repeat_penalty), 0.01, 100 },
    { "repetition_penalty", OPENAI | MESSAGES | RESPONSES, KIND_FLOAT, AT(sampling.repeat_penalty), 0.01, 100 },
    { "cache_salt", ANSWERS, KIND_TEXT, AT(cache_salt), 0, 0 },
    { "priority", ANSWERS, KIND_U32, AT(priority), 0, 1000 },
    { "deadline_ms", ANSWERS | DIALECTS_EMBED, KIND_U32, AT(deadline_ms), 1, 4294967295.0 },
    { "n", OPENAI, KIND_U32, AT(n), 1, 1024 },
    { "best_of", TEXT, KIND_U32, AT(best_of), 1, 1024 },
    { "stream", ANSWERS, KIND_BOOL, AT(stream), 0, 0 },
    { "logprobs", CHAT | OLLAMA, KIND_BOOL, AT(logprobs), 0, 0 },
    { "top_logprobs", CHAT | OLLAMA, KIND_U32, AT(top_logprobs), 0, API_REQUEST_MAX_TOP_LOGPROBS },
    { "n_probs", LLAMACPP, KIND_U32, AT(top_logprobs), 0, API_REQUEST_MAX_TOP_LOGPROBS },
    { "return_tokens", LLAMACPP, KIND_BOOL, AT(return_tokens), 0, 0 },
    { "input_prefix", INFILL, KIND_TEXT, AT(prefix), 0, 0 },
    { "input_suffix", INFILL, KIND_TEXT, AT(suffix), 0, 0 },
    { "input_extra", INFILL, KIND_VALUE, AT(files), 0, 0 },
    { "suffix", TEXT | OLLAMA_TEXT, KIND_TEXT, AT(suffix), 0, 0 },
    { "raw", OLLAMA_TEXT, KIND_BOOL, AT(raw), 0, 0 },
    { "echo", TEXT, KIND_BOOL, AT(echo), 0, 0 },
    { "ignore_eos", OPENAI | MESSAGES | RESPONSES | LLAMACPP, KIND_BOOL, AT(ignore_eos), 0, 0 },
    { "chat_template_kwargs", CONVERSATIONS | RESPONSES, KIND_OBJECT, AT(kwargs), 0, 0 },
    { "strict", ALL, KIND_BOOL, AT(strict), 0, 0 },
    { "add_generation_prompt", CHAT | TEMPLATE, KIND_NOT, AT(no_generation_prompt), 0, 0 },
    { "parallel_tool_calls", CHAT | RESPONSES, KIND_NOT, AT(one_call), 0, 0 },
    { "grammar", OPENAI | RESPONSES | LLAMACPP, KIND_TEXT, AT(grammar), 0, 0 },
    { "json_schema", OPENAI | LLAMACPP, KIND_OBJECT, AT(schema), 0, 0 },
    { "reasoning_effort", CHAT, KIND_TEXT, AT(effort), 0, 0 },
    { "encoding_format", EMBED, KIND_TEXT, AT(encoding), 0, 0 },
    { "dimensions", EMBED | OLLAMA_EMBED, KIND_U32, AT(dimensions), 1, 1 << 20 },
    { "pooling", EMBED, KIND_TEXT, AT(pooling), 0, 0 },
    { "query", RERANK, KIND_TEXT, AT(query), 0, 0 },
    { "instruction", EMBED | RERANK, KIND_TEXT, AT(instruction), 0, 0 },
    { "documents", RERANK, KIND_VALUE, AT(input), 0, 0 },
    { "top_n", RERANK, KIND_U32, AT(top_n), 1, 1 << 20 },
    { "return_documents", RERANK, KIND_BOOL, AT(return_documents), 0, 0 },
};
// clang-format on

// Known by name alone.
struct field_name {
    const char *name;
    unsigned dialects;
};

static const struct field_name ignored[] = {
    // cannot change an answer
    { "user", ALL },
    { "metadata", ALL },
    { "safety_identifier", OPENAI | RESPONSES },
    { "prompt_cache_key", OPENAI | RESPONSES },
    { "prompt_cache_retention", OPENAI | RESPONSES },
    { "prediction", CHAT },         // would only save time
    { "cache_control", ANTHROPIC }, // everything is cached
    { "cache_prompt", LLAMACPP },
    { "id_slot", LLAMACPP },
    { "slot_id", LLAMACPP },
    { "min_keep", LLAMACPP }, // the likeliest token is always kept
    { "n_keep", LLAMACPP },   // nothing is ever dropped from a context
    { "num_keep", OPTIONS },
    { "keep_alive", OLLAMA | OLLAMA_EMBED }, // the model stays loaded
    // settings for loading the model, which is loaded already
    { "num_ctx", OPTIONS },
    { "num_batch", OPTIONS },
    { "num_gpu", OPTIONS },
    { "main_gpu", OPTIONS },
    { "num_thread", OPTIONS },
    { "numa", OPTIONS },
    { "low_vram", OPTIONS },
    { "f16_kv", OPTIONS },
    { "use_mmap", OPTIONS },
    { "use_mlock", OPTIONS },
    // parameters of samplers that another field switches on
    { "mirostat_tau", OPTIONS | LLAMACPP },
    { "mirostat_eta", OPTIONS | LLAMACPP },
    { "dynatemp_exponent", LLAMACPP },
    { "xtc_threshold", LLAMACPP },
    { "dry_base", LLAMACPP },
    { "dry_allowed_length", LLAMACPP },
    { "dry_penalty_last_n", LLAMACPP },
    { "dry_sequence_breakers", LLAMACPP },
};

static const struct field_name unsupported[] = {
    // known, and not supported
    { "include", RESPONSES },
    { "modalities", CHAT },
    { "audio", CHAT },
    { "web_search_options", CHAT },
    { "max_tool_calls", RESPONSES },
    { "top_logprobs", RESPONSES },
    { "conversation", RESPONSES },
    { "prompt", RESPONSES },
    { "container", MESSAGES },
    { "context_management", ANTHROPIC },
    { "mcp_servers", ANTHROPIC },
    { "typical_p", OPTIONS | LLAMACPP },
    { "tfs_z", OPTIONS },
    { "mirostat", OPTIONS | LLAMACPP },
    { "penalize_newline", OPTIONS },
    { "dynatemp_range", LLAMACPP },
    { "top_n_sigma", LLAMACPP },
    { "xtc_probability", LLAMACPP },
    { "dry_multiplier", LLAMACPP },
    { "samplers", LLAMACPP },
    { "lora", LLAMACPP },
    { "post_sampling_probs", LLAMACPP },
    { "response_fields", LLAMACPP },
    { "return_progress", LLAMACPP },
    { "timings_per_token", LLAMACPP },
    { "t_max_predict_ms", LLAMACPP },
    { "n_indent", LLAMACPP },
    { "template", OLLAMA_TEXT },
    { "context", OLLAMA_TEXT },
    { "truncate", OLLAMA | OLLAMA_EMBED },
    { "shift", OLLAMA },
    { "functions", CHAT },
    { "function_call", CHAT },
    { "service_tier", ANSWERS },
    { "store", CHAT | RESPONSES },
    { "previous_response_id", RESPONSES },
    { "background", RESPONSES },
    { "truncation", RESPONSES },
    { "verbosity", CHAT },
};

static const char *type_name(const json_t *value)
{
    static const char *const names[] = { "an object", "a list", "a string", "an integer",
                                         "a number",  "true",   "false",    "null" };
    return names[json_typeof(value)];
}

static bool wrong_type(const char *name, const char *expected, const json_t *value, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s is %s; want %s", name, type_name(value), expected);
}

static bool read_u32(const struct field *f, json_t *value, u32 *to, struct err *err)
{
    if (!json_is_integer(value))
        return wrong_type(f->name, "an integer", value, err);
    json_int_t n = json_integer_value(value);
    if ((double)n < f->min || (double)n > f->max)
        return err_set(err, ERR_INPUT, "%s is %lld; want %.0f to %.0f", f->name, (long long)n, f->min,
                       f->max);
    *to = (u32)n;
    return true;
}

static bool read_float(const struct field *f, json_t *value, float *to, struct err *err)
{
    if (!json_is_number(value))
        return wrong_type(f->name, "a number", value, err);
    double x = json_number_value(value);
    if (!(x >= f->min && x <= f->max))
        return err_set(err, ERR_INPUT, "%s is %g; want %g to %g", f->name, x, f->min, f->max);
    *to = (float)x;
    return true;
}

static bool add_stop(struct api_request *request, const char *name, json_t *value, struct err *err)
{
    const struct server_limits *limits = request->limits;
    u32 most = limits->n_stops < 64 ? limits->n_stops : 64;

    if (!json_is_string(value))
        return wrong_type(name, "a string or a list of strings", value, err);
    if (request->n_stops == most)
        return err_set(err, ERR_INPUT, "%s has more than %u strings", name, most);
    if (json_string_length(value) == 0)
        return err_set(err, ERR_INPUT, "%s[%u] is empty; leave it out", name, request->n_stops);
    if (json_string_length(value) > limits->stop_bytes)
        return err_set(err, ERR_INPUT, "%s[%u] has %zu bytes; at most %u", name, request->n_stops,
                       json_string_length(value), limits->stop_bytes);
    request->stops[request->n_stops++] = json_string_value(value);
    return true;
}

static bool take_stops(struct api_request *request, const char *name, json_t *value, struct err *err)
{
    json_t *item;
    size_t i;

    request->stop_list = json_incref(value);
    if (!json_is_array(value))
        return add_stop(request, name, value, err);
    json_array_foreach(value, i, item)
    {
        if (!add_stop(request, name, item, err))
            return false;
    }
    return true;
}

bool api_request_warn(struct api_request *request, struct err *err, const char *format, ...)
{
    char text[400];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (request->strict)
        return err_set(err, ERR_INPUT, "%s (strict)", text);
    if (json_array_size(request->warnings) == 32)
        return true;
    return json_array_append_new(request->warnings, sse_text(text)) == 0 || err_memory(err, "warnings");
}

static bool take_stream_options(struct api_request *request, const char *field, json_t *value,
                                struct err *err)
{
    const char *name;
    json_t *option;

    if (!json_is_object(value))
        return wrong_type(field, "an object", value, err);
    json_object_foreach(value, name, option)
    {
        bool known = !strcmp(name, "include_usage");
        if (known && !json_is_boolean(option) && !json_is_null(option))
            return wrong_type("stream_options.include_usage", "true or false", option, err);
        if (known)
            request->include_usage = json_is_true(option);
        else if (strcmp(name, "include_obfuscation") != 0 &&
                 !api_request_warn(request, err, "stream_options.%.60s is not known", name))
            return false;
    }
    return true;
}

// A field whose value requests nothing needs no warning.
static bool asks_for_nothing(const char *name, const json_t *value)
{
    static const char *const nothing[] = { "", "none", "auto", "default", "disabled", "standard_only" };
    static const struct {
        const char *name;
        double value;
    } neutral[] = { { "top_logprobs", 0 },    { "typical_p", 1 },      { "tfs_z", 1 },
                    { "mirostat", 0 },        { "n_indent", 0 },       { "dynatemp_range", 0 },
                    { "xtc_probability", 0 }, { "dry_multiplier", 0 }, { "t_max_predict_ms", 0 },
                    { "top_n_sigma", -1 } };
    const char *text = json_string_value(value);

    if (json_is_false(value) || (json_is_array(value) && json_array_size(value) == 0) ||
        (json_is_object(value) && json_object_size(value) == 0))
        return true;
    if (!strcmp(name, "modalities"))
        return json_array_size(value) == 1 && json_is_string(json_array_get(value, 0)) &&
               !strcmp(json_string_value(json_array_get(value, 0)), "text");
    for (size_t i = 0; json_is_number(value) && i < sizeof neutral / sizeof *neutral; i++)
        if (!strcmp(name, neutral[i].name))
            return json_number_value(value) == neutral[i].value;
    for (size_t i = 0; text && i < sizeof nothing / sizeof *nothing; i++)
        if (!strcmp(text, nothing[i]))
            return true;
    return false;
}

static bool take_seed(struct api_request *request, const char *name, json_t *value, struct err *err)
{
    bool any = request->dialect & (DIALECTS_LLAMACPP | DIALECTS_OLLAMA) && json_integer_value(value) == -1;

    request->has_seed = !any;
    request->seed = json_integer_value(value);
    return json_is_integer(value) || wrong_type(name, "an integer", value, err);
}

static bool take_window(struct api_request *request, const char *name, json_t *value, struct err *err)
{
    const struct field f = { name, ALL, KIND_U32, 0, 0, MAX_PENALTY_WINDOW };

    request->penalty_window = MAX_PENALTY_WINDOW;
    return json_integer_value(value) == -1 || read_u32(&f, value, &request->penalty_window, err);
}

static bool take_text_logprobs(struct api_request *request, const char *name, json_t *value, struct err *err)
{
    const struct field f = { name, TEXT, KIND_U32, 0, 0, API_REQUEST_MAX_TOP_LOGPROBS };

    request->logprobs = true;
    return read_u32(&f, value, &request->top_logprobs, err);
}

static bool take_continue(struct api_request *request, const char *name, json_t *value, struct err *err)
{
    request->continues = json_is_true(value) ? CONTINUE_ALWAYS : CONTINUE_NEVER;
    return json_is_boolean(value) || wrong_type(name, "true or false", value, err);
}

static bool take_metadata(struct api_request *request, const char *name, json_t *value, struct err *err)
{
    (void)request;
    return json_is_object(value) || wrong_type(name, "an object", value, err);
}

static const struct custom_field {
    const char *name;
    unsigned dialects;
    bool (*take)(struct api_request *request, const char *name, json_t *value, struct err *err);
} custom_fields[] = {
    // read by a function of their own
    { "seed", SAMPLES, take_seed },
    { "repeat_last_n", SAMPLES, take_window },
    { "stop", OPENAI | LLAMACPP | OPTIONS, take_stops },
    { "options", OLLAMA | OLLAMA_EMBED, api_request_take_options },
    { "format", OLLAMA, api_request_take_ollama_format },
    { "think", OLLAMA, api_request_take_think },
    { "images", OLLAMA_TEXT, api_request_take_images },
    { "stop_sequences", MESSAGES, take_stops },
    { "stream_options", OPENAI, take_stream_options },
    { "logprobs", TEXT, take_text_logprobs },
    { "tools", CONVERSATIONS | RESPONSES, api_request_take_tools },
    { "tool_choice", CHAT | ANTHROPIC | RESPONSES, api_request_take_choice },
    { "response_format", OPENAI, api_request_take_format },
    { "text", RESPONSES, api_request_take_format },
    { "output_config", ANTHROPIC, api_request_take_format },
    { "logit_bias", OPENAI | LLAMACPP, api_request_take_bias },
    { "reasoning", RESPONSES, api_request_take_reasoning },
    { "thinking", ANTHROPIC, api_request_take_thinking },
    { "metadata", RESPONSES, take_metadata },
    { "continue_final_message", CONVERSATIONS | RESPONSES, take_continue },
};

static bool read_plain(struct api_request *request, const struct field *f, json_t *value, struct err *err)
{
    void *to = (char *)request + f->at;

    switch (f->kind) {
    case KIND_LIMIT:
        *(u32 *)to = 0;
        return json_integer_value(value) == -1 || read_u32(f, value, to, err);
    case KIND_U32:
        return read_u32(f, value, to, err);
    case KIND_FLOAT:
        return read_float(f, value, to, err);
    case KIND_BOOL:
    case KIND_NOT:
        *(bool *)to = f->kind == KIND_BOOL ? json_is_true(value) : json_is_false(value);
        return json_is_boolean(value) || wrong_type(f->name, "true or false", value, err);
    case KIND_TEXT:
        *(const char **)to = json_string_value(value);
        return json_is_string(value) || wrong_type(f->name, "a string", value, err);
    case KIND_VALUE:
    case KIND_OBJECT:
        *(json_t **)to = value;
        return f->kind == KIND_VALUE || json_is_object(value) || wrong_type(f->name, "an object", value, err);
    }
    return true;
}

#define N_OF(table) (sizeof(table) / sizeof *(table))

enum table { IN_FIELDS, IN_CUSTOM, IN_IGNORED, IN_UNSUPPORTED, IN_NONE };

// The table that has this field in one of the dialects, and its index there.
static enum table find_field(struct str name, unsigned dialects, size_t *at)
{
    for (*at = 0; *at < N_OF(fields); ++*at)
        if (fields[*at].dialects & dialects && str_is(name, fields[*at].name))
            return IN_FIELDS;
    for (*at = 0; *at < N_OF(custom_fields); ++*at)
        if (custom_fields[*at].dialects & dialects && str_is(name, custom_fields[*at].name))
            return IN_CUSTOM;
    for (*at = 0; *at < N_OF(ignored); ++*at)
        if (ignored[*at].dialects & dialects && str_is(name, ignored[*at].name))
            return IN_IGNORED;
    for (*at = 0; *at < N_OF(unsupported); ++*at)
        if (unsupported[*at].dialects & dialects && str_is(name, unsupported[*at].name))
            return IN_UNSUPPORTED;
    return IN_NONE;
}

bool api_request_knows(unsigned dialect, struct str name)
{
    size_t at;
    return find_field(name, dialect, &at) != IN_NONE;
}

bool api_request_read_field(struct api_request *request, unsigned dialects, const char *name, json_t *value,
                            struct err *err)
{
    size_t at;

    if (json_is_null(value))
        return true;
    switch (find_field(str_from(name), dialects, &at)) {
    case IN_FIELDS:
        return read_plain(request, &fields[at], value, err);
    case IN_CUSTOM:
        return custom_fields[at].take(request, name, value, err);
    case IN_IGNORED:
        return true;
    case IN_UNSUPPORTED:
        return asks_for_nothing(name, value) ||
               api_request_warn(request, err, "%s is not honoured by this version", name);
    case IN_NONE:
        break;
    }
    return api_request_warn(request, err, "the field '%.60s' is not known", name);
}

double api_request_number(float setting)
{
    double number = (double)setting;
    char text[32];

    snprintf(text, sizeof text, "%.7g", number);
    str_to_f64(str_from(text), &number);
    return number;
}

bool api_request_param(const char *message, char param[API_REQUEST_PARAM_BYTES])
{
    size_t n = strcspn(message, ": "), n_name = strcspn(message, ": .["), at;

    if (n >= API_REQUEST_PARAM_BYTES || find_field((struct str){ message, n_name }, ~0u, &at) == IN_NONE)
        return false;
    snprintf(param, API_REQUEST_PARAM_BYTES, "%.*s", (int)n, message);
    return true;
}

// Two names of one field with two values: which one counts would be a guess.
static bool check_pairs(const struct api_request *request, struct err *err)
{
    static const char *const pairs[][2] = { { "max_tokens", "max_completion_tokens" },
                                            { "repeat_penalty", "repetition_penalty" },
                                            { "json_schema", "response_format" } };

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        json_t *a = json_object_get(request->body, pairs[i][0]),
               *b = json_object_get(request->body, pairs[i][1]);
        if (a && b && !json_is_null(a) && !json_is_null(b) && !json_equal(a, b))
            return err_set(err, ERR_INPUT, "%s and %s differ; give one of them", pairs[i][0], pairs[i][1]);
    }
    return true;
}

// How many answers are generated, and how many are returned.
static bool check_counts(struct api_request *request, struct err *err)
{
    const char *name = request->best_of ? "best_of" : "n";

    request->n_per_prompt = request->best_of ? request->best_of : request->n;
    if (request->n_per_prompt > request->limits->n_choices)
        return err_set(err, ERR_INPUT, "%s is %u; at most %u", name, request->n_per_prompt,
                       request->limits->n_choices);
    if (request->n_per_prompt < request->n)
        return err_set(err, ERR_INPUT, "best_of is %u, less than n, which is %u", request->best_of,
                       request->n);
    if (request->n_per_prompt > request->n && request->stream)
        return err_set(err, ERR_INPUT,
                       "best_of is above n: the best is known when all are done; leave out stream");
    return true;
}

static bool check_echo(struct api_request *request, struct err *err)
{
    bool text = request->dialect == DIALECT_TEXT;
    json_t *most = json_object_get(request->body, text ? "max_tokens" : "n_predict");

    request->echo_only = (text || request->dialect & DIALECTS_LLAMACPP) && json_is_integer(most) &&
                         json_integer_value(most) == 0;
    if (!request->echo_only)
        return true;
    if (text && !request->echo)
        return err_set(err, ERR_INPUT, "max_tokens is 0 and echo is not set: that asks for nothing");
    request->max_tokens = 1;
    request->ignore_eos = true;
    return true;
}

static bool check_present(const struct api_request *request, struct err *err)
{
    if ((request->dialect & CONVERSATIONS) && !request->messages && !request->loads_only)
        return err_set(err, ERR_INPUT, "messages is missing");
    if (request->dialect & (TEXT | DIALECT_NATIVE) && !request->prompt)
        return err_set(err, ERR_INPUT, "prompt is missing");
    if (request->dialect == DIALECT_INFILL && !request->prefix && !request->suffix)
        return err_set(err, ERR_INPUT,
                       "input_prefix and input_suffix are missing; give one of them, or both");
    if (request->dialect == DIALECT_MESSAGES &&
        !json_is_integer(json_object_get(request->body, "max_tokens")))
        return err_set(err, ERR_INPUT, "max_tokens is missing");
    if (request->dialect == DIALECT_RERANK)
        return request->query ? json_array_size(request->input) > 0 ||
                                    err_set(err, ERR_INPUT, "documents: want a list of texts, at least one")
                              : err_set(err, ERR_INPUT, "query is missing");
    return !(request->dialect & (DIALECT_RESPONSES | DIALECTS_EMBED)) || request->input ||
           err_set(err, ERR_INPUT, "input is missing");
}

static bool check_whole(struct api_request *request, struct err *err)
{
    if (request->dialect != DIALECT_INFILL && request->suffix && !*request->suffix)
        request->suffix = NULL;
    if (request->dialect & DIALECTS_OLLAMA && !api_request_finish_ollama(request, err))
        return false;
    if (!check_present(request, err))
        return false;
    if (request->dialect & DIALECTS_EMBED)
        request->prompt = request->input;
    if (request->return_documents)
        request->documents = json_incref(request->input);
    if (request->dialect & DIALECTS_LLAMACPP)
        request->logprobs = request->top_logprobs > 0;
    if (request->top_logprobs && !request->logprobs)
        return err_set(err, ERR_INPUT, "top_logprobs needs logprobs: true");
    request->sampling.penalty_window = request->penalty_window;
    return check_counts(request, err) && check_echo(request, err) && check_pairs(request, err) &&
           api_request_check_tools(request, err);
}

static bool read_all(struct api_request *request, struct err *err)
{
    bool server_strict = request->strict;
    const char *name;
    json_t *value;

    // Read before the fields that it applies to.
    request->strict |= json_is_true(json_object_get(request->body, "strict"));
    json_object_foreach(request->body, name, value)
    {
        if (!api_request_read_field(request, request->dialect, name, value, err))
            return false;
        request->strict |= server_strict; // a request cannot switch off the server's strictness
    }
    return check_whole(request, err);
}

static json_t *repeated_fields(json_t *body)
{
    static const char *const names[] = { "instructions", "max_output_tokens", "metadata", "tool_choice",
                                         "tools" };
    json_t *repeated = json_object(), *text = json_object_get(body, "text");

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!json_is_null(json_object_get(body, names[i])))
            json_object_set(repeated, names[i], json_object_get(body, names[i]));
    if (json_is_object(json_object_get(text, "format")))
        json_object_set(repeated, "text", text);
    return repeated;
}

bool api_request_read(struct api_request *request, enum dialect dialect, json_t *body,
                      const struct server_limits *limits, struct err *err)
{
    struct ingot_request_options defaults = ingot_request_defaults();
    bool strict = request->strict;

    *request =
        (struct api_request){ .dialect = dialect,
                              .body = body,
                              .warnings = json_array(),
                              .strict = strict,
                              .limits = limits,
                              .n = 1,
                              .stream = dialect & DIALECTS_OLLAMA, // as Ollama does unless told otherwise
                              .sampling = defaults.sampling,
                              .penalty_window = defaults.sampling.penalty_window };
    if (!json_is_object(body))
        err_set(err, ERR_INPUT, "the body is %s; want a JSON object", type_name(body));
    else if (read_all(request, err)) {
        request->repeated = dialect & RESPONSES ? repeated_fields(body) : NULL;
        return true;
    }
    api_request_release(request);
    return false;
}

void api_request_release(struct api_request *request)
{
    json_decref(request->body);
    json_decref(request->warnings);
    json_decref(request->tools);
    json_decref(request->stop_list);
    json_decref(request->repeated);
    json_decref(request->documents);
    mem_free(request->bias);
    pictures_release(&request->pictures);
    *request = (struct api_request){ 0 };
}

void api_request_forget_body(struct api_request *request)
{
    json_decref(request->body);
    pictures_release(&request->pictures);
    request->body = request->images = request->messages = request->prompt = request->kwargs =
        request->system = request->input = request->reasoning = request->schema = request->allowed =
            request->files = NULL;
    request->model = request->tool = request->grammar = request->effort = request->encoding =
        request->pooling = request->cache_salt = request->prefix = request->suffix = request->query =
            request->instruction = NULL;
    request->n_stops = 0;
}
