// settings.c - the option tables. Flags are spelt as llama.cpp spells them where they mean the same.
#include "main/settings.h"

#define AT(field) offsetof(struct settings, field)
// clang-format off
static const struct option general_options[] = {
    { "-h --help", OPTION_FLAG, AT(help), NULL, NULL, 0, 0, NULL, "this help" },
    { "--config", OPTION_STRING, AT(config), "FILE", NULL, 0, 0, NULL, "read options from FILE instead of ~/.config/ingot/config" },
    { "--log", OPTION_CHOICE, AT(log), "LEVEL", "warn", 0, 0, "error warn info debug", "messages on stderr" },
    { "-v --verbose", OPTION_FLAG, AT(verbose), NULL, NULL, 0, 0, NULL, "the same as --log info" },
    { 0 },
};

static const struct option model_options[] = {
    { "-m --model", OPTION_STRING, AT(model), "MODEL", NULL, 0, 0, NULL, "GGUF file, safetensors folder, or a name: user/repo[:QUANT][@REVISION]; without it the toy inside ingot" },
    { "-c --ctx-size", OPTION_U32, AT(n_context), "N", "0", 0, 16777216, NULL, "tokens of context; 0: the model's own limit, at most 8192" },
    { "-mm --mmproj", OPTION_STRING, AT(mmproj), "FILE", NULL, 0, 0, NULL, "the eyes of a GGUF model; without it the only mmproj*.gguf beside the model; a safetensors folder holds its own" },
    { "--no-mmproj --no-mmproj-auto", OPTION_FLAG, AT(no_mmproj), NULL, NULL, 0, 0, NULL, "take no mmproj file: the model reads text alone" },
    { 0 },
};

// Options that bench has as lists.
static const struct option place_options[] = {
    { "-t --threads", OPTION_U32, AT(n_threads), "N", "0", 0, 0, "-1", "threads, at most one for each processor that this process may use; 0: all of them" },
    { "-b --batch-size", OPTION_U32, AT(n_batch), "N", "0", 0, 65536, NULL, "rows of one step at most; 0: ingot chooses" },
    { "-dev --device", OPTION_STRING, AT(device), "NAME", "auto", 0, 0, NULL, "auto (GPUs if there are, and the processor for what has no room there), cpu, cuda, cuda:1, metal (emulator-tested, not yet run on Apple hardware), or cpu:plain, the plain loops that define every operation; several, as in cuda:0,cpu, share the layers" },
    { "-ctk --cache-type-k", OPTION_CHOICE, AT(cache_type_k), "TYPE", "auto", 0, 0, "auto f32 f16 bf16 q8_0", "format of K in the KV pages; auto: f16, or bf16 on a processor that multiplies it, or f32 with --exact" },
    { "-ctv --cache-type-v", OPTION_CHOICE, AT(cache_type_v), "TYPE", "auto", 0, 0, "auto f32 f16 bf16 q8_0", "format of V in the KV pages" },
    { 0 },
};

static const struct option kernel_options[] = {
    { "-ub --ubatch-size", OPTION_U32, AT(n_ubatch), "N", "0", 0, 65536, NULL, "the same as -b; the smaller of the two holds" },
    { "-ngl --gpu-layers --n-gpu-layers", OPTION_STRING, AT(n_gpu_layers), "N", NULL, 0, 0, NULL, "0: with -dev auto the processor; any other number changes nothing: -dev says where the model goes" },
    { "--exact", OPTION_FLAG, AT(exact), NULL, NULL, 0, 0, NULL, "activations stay fp32 in products with quantised weights: slower" },
    { "--invariant", OPTION_FLAG, AT(invariant), NULL, NULL, 0, 0, NULL, "GPUs: the same bits alone, in any batch and in any chunks, as the processor always gives: slower" },
    { "--gemm", OPTION_CHOICE, AT(gemm), "WHOSE", "auto", 0, 0, "auto own vendor", "kernels that multiply the many rows of a prompt on a GPU: ingot's, or the vendor's library (cuBLAS), for comparison; auto: ingot's" },
    { "-nr --no-repack", OPTION_FLAG, AT(no_repack), NULL, NULL, 0, 0, NULL, "use weights as they lie in the file: less memory, slower" },
    { "--stages", OPTION_STRING, AT(stages), "LIST", NULL, 0, 0, NULL, "layers at which a new stage begins, such as 4,8; with several devices, or ranks of mpirun, at which the next one takes over; without it ingot chooses (see ingot help plan)" },
    { "-tp --tensor-parallel", OPTION_U32, AT(n_tensor_parallel), "N", "1", 1, 8, NULL, "each of N ranks has a part of every layer, on a device of its own: --device names one for each, or one for all, whose threads they share (see docs/devices.md)" },
    { "--speculate", OPTION_CHOICE, AT(speculate), "WHEN", "auto", 0, 0, "auto off always", "speculative decoding: tokens drafted from what the text has said before are checked in one step, and the answer is the same; auto: while steps that are timed show a gain" },
    { "-md --model-draft --draft", OPTION_STRING, AT(draft), "MODEL", NULL, 0, 0, NULL, "a smaller model of the same vocabulary that drafts where the text repeats nothing" },
    { "--draft-max --draft-n", OPTION_U32, AT(draft_most), "N", "7", 1, 7, NULL, "drafted tokens of an answer and step at most" },
    { "--experts", OPTION_STRING, AT(experts), "WHERE", NULL, 0, 0, NULL, "cpu: the processor computes the experts of a mixture from the host's memory, the device the rest; cpu:N: those of the last N layers; none: never. When it is not given, as few layers' as must be, where the device has no room for all" },
    { "--for", OPTION_CHOICE, AT(aim), "WHAT", "auto", 0, 0, "auto one many", "what layers are placed for over several devices: the least time of one answer, or the most tokens of many; auto: of many with more than two sequences" },
    { "--probe", OPTION_FLAG, AT(probe_anew), NULL, NULL, 0, 0, NULL, "time the layers on every device anew, instead of taking what was found before (~/.cache/ingot/probes.json)" },
    { "--limits", OPTION_STRING, AT(limits), "LIST", NULL, 0, 0, NULL, "how much of the machine may be used: conservative, balanced or aggressive, then keys such as compute=0.5,nice=10,cpu=0.7 (see docs/limits.md); without it no limits" },
    { "--commit-every", OPTION_U32, AT(commit_every), "N", "0", 0, 100000, NULL, "metal: commands in a command buffer, the first of which is short; 0: at most 4 command buffers a step" },
    { 0 },
};

static const struct option lora_options[] = {
    { "--lora --lora-scaled", OPTION_LIST, AT(loras), "FILE[:SCALE]", NULL, 0, 0, NULL, "a LoRA adapter, a GGUF file or a folder of PEFT's, and how much it adds, 1 by default; NAME=FILE gives it a name; may be given more than once. run and bench use all of them, serve those that a request names, as in model:adapter" },
    { 0 },
};

static const struct option cache_options[] = {
    { "--no-cache-prompt", OPTION_FLAG, AT(no_prefix_cache), NULL, NULL, 0, 0, NULL, "compute every prompt anew, also what another began with" },
    { "--cache-dir", OPTION_STRING, AT(cache_dir), "DIR", NULL, 0, 0, NULL, "keep prompts there, so that the next start need not compute them again" },
    { "--cache-limit", OPTION_U32, AT(cache_gib), "GIB", "10", 1, 1048576, NULL, "that the files of --cache-dir may take; the longest unused go first" },
    { 0 },
};

static const struct option name_options[] = {
    { "-hf -hfr --hf-repo", OPTION_STRING, AT(hub_name), "NAME", NULL, 0, 0, NULL, "the model of this name; wins over -m, and is never a file" },
    { "--offline", OPTION_FLAG, AT(offline), NULL, NULL, 0, 0, NULL, "take models by name from the cache only; so does HF_HUB_OFFLINE=1" },
    { 0 },
};

static const struct option pull_options[] = {
    { "--offline", OPTION_FLAG, AT(offline), NULL, NULL, 0, 0, NULL, "no network: print the path of the model in the cache; so does HF_HUB_OFFLINE=1" },
    { "-q --quiet", OPTION_FLAG, AT(quiet), NULL, NULL, 0, 0, NULL, "no line of figures at the end" },
    { 0 },
};

static const struct option prompt_options[] = {
    { "-p --prompt", OPTION_STRING, AT(prompt), "TEXT", NULL, 0, 0, NULL, "answer TEXT and leave" },
    { "-e --escape", OPTION_FLAG, AT(escape), NULL, NULL, 0, 0, NULL, "in TEXT of -p, \\n, \\t, \\r, \\\", \\' and \\\\ stand for what they do in C" },
    { "-f --file", OPTION_STRING, AT(file), "FILE", NULL, 0, 0, NULL, "take the prompt from FILE, after -p's text if both are given; -: stdin" },
    { "-sys --system --system-prompt", OPTION_STRING, AT(system), "TEXT", NULL, 0, 0, NULL, "the system prompt" },
    { "-sysf --system-prompt-file", OPTION_STRING, AT(system_file), "FILE", NULL, 0, 0, NULL, "the same from FILE" },
    { "--image", OPTION_LIST, AT(images), "FILE", NULL, 0, 0, NULL, "a picture (PNG, JPEG or WebP) before the text of -p, or of a chat's first message; may be given more than once" },
    { "--image-no-split", OPTION_FLAG, AT(no_split), NULL, NULL, 0, 0, NULL, "read each picture as one tile: faster, with fewer details" },
    { "-cnv --conversation", OPTION_FLAG, AT(chat), NULL, NULL, 0, 0, NULL, "go on with a chat after the answer to -p, -f or a pipe" },
    { "-st --single-turn", OPTION_FLAG, AT(one_turn), NULL, NULL, 0, 0, NULL, "leave a chat after the first answer" },
    { "-no-cnv --no-chat --no-conversation", OPTION_FLAG, AT(no_chat), NULL, NULL, 0, 0, NULL, "continue the text as it is, without the chat template" },
    { "--record", OPTION_STRING, AT(record), "FILE", NULL, 0, 0, NULL, "keep the last answer with its prompt, parameters and settings in FILE, for ingot verify --replay" },
    { "-sp --special", OPTION_FLAG, AT(special), NULL, NULL, 0, 0, NULL, "with --no-chat: control tokens written in the prompt count as such" },
    { 0 },
};

// A chat can change these, and those of sampling_options.
static const struct option answer_options[] = {
    { "-n --predict --n-predict", OPTION_U32, AT(n_predict), "N", "0", 0, 0, "-1 -2", "tokens of an answer at most; 0 or -1: to the end of the context" },
    { "-r --stop --reverse-prompt", OPTION_LIST, AT(stop), "TEXT", NULL, 0, 0, NULL, "end the answer before TEXT; may be given more than once" },
    { "--ignore-eos", OPTION_FLAG, AT(ignore_eos), NULL, NULL, 0, 0, NULL, "go on after the end-of-sequence token" },
    { "--think", OPTION_CHOICE, AT(think), "HOW", "dim", 0, 0, "dim hide show", "thinking on a terminal: less bright and without its marks, not at all, or as the model writes it; hide leaves it out of a pipe, too" },
    { "--no-shift --no-context-shift", OPTION_FLAG, AT(no_shift), NULL, NULL, 0, 0, NULL, "refuse a message when the context is full, instead of leaving out the oldest turns" },
    { "-q --quiet", OPTION_FLAG, AT(quiet), NULL, NULL, 0, 0, NULL, "only the answer: no line on the model before it, none of figures after it" },
    { 0 },
};

static const struct option form_options[] = {
    { "--grammar", OPTION_STRING, AT(grammar), "GBNF", NULL, 0, 0, NULL, "the answer follows this grammar" },
    { "--grammar-file", OPTION_STRING, AT(grammar_file), "FILE", NULL, 0, 0, NULL, "the answer follows the grammar in FILE" },
    { "-j --json-schema", OPTION_STRING, AT(json_schema), "SCHEMA", NULL, 0, 0, NULL, "the answer is JSON that fulfils this schema" },
    { "-jf --json-schema-file", OPTION_STRING, AT(json_schema_file), "FILE", NULL, 0, 0, NULL, "the answer is JSON that fulfils the schema in FILE" },
    { "--json", OPTION_FLAG, AT(json), NULL, NULL, 0, 0, NULL, "one JSON object per line instead of text" },
    { 0 },
};

static const struct option sampling_options[] = {
    { "--temp --temperature", OPTION_FLOAT, AT(temperature), "X", "0.8", 0, 1000, NULL, "temperature; 0: always the likeliest token" },
    { "--top-k", OPTION_U32, AT(top_k), "N", "40", 0, 0, NULL, "only the N likeliest tokens; 0: off" },
    { "--top-p", OPTION_FLOAT, AT(top_p), "X", "0.95", 0, 1, NULL, "only the likeliest tokens that together reach X; 1: off" },
    { "--min-p", OPTION_FLOAT, AT(min_p), "X", "0.05", 0, 1, NULL, "only tokens at least X times as likely as the likeliest; 0: off" },
    { "--repeat-penalty", OPTION_FLOAT, AT(repeat_penalty), "X", "1", 0.01, 100, NULL, "above 1 makes tokens already seen less likely" },
    { "--presence-penalty", OPTION_FLOAT, AT(presence_penalty), "X", "0", -100, 100, NULL, "subtracted once from tokens already seen" },
    { "--frequency-penalty", OPTION_FLOAT, AT(frequency_penalty), "X", "0", -100, 100, NULL, "subtracted for each time a token was seen" },
    { "--repeat-last-n", OPTION_U32, AT(repeat_last_n), "N", "64", 0, 65536, NULL, "how many of the last tokens count as seen" },
    { "-s --seed", OPTION_U64, AT(seed), "N", "-1", 0, 0, "-1", "the same seed and prompt give the same answer; -1: a random one, which is printed" },
    { 0 },
};

static const struct option bench_options[] = {
    { "-p --n-prompt", OPTION_NUMBERS, AT(n_prompt), "N,...", "512", 0, 1000000, NULL, "prompt tokens of a prefill test; 0: none" },
    { "-n --n-gen", OPTION_NUMBERS, AT(n_gen), "N,...", "128", 0, 1000000, NULL, "tokens of a generation test; 0: none" },
    { "-pg --prompt-gen", OPTION_LIST, AT(prompt_gen), "P,G", NULL, 0, 0, NULL, "a test that reads P tokens and then generates G" },
    { "-d --n-depth", OPTION_NUMBERS, AT(depth), "N,...", "0", 0, 1000000, NULL, "tokens already in the context before a test" },
    { "-r --repetitions", OPTION_U32, AT(repetitions), "N", "5", 1, 10000, NULL, "how often each test runs" },
    { "-o --output", OPTION_CHOICE, AT(output), "FORMAT", "md", 0, 0, "md json jsonl csv", "with llama-bench's columns and field names" },
    { "--no-warmup", OPTION_FLAG, AT(no_warmup), NULL, NULL, 0, 0, NULL, "no untimed run before each test" },
    { "--peer", OPTION_LIST, AT(peers), "COMMAND", NULL, 0, 0, NULL, "run this llama-bench compatible program in turn with ingot and print the ratio; may be given more than once" },
    { "--image", OPTION_LIST, AT(images), "FILE|WxH", NULL, 0, 0, NULL, "measure a question about this picture instead, or about a drawn one of so many pixels, stage by stage; may be given more than once" },
    { "--image-no-split", OPTION_FLAG, AT(no_split), NULL, NULL, 0, 0, NULL, "with --image: read each picture as one tile" },
    { "--serve", OPTION_STRING, AT(serve_url), "URL", NULL, 0, 0, NULL, "drive the server there instead: prompts of -p words, answers of -n tokens, streamed" },
    { "--clients", OPTION_NUMBERS, AT(n_clients), "N,...", "1,4,16", 1, 256, NULL, "with --serve: clients at the same time" },
    { "--requests", OPTION_U32, AT(n_requests), "N", "0", 0, 1000000, NULL, "with --serve: requests of all clients together; 0: 4 each, at least 16" },
    { "--svg", OPTION_STRING, AT(svg), "FILE", NULL, 0, 0, NULL, "draw the results" },
    { "--api-key", OPTION_LIST, AT(api_keys), "KEY", NULL, 0, 0, NULL, "with --serve: the server's key" },
    { 0 },
};

// Every combination is measured, by an engine of its own.
static const struct option bench_place_options[] = {
    { "-t --threads", OPTION_NUMBERS, AT(bench_threads), "N,...", "0", 0, 0, NULL, "threads, at most one for each processor that this process may use; 0: all of them" },
    { "-b --batch-size", OPTION_NUMBERS, AT(bench_batch), "N,...", "0", 0, 65536, NULL, "rows of one step at most; 0: ingot chooses" },
    { "-dev --device", OPTION_LIST, AT(bench_device), "NAME,...", "auto", 0, 0, NULL, "auto, cpu, cuda, cuda:1, metal, or cpu:plain, the plain loops that define every operation; several joined by a slash, as in cuda:0/cuda:1, share the layers" },
    { "-ctk --cache-type-k", OPTION_LIST, AT(bench_type_k), "TYPE,...", "auto", 0, 0, "auto f32 f16 bf16 q8_0", "formats of K in the KV pages: auto, f32, f16, bf16, q8_0" },
    { "-ctv --cache-type-v", OPTION_LIST, AT(bench_type_v), "TYPE,...", "auto", 0, 0, "auto f32 f16 bf16 q8_0", "formats of V in the KV pages: the same" },
    { 0 },
};

static const struct option inspect_options[] = {
    { "--tensors", OPTION_FLAG, AT(tensors), NULL, NULL, 0, 0, NULL, "list every tensor" },
    { "--json", OPTION_FLAG, AT(json), NULL, NULL, 0, 0, NULL, "one JSON object with everything" },
    { "-m --model", OPTION_STRING, AT(model), "MODEL", NULL, 0, 0, NULL, "GGUF file, safetensors folder, or a name: user/repo[:QUANT][@REVISION]; without it the toy inside ingot" },
    { "-c --ctx-size", OPTION_U32, AT(n_context), "N", "0", 0, 16777216, NULL, "tokens of context to count memory for; 0: the model's own limit, at most 8192" },
    { 0 },
};

static const struct option tokenize_options[] = {
    { "-m --model", OPTION_STRING, AT(model), "MODEL", NULL, 0, 0, NULL, "GGUF file, safetensors folder, or a name: user/repo[:QUANT][@REVISION]; without it the toy inside ingot" },
    { "-p --prompt", OPTION_STRING, AT(prompt), "TEXT", NULL, 0, 0, NULL, "the text; else what -f names, else stdin" },
    { "-f --file", OPTION_STRING, AT(file), "FILE", NULL, 0, 0, NULL, "take the text from FILE; -: stdin" },
    { "--ids", OPTION_FLAG, AT(ids), NULL, NULL, 0, 0, NULL, "only the ids, as [1, 2, 3]" },
    { "--json", OPTION_FLAG, AT(json), NULL, NULL, 0, 0, NULL, "one JSON object with ids and pieces" },
    { "-sp --special", OPTION_FLAG, AT(special), NULL, NULL, 0, 0, NULL, "control tokens written in the text count as such" },
    { 0 },
};

static const struct option embed_options[] = {
    { "-f --file", OPTION_STRING, AT(file), "FILE", NULL, 0, 0, NULL, "a text in each line of FILE that is not empty, after those of the command line; -: stdin" },
    { "--whole", OPTION_FLAG, AT(whole), NULL, NULL, 0, 0, NULL, "FILE or stdin is one text" },
    { "--prefix --instruction", OPTION_STRING, AT(prefix), "TEXT", NULL, 0, 0, NULL, "put TEXT before each text, as the model's card asks for a query or a document; with --query the instruction of models that read one" },
    { "--pooling", OPTION_CHOICE, AT(pooling), "HOW", "auto", 0, 0, "auto mean cls last", "what is made of a text's rows: their mean, the first or the last; auto: as the model's file says, else the mean" },
    { "--dimensions", OPTION_U32, AT(dimensions), "N", "0", 0, 1048576, NULL, "the first N numbers alone, of a model that was trained for it; 0: all" },
    { "--normalize", OPTION_CHOICE, AT(normalize), "HOW", "l2", 0, 0, "l2 none", "make each vector's length 1, or leave it" },
    { "--query", OPTION_STRING, AT(query), "TEXT", NULL, 0, 0, NULL, "print how well each text answers TEXT, from 0 to 1, by a reranker" },
    { "--json", OPTION_FLAG, AT(json), NULL, NULL, 0, 0, NULL, "a JSON object in each line: index, n_tokens, and embedding or score" },
    { 0 },
};

static const struct option doctor_options[] = {
    { "--json", OPTION_FLAG, AT(json), NULL, NULL, 0, 0, NULL, "one JSON object instead of text" },
    { 0 },
};

static const struct option quantize_options[] = {
    { "--imatrix", OPTION_STRING, AT(imatrix), "FILE", NULL, 0, 0, NULL, "weigh errors by this importance matrix, from ingot imatrix or llama-imatrix" },
    { "--exl3", OPTION_U32, AT(exl3_bits), "BITS", NULL, 1, 8, NULL, "write INPUT, a folder of safetensors, as a folder of EXL3 with so many bits a weight; then there is no TYPE" },
    { "-f --file", OPTION_STRING, AT(file), "FILE", NULL, 0, 0, NULL, "with --exl3: a text that shows which columns matter; -: stdin" },
    { "--chunks", OPTION_U32, AT(n_chunks), "N", "0", 0, 0, "-1", "chunks of 512 tokens of that text that are read at most; 0 or -1: all" },
    { "-dev --device", OPTION_STRING, AT(device), "NAME", "auto", 0, 0, NULL, "with --exl3: what reads that text and searches the codes: auto (a GPU if there is one), cpu, cuda or cuda:1" },
    { "--tensor-type", OPTION_LIST, AT(tensor_types), "PATTERN=TYPE", NULL, 0, 0, NULL, "a format for the matrices whose names match the regular expression, such as ffn_down=Q6_K; may be given more than once, and the first that matches holds" },
    { "--dry-run", OPTION_FLAG, AT(dry_run), NULL, NULL, 0, 0, NULL, "write nothing: list each tensor, its format and bytes, and the sum; OUTPUT may be left out" },
    { "-t --threads", OPTION_U32, AT(n_threads), "N", "0", 0, 0, "-1", "threads, at most one for each processor that this process may use; 0: all of them" },
    { "-q --quiet", OPTION_FLAG, AT(quiet), NULL, NULL, 0, 0, NULL, "no line of figures at the end" },
    { "--offline", OPTION_FLAG, AT(offline), NULL, NULL, 0, 0, NULL, "take an INPUT by name from the cache only; so does HF_HUB_OFFLINE=1" },
    { 0 },
};

static const struct option synth_options[] = {
    { "--type", OPTION_STRING, AT(type), "TYPE", "Q4_0", 0, 0, NULL, "format of the weights, as in quantize" },
    { "--list", OPTION_FLAG, AT(list), NULL, NULL, 0, 0, NULL, "print the names of the shapes" },
    { "--layers", OPTION_U32, AT(n_synth_layers), "N", "0", 0, 1024, NULL, "so many layers of the shape; 0: all" },
    { "--hollow", OPTION_FLAG, AT(hollow), NULL, NULL, 0, 0, NULL, "zeros for weights, which take no room on most disks: for inspect and plan" },
    { "-s --seed", OPTION_U64, AT(seed), "N", "0", 0, 0, NULL, "the same seed gives the same file" },
    { 0 },
};

static const struct option imatrix_options[] = {
    { "-f --file", OPTION_STRING, AT(file), "FILE", NULL, 0, 0, NULL, "the text; -: stdin" },
    { "-o --output", OPTION_STRING, AT(imatrix_output), "FILE", "imatrix.gguf", 0, 0, NULL, "where it is written" },
    { "-sp --special", OPTION_FLAG, AT(special), NULL, NULL, 0, 0, NULL, "control tokens written in the text count as such" },
    { "--chunks", OPTION_U32, AT(n_chunks), "N", "0", 0, 0, "-1", "chunks that are read at most; 0 or -1: all" },
    { "-q --quiet", OPTION_FLAG, AT(quiet), NULL, NULL, 0, 0, NULL, "no line of figures at the end" },
    { 0 },
};

static const struct option eval_options[] = {
    { "-f --file", OPTION_STRING, AT(file), "FILE", NULL, 0, 0, NULL, "the text; -: stdin" },
    { "-sp --special", OPTION_FLAG, AT(special), NULL, NULL, 0, 0, NULL, "control tokens written in the text count as such" },
    { "--chunks", OPTION_U32, AT(n_chunks), "N", "0", 0, 0, "-1", "chunks that are read at most; 0 or -1: all" },
    { "--save-logits", OPTION_STRING, AT(save_logits), "FILE", NULL, 0, 0, NULL, "keep the logits: 2 bytes for each scored token and word of the vocabulary" },
    { "--kl", OPTION_STRING, AT(kl_file), "FILE", NULL, 0, 0, NULL, "compare with these logits; the text is theirs" },
    { "--types", OPTION_LIST, AT(eval_types), "TYPE,...", NULL, 0, 0, NULL, "compare the model with what quantize would make of it" },
    { "--imatrix", OPTION_STRING, AT(imatrix), "FILE", NULL, 0, 0, NULL, "quantise by this importance matrix, which another text than this one should have made" },
    { "--kv", OPTION_LIST, AT(eval_pages), "TYPE,...", NULL, 0, 0, "auto f32 f16 bf16 q8_0", "compare formats of K and V in the KV pages: auto, f32, f16, bf16, q8_0" },
    { "--scratch", OPTION_STRING, AT(scratch), "DIR", NULL, 0, 0, NULL, "where a comparison writes models and logits, which it takes away; without it TMPDIR, else /var/tmp" },
    { "-o --output", OPTION_CHOICE, AT(output), "FORMAT", "md", 0, 0, "md json jsonl csv", "a table, or rows of named fields" },
    { "--svg", OPTION_STRING, AT(svg), "FILE", NULL, 0, 0, NULL, "draw divergence against bytes" },
    { 0 },
};

static const struct option profile_options[] = {
    { "-d --n-depth", OPTION_U32, AT(profile_depth), "N", "256", 0, 1000000, NULL, "tokens already in the context of the steps that are taken apart" },
    { "-o --output", OPTION_CHOICE, AT(output), "FORMAT", "md", 0, 0, "md json csv", "tables, everything with its samples, or one table of rows" },
    { "--html", OPTION_STRING, AT(html), "FILE", NULL, 0, 0, NULL, "write a page with pictures: one file that needs no network" },
    { "--trace-json", OPTION_STRING, AT(trace_json), "FILE", NULL, 0, 0, NULL, "write one play of each step for ui.perfetto.dev" },
    { "--against", OPTION_STRING, AT(against), "FILE", NULL, 0, 0, NULL, "compare with an earlier profile's JSON of the same model, device and depth" },
    { "--tolerance", OPTION_FLOAT, AT(tolerance), "PERCENT", "5", 0, 1000, NULL, "with --against: exit status 1 when something is certainly slower by more than this" },
    { "--short", OPTION_FLAG, AT(brief), NULL, NULL, 0, 0, NULL, "fewer runs, inputs of at most 512 tokens, no command alone" },
    { 0 },
};

static const struct option plan_options[] = {
    { "-np --streams --parallel", OPTION_U32, AT(n_plan_sequences), "N", "1", 1, 4096, NULL, "answers at the same time, whose KV pages must fit" },
    { "-d --depth", OPTION_U32, AT(plan_depth), "N", "0", 0, 1000000, NULL, "tokens already in the context of what is predicted" },
    { "--json", OPTION_FLAG, AT(json), NULL, NULL, 0, 0, NULL, "print JSON" },
    { 0 },
};

static const struct option verify_options[] = {
    { "-n --n-tokens", OPTION_U32, AT(n_verify), "N", "32", 1, 512, NULL, "rows of the step that is compared" },
    { "--json", OPTION_FLAG, AT(json), NULL, NULL, 0, 0, NULL, "one JSON object per command, and one at the end" },
    { "--replay", OPTION_STRING, AT(replay), "FILE", NULL, 0, 0, NULL, "ask what run --record kept once more, on these devices and with these settings: is the answer the same, and if not, from which token on and by which command" },
    { "--verify-gemm", OPTION_FLAG, AT(verify_gemm), NULL, NULL, 0, 0, NULL, "compare with the same device and --gemm vendor instead: the products of more than 16 rows" },
    { "-a --all", OPTION_FLAG, AT(all), NULL, NULL, 0, 0, NULL, "print every command, not only those beyond their limit" },
    { 0 },
};

static const struct option serve_options[] = {
    { "--host", OPTION_STRING, AT(host), "ADDRESS", "127.0.0.1", 0, 0, NULL, "address to listen on; 0.0.0.0: every one of this machine" },
    { "--port", OPTION_U32, AT(port), "N", "8080", 0, 65535, NULL, "port; 0: any free one, printed on stderr" },
    { "-np --parallel", OPTION_U32, AT(n_parallel), "N", "4", 1, 4096, NULL, "answers that are made at the same time" },
    { "--kv-tokens", OPTION_U32, AT(n_kv_tokens), "N", "0", 0, 1073741824, NULL, "tokens that the KV pages of all answers and kept prompts hold; 0: the context times -np. With fewer an answer may have to pause" },
    { "--step-stretch", OPTION_FLOAT, AT(step_stretch), "X", "1.75", 0, 1000, NULL, "prompts may make a step of running answers so many times longer; 0: without limit" },
    { "--queue", OPTION_U32, AT(n_queued), "N", "256", 0, 100000, NULL, "requests that may wait; beyond: 429" },
    { "--api-key", OPTION_LIST, AT(api_keys), "KEY", NULL, 0, 0, NULL, "ask for this key everywhere but at /health; may be given more than once" },
    { "--cors-origin", OPTION_LIST, AT(origins), "ORIGIN", NULL, 0, 0, NULL, "web pages from there may call the server; may be given more than once" },
    { "-a --alias", OPTION_STRING, AT(alias), "NAME", NULL, 0, 0, NULL, "the model's name for clients" },
    { "--strict", OPTION_FLAG, AT(strict), NULL, NULL, 0, 0, NULL, "a field that is not honoured is an error, not a warning" },
    { "--no-shared-prefix", OPTION_FLAG, AT(no_shared_prefix), NULL, NULL, 0, 0, NULL, "a kept prompt is reused only by requests with the same cache_salt, so that no client learns from it what another asked" },
    { "--role", OPTION_CHOICE, AT(role), "ROLE", "both", 0, 0, "both prefill decode", "prefill: also gives decode servers the pages of prompts that it reads; decode: has long prompts read by --prefill" },
    { "--prefill", OPTION_STRING, AT(prefill), "URL", NULL, 0, 0, NULL, "with --role decode: the server of --role prefill, http://HOST:PORT; where it does not answer prompts are read here" },
    { "--prefill-key", OPTION_STRING, AT(prefill_key), "KEY", NULL, 0, 0, NULL, "the prefill server's --api-key" },
    { "--prefill-least", OPTION_U32, AT(prefill_least), "N", "1024", 16, 1073741824, NULL, "tokens of a prompt that are not kept here, for the prefill server to be asked" },
    { "--prefill-timeout", OPTION_U32, AT(prefill_silence_s), "S", "60", 1, 86400, NULL, "seconds without a byte after which a prompt is read here; the prefill server is silent while it reads" },
    { "--max-body", OPTION_U32, AT(body_mib), "MIB", "8", 1, 1024, NULL, "largest request" },
    { "--drain", OPTION_U32, AT(drain_s), "S", "30", 0, 86400, NULL, "seconds that running answers get after SIGTERM" },
    { "--keep-alive", OPTION_U32, AT(keep_alive_s), "S", "15", 1, 3600, NULL, "seconds of silence after which a stream gets a comment" },
    { "--write-timeout", OPTION_U32, AT(write_s), "S", "30", 1, 3600, NULL, "seconds after which a client that takes no data is cut off" },
    { 0 },
};

static const struct option trace_options[] = {
    { "--trace", OPTION_FLAG, AT(trace), NULL, NULL, 0, 0, NULL, "print the tapes, their barriers, scratch, kernels (of a GPU) and counters to stderr" },
    { 0 },
};
// clang-format on

static const struct option_group general = { "General", general_options }, model = { "Model", model_options },
                                 place = { "Device and threads", place_options },
                                 kernel = { "How it runs", kernel_options },
                                 lora = { "Adapters", lora_options },
                                 bench_place = { "Device and threads", bench_place_options },
                                 prompt = { "Prompt", prompt_options },
                                 sampling = { "Sampling", sampling_options },
                                 bench = { "Tests", bench_options },
                                 inspect = { "What to show", inspect_options },
                                 tokenize = { "Text", tokenize_options },
                                 embed = { "Texts and vectors", embed_options },
                                 doctor = { "Report", doctor_options }, serve = { "Server", serve_options },
                                 quantize = { "Work", quantize_options }, synth = { "File", synth_options },
                                 verify = { "Check", verify_options }, plan = { "Plan", plan_options },
                                 eval = { "Text and comparison", eval_options },
                                 profile = { "Measurements", profile_options },
                                 imatrix = { "Text and matrix", imatrix_options },
                                 trace = { "Looking inside", trace_options },
                                 names = { "Models by name", name_options }, pull = { "Pull", pull_options },
                                 cache = { "Kept prompts", cache_options },
                                 answer = { "Answer", answer_options },
                                 form = { "Form of the answer", form_options };

// clang-format off
static const char run_text[] =
    "MODEL is a GGUF file, a safetensors folder, or a name, user/repo[:QUANT][@REVISION]; so is -m's value. Without a model the toy "
    "inside ingot answers. The prompt is what -p, -f or a pipe brings; with none of them a terminal starts a chat. The answer goes to stdout, "
    "figures to stderr. Ctrl-C once stops the answer, twice in a row leaves.\n\n"
    "With --json every piece of the answer is a line {\"text\", \"token\"}; the last line has \"done\": true, the whole \"answer\", "
    "\"finish\" (eos, stop, length, cancelled, error), n_prompt, n_reused, differs_at (where the prompt first differed from what was kept), n_generated, first_token_ms, prefill_ms, decode_ms, and "
    "\"error\" if there was one.\n\n"
    "  ingot run model.gguf\n"
    "  ingot run user/repo:Q4_K_M -p \"Tell me a story about a fox.\"\n"
    "  ingot run model.gguf --system \"Answer in French.\"\n"
    "  git diff | ingot run model.gguf -p \"Review this change.\" -f -";

static const char bench_text[] =
    "Beside tokens per second: the share of the memory's reading speed, which is probed in the same run, time to first token, and the "
    "time between tokens (p50, p95, p99).\n\n"
    "  ingot bench model.gguf -p 512 -n 128 -r 5\n"
    "  ingot bench model.gguf --peer ./llama-bench\n"
    "  ingot bench --serve http://127.0.0.1:8080 --clients 1,4,16,64 -p 64 -n 64 --svg load.svg";

static const char quantize_text[] =
    "INPUT is a GGUF file, a safetensors folder, or a model's name. TYPE is F32, F16, BF16, Q8_0, Q6_K, Q5_K_M, Q5_K_S, Q5_1, Q5_0, Q4_K_M, Q4_K_S, "
    "IQ4_NL, IQ4_XS, Q4_1, Q4_0, MXFP4, MXFP4_MOE, Q3_K_L, Q3_K_M, Q3_K_S or Q2_K. A format for --tensor-type has no _M or _S. OUTPUT appears when it is complete.\n\n"
    "  ingot quantize model-f16.gguf model-q4.gguf Q4_K_M\n"
    "  ingot quantize model-f16.gguf model-q2.gguf Q2_K --imatrix imatrix.gguf --tensor-type 'blk\\.[01]\\.=Q4_K'\n"
    "  ingot quantize --dry-run model-f16.gguf IQ4_XS\n"
    "  ingot quantize --exl3 4 -f calibration.txt model-folder model-exl3-folder";

static const char imatrix_text[] =
    "For each column of a weight's input: the mean square of what the text sends there, experts apart. quantize --imatrix weighs errors by it. The file "
    "is GGUF as llama-imatrix writes it, and its quantize reads it too.\n\n"
    "  ingot imatrix model-f16.gguf -f calibration.txt -o imatrix.gguf --chunks 200";

static const char serve_text[] =
    "Speaks OpenAI's chat completions, completions, responses and embeddings, Anthropic's messages, and /tokenize, /detokenize, /apply-template, /health, "
    "/metrics; a chat page is at /. One line per request goes to stderr (--log error: none but the address). The first SIGTERM or Ctrl-C lets running "
    "answers finish, the second ends at once.\n\n"
    "  ingot serve model.gguf --port 8080 -np 8\n"
    "  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'";

static const char eval_text[] =
    "Perplexity is llama-perplexity's: the text is cut into chunks of -c tokens (512), each is read alone, and the tokens of its second "
    "half are scored. With a reference, each scored token's whole distribution is compared: the mean KL divergence in nats, its tails, and how "
    "often both find the same token the likeliest.\n\n"
    "--types and several --kv compare in one go: the reference is the model as it is, with exact products and F32 pages. Each line has "
    "the bytes of weights and pages and the speed beside it.\n\n"
    "  ingot eval model.gguf -f wiki.test.raw\n"
    "  ingot eval model-bf16.gguf -f wiki.test.raw --chunks 40 --types Q8_0,Q6_K,Q4_K_M,Q4_0 --kv f16,q8_0 --svg loss.svg\n"
    "  ingot eval model-bf16.gguf -f wiki.test.raw --save-logits model.logits\n"
    "  ingot eval elsewhere-q4.gguf --kl model.logits";

static const char profile_text[] =
    "First the requests that a user sends, in five phases: cold and warm, short and long answers, short and long prompts, ten in a row, and "
    "many at the same time. Then three steps are taken apart: decoding one token, eight at once, and reading a prompt. For each kind of "
    "operation: its time, how much of it is waiting, the bytes and the arithmetic that it cannot do without, its share of what this "
    "device can do at best, which is measured first, and what bounds it.\n\n"
    "  ingot profile model.gguf\n"
    "  ingot profile model.gguf -d 4096 -o json > profile.json\n"
    "  ingot profile model.gguf -d 4096 --against profile.json --html profile.html --trace-json trace.json";

static const char embed_text[] =
    "Texts are the operands, or the lines of -f or a pipe that are not empty; -m names the model. A line of numbers goes to stdout for each text, in their order. Embedding models "
    "pool as their file says; of any other language model it is the mean of the hidden states after the last norm.\n\n"
    "  ingot embed -m qwen3-embedding.gguf --json < lines.txt\n"
    "  ingot embed -m nomic-embed-text.gguf --prefix 'search_query: ' --dimensions 256 \"Where do foxes live?\"\n"
    "  ingot embed -m bge-reranker.gguf --query \"Where do foxes live?\" -f passages.txt";

static const char pull_text[] =
    "NAME is user/repo[:QUANT][@REVISION]. Without QUANT it is Q4_K_M, or the only one there is. In place of QUANT a .gguf file's name, or "
    "safetensors. The path goes to stdout. A pull that was stopped goes on where it was.\n\n"
    "The cache is that of Hugging Face's own programs: HF_HUB_CACHE, or HF_HOME/hub, or ~/.cache/huggingface/hub. HF_TOKEN or the file "
    "that a login left opens closed repositories, HF_ENDPOINT names another hub.\n\n"
    "  ingot pull user/repo:Q8_0\n"
    "  ingot run -m user/repo:Q8_0 -p \"Hello\"";

static const char rm_text[] = "user/repo takes out all of a repository, user/repo:QUANT one model, @REVISION only what is of that revision.\n\n"
                              "  ingot rm user/repo:Q8_0";

static const struct option_verb verbs[] = {
    { "run", "[MODEL]", "Answers a prompt, or chats on a terminal", run_text, { &prompt, &answer, &form, &sampling, &model, &lora, &place, &kernel, &cache, &names, &trace, &general, &llama_common, &llama_answer, &llama_run } },
    { "bench", "[MODEL]", "Measures speed, with llama-bench's columns and field names", bench_text, { &bench, &model, &lora, &bench_place, &kernel, &names, &general, &llama_bench, &llama_common } },
    { "inspect", "[FILE]", "Shows what a model file holds and the memory it needs", NULL, { &inspect, &names, &general } },
    { "tokenize", "[TEXT]", "Shows the tokens of a text", NULL, { &tokenize, &names, &general } },
    { "quantize", "INPUT OUTPUT TYPE", "Writes a model as a GGUF file with other formats of weights", quantize_text, { &quantize, &general } },
    { "synth", "SHAPE OUTPUT", "Writes a GGUF file with random weights in the shape of a real model", "  ingot synth tinyllama-1.1b tinyllama.gguf --type Q4_0", { &synth, &general } },
    { "verify", "[MODEL]", "Compares the device with the plain loops, command by command", NULL, { &verify, &model, &place, &kernel, &names, &general } },
    { "doctor", NULL, "Tells what ingot finds on this machine", NULL, { &doctor, &general } },
    { "serve", "[MODEL]", "Answers over HTTP, as OpenAI's and Anthropic's servers do", serve_text, { &serve, &model, &lora, &place, &kernel, &cache, &names, &general, &llama_common, &llama_answer, &llama_serve } },
    { "pull", "NAME", "Brings a model by name from the Hugging Face hub into the cache", pull_text, { &pull, &general } },
    { "ls", NULL, "Lists the models in the cache", NULL, { &doctor, &general } },
    { "rm", "NAME...", "Takes models out of the cache", rm_text, { &general } },
    { "eval", "[MODEL]", "Measures how well a model predicts a text, and what quantising it loses", eval_text, { &eval, &model, &place, &kernel, &names, &general } },
    { "plan", "[MODEL]", "Tells which layers go to which device, and how fast that would be", "  ingot plan -m big.gguf --device cuda:0,cpu -c 8192 --streams 4", { &plan, &model, &place, &kernel, &names, &general } },
    { "imatrix", "[MODEL]", "Measures which columns of a model's weights matter, for quantize", imatrix_text, { &imatrix, &model, &place, &kernel, &names, &general } },
    { "embed", "[TEXT...]", "Makes a vector of each text, or scores texts by a query", embed_text, { &embed, &model, &place, &kernel, &names, &general } },
    { "profile", "[MODEL]", "Measures how fast a model answers, and where the time of a step goes", profile_text, { &profile, &model, &place, &kernel, &names, &general } },
    { "help", "[VERB]", "Shows all verbs, or the flags of one", NULL, { &general } },
    { "man", NULL, "Prints the man page", NULL, { &general } },
    { "completion", "SHELL", "Prints the completion for bash, zsh or fish", NULL, { &general } },
};
// clang-format on

const struct option_verb ingot_chat_settings = {
    "/set", "NAME VALUE", "Changes a setting of a chat", NULL, { &sampling, &answer }
};

const struct option_program ingot_program = {
    "ingot",
    INGOT_VERSION,
    "an inference engine for language models",
    "ingot runs language models on this machine, on its processor or a GPU: as a chat, for one answer, or as "
    "a server that "
    "speaks "
    "OpenAI's and Anthropic's protocols. A model is a GGUF file, a safetensors folder, or a name on the "
    "Hugging Face hub.\n\n"
    "  ingot run FILE          a chat with a model of yours\n"
    "  ingot run user/repo     a chat with a model from the hub\n"
    "  ingot run               a chat with the toy inside ingot\n"
    "  ingot serve FILE        the same behind HTTP, with a chat page\n"
    "  ingot help run          the flags of a verb\n"
    "  ingot --version         version, commit and how it was built",
    verbs,
    sizeof verbs / sizeof *verbs,
};
