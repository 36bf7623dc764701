// settings_llama.c - llama.cpp's flags that ingot does not have, so that a pasted command line runs, or fails
// with the reason.
//
// Flags without effect in ingot are accepted: settings of a loader, a scheduler or an attention kernel that
// have no counterpart here. A flag that would change the answer is an error that names the alternative. Flags
// that mean the same are in settings.c.
#include "main/settings.h"

#define FINE(flags, value, why)                                \
    {                                                          \
        flags, OPTION_FOREIGN, 0, value, NULL, 0, 0, NULL, why \
    }
#define FINE_IF(flags, value, choices, missing)                                            \
    {                                                                                      \
        flags, OPTION_FOREIGN, 0, value, missing, 0, 0, choices, "that is what ingot does" \
    }
#define MAY(flags, choices, why)                                      \
    {                                                                 \
        flags, OPTION_FOREIGN, 0, "[VALUE]", NULL, 0, 0, choices, why \
    }
#define NONE(flags, value, missing)                              \
    {                                                            \
        flags, OPTION_FOREIGN, 0, value, missing, 0, 0, NULL, "" \
    }

#define DRAFT   "such setting of drafts; --draft MODEL, --draft-max and --speculate are there"
#define PICTURE "an mmproj by URL, sound or video yet"
#define EXPERTS                                                                                          \
    "placing of single tensors; --experts cpu keeps the experts in the host's memory, cpu:N the last N " \
    "layers'"
#define SPLIT   "such split; --device cuda:0,cuda:1 shares the layers, --stages N says where"
#define ROPE    "RoPE settings on the command line: those of the model file hold"
#define SAMPLER "such sampler yet; --top-k, --top-p, --min-p and the penalties are there"

// clang-format off
static const struct option common_flags[] = {
    MAY("-fa --flash-attn", "on off auto 0 1 0,1 1,0 true false", "attention never writes its matrix"),
    FINE("--mlock --mmap --no-mmap -dio --direct-io --no-direct-io", NULL, "weights are packed into memory of their own, or mapped with --no-repack"),
    MAY("-mmp", "0 1 0,1", "weights are packed into memory of their own, or mapped with --no-repack"),
    FINE("-lm --load-mode -lzm --lazy-mode", "MODE", "weights are packed into memory of their own, or mapped with --no-repack"),
    FINE_IF("-sm --split-mode", "MODE", "none layer", SPLIT),
    FINE_IF("-ts --tensor-split", "N,...", "0 1", SPLIT),
    FINE_IF("-mg --main-gpu", "N", "0", "--main-gpu; -dev cuda:N takes another GPU"),
    FINE("-tb --threads-batch -td --threads-draft -tbd", "N", "-t is for prompts and answers"),
    FINE("-C --cpu-mask -Cr --cpu-range -Cb --cpu-mask-batch -Crb --cpu-range-batch", "MASK", "threads run where the system puts them; taskset narrows that down"),
    FINE("--cpu-strict --cpu-strict-batch --prio --prio-batch --poll --poll-batch", "N", "threads spin for a moment, then sleep; nice sets their priority"),
    FINE("--numa", "TYPE", "threads run where the system puts them; numactl narrows that down"),
    FINE("--repack -kvo --kv-offload --op-offload --no-host -nopo --no-op-offload", NULL, "one device holds the whole model"),
    FINE_IF("-nkvo --no-kv-offload", "[N]", "0", "KV pages apart from the model's device yet"),
    FINE_IF("-ncmoe --n-cpu-moe", "N", "0", EXPERTS),
    NONE("-ot --override-tensor", "TEXT", EXPERTS),
    NONE("-cmoe --cpu-moe", NULL, EXPERTS),
    FINE("--swa-full -kvu --kv-unified -no-kvu --no-kv-unified --check-tensors --perf --no-perf", NULL, "ingot has one way here"),
    MAY("-fit --fit", "on off", "a model that does not fit is refused with the sizes"),
    FINE("-fitt --fit-target -fitc --fit-ctx -dt --defrag-thold", "N", "pages need no such limit"),
    NONE("--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast", "N", ROPE),
    NONE("--override-kv", "TEXT", "override of the model file's values yet"),
    NONE("--control-vector --control-vector-scaled --control-vector-layer-range", "FILE", "control vectors yet"),
    NONE("-hfd -hfrd --hf-repo-draft --draft-min --draft-p-min -cd --ctx-size-draft -devd --device-draft -ngld --gpu-layers-draft --n-gpu-layers-draft -ctkd -ctvd --spec-type", "VALUE", DRAFT),
    NONE("-mmu --mmproj-url --audio --video", "FILE", PICTURE),
    FINE("--mmproj-auto --mmproj-offload --no-mmproj-offload", NULL, "the projector beside a model is found, and runs on the model's device"),
    NONE("-mu --model-url", "URL", "models by URL: give a file, or a name such as user/repo:QUANT"),
    NONE("-dr --docker-repo", "NAME", "models from that registry: give a file, or a name such as user/repo:QUANT"),
    NONE("-hff --hf-file", "FILE", "--hf-file: user/repo:FILE.gguf names one file"),
    NONE("-hft --hf-token", "TOKEN", "token on the command line, where others can read it: set HF_TOKEN"),
    NONE("--rpc -rpc", "SERVERS", "remote devices yet"),
    NONE("--list-devices", NULL, "--list-devices: 'ingot doctor' names them"),
    NONE("-cl --cache-list", NULL, "--cache-list: 'ingot ls' lists the cache"),
    { 0 },
};

static const struct option answer_flags[] = {
    FINE("--jinja --no-jinja", NULL, "the model's own template is always used"),
    FINE("--warmup --no-warmup", NULL, "nothing is warmed up"),
    NONE("--chat-template", "NAME", "other template than the model's yet; --no-chat takes a prompt that is rendered already"),
    NONE("--chat-template-file", "FILE", "other template than the model's yet; --no-chat takes a prompt that is rendered already"),
    FINE_IF("--reasoning-format", "FORMAT", "auto deepseek", "other format of thinking"),
    FINE_IF("--reasoning-budget", "N", "-1", "budget for thinking yet"),
    FINE_IF("-rea --reasoning", "[MODE]", "auto", "switch for thinking on the command line yet; --think says how run shows it"),
    FINE("--log-verbose --log-disable --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps", NULL, "--log sets the level of messages"),
    MAY("--log-colors", "on off auto", "messages have no colours"),
    FINE("-lv --verbosity --log-verbosity", "N", "--log sets the level of messages"),
    NONE("--log-file", "FILE", "log file: messages go to stderr, 2>FILE keeps them"),
    { 0 },
};

static const struct option run_flags[] = {
    FINE("-i --interactive -if --interactive-first -mli --multiline-input --simple-io --no-display-prompt --context-shift", NULL, "a terminal gets a chat as it is"),
    MAY("-co --color", "on off auto", "figures and thinking are dim on a terminal, unless NO_COLOR is set"),
    FINE("--keep", "N", "a chat keeps its system prompt, and drops whole turns"),
    FINE("--no-escape", NULL, "a prompt is taken as it is, unless -e is given"),
    FINE_IF("-np --parallel", "N", "1", "several answers at the same time in run; serve has -np"),
    NONE("--display-prompt --verbose-prompt -ptc --print-token-count", NULL, "printing of the prompt; 'ingot tokenize' shows its tokens"),
    NONE("--prompt-cache", "FILE", "prompt file; --cache-dir keeps prompts"),
    NONE("--prompt-cache-all --prompt-cache-ro", NULL, "prompt file; --cache-dir keeps prompts"),
    NONE("--in-prefix --in-suffix", "TEXT", "text around messages: the model's template writes it"),
    NONE("--chat-template-kwargs --reasoning-effort", "VALUE", "arguments for the template in run; the server takes them in a request"),
    NONE("-bf --binary-file", "FILE", "binary prompts"),
    NONE("-l --logit-bias", "TEXT", "biases on the command line; the server takes them in a request"),
    NONE("-gan --grp-attn-n -gaw --grp-attn-w", "N", "self-extension"),
    FINE_IF("--typical --typical-p", "P", "1 1.0 1.00", SAMPLER),
    FINE_IF("--xtc-probability --dry-multiplier --dynatemp-range --mirostat", "X", "0 0.0 0.00", SAMPLER),
    FINE_IF("--top-nsigma --top-n-sigma --adaptive-target", "X", "-1 -1.0 -1.00", SAMPLER),
    FINE("--xtc-threshold --dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker --dynatemp-exp --mirostat-lr --mirostat-ent --adaptive-decay", "X", "it means nothing without its sampler"),
    NONE("--samplers --sampling-seq --sampler-seq", "TEXT", "other order of samplers: penalties, temperature, top-k, top-p, min-p"),
    { 0 },
};

static const struct option serve_flags[] = {
    FINE("--embedding --embeddings --metrics --slots --props --webui --ui -cb --cont-batching --cache-prompt --no-context-shift", NULL, "that is always so"),
    FINE("--cache-reuse -cram --cache-ram -ctxcp --ctx-checkpoints --swa-checkpoints --threads-http -sps --slot-prompt-similarity", "N", "pages of prompts are shared by themselves"),
    NONE("--context-shift", NULL, "context shift in the server: an answer ends with the context"),
    NONE("-nocb --no-cont-batching --no-webui --no-ui --no-slots", NULL, "switch for that yet"),
    NONE("--ssl-key-file --ssl-cert-file", "FILE", "TLS: put a proxy in front of it"),
    NONE("--api-key-file", "FILE", "file of keys yet: INGOT_API_KEY holds a key that no list of processes shows"),
    NONE("--path --api-prefix", "PATH", "other paths: put a proxy in front of it"),
    NONE("--rerank --reranking", NULL, "reranking yet"),
    FINE_IF("--pooling", "TYPE", "mean", "choice of pooling for the whole server yet"),
    NONE("-to --timeout", "S", "--timeout; --write-timeout is for clients that take no data"),
    NONE("--slot-save-path", "DIR", "files of slots; --cache-dir keeps prompts"),
    NONE("--models-dir --models-preset --models-max", "VALUE", "several models in one server yet"),
    NONE("--chat-template-kwargs --reasoning-effort", "VALUE", "arguments for all templates yet: a request has them"),
    NONE("--cors-origins", "LIST", "--cors-origins; --cors-origin ORIGIN may be given more than once"),
    { 0 },
};

static const struct option bench_flags[] = {
    FINE("--progress", NULL, "rows appear as they are measured"),
    FINE("--delay --n-gen-warmup", "N", "tests follow each other; each is warmed up with a short one"),
    FINE_IF("-embd --embeddings", "[N]", "0", "measuring of embeddings yet"),
    NONE("-oe --output-err", "FORMAT", "second output"),
    { 0 },
};
// clang-format on

const struct option_group llama_common = { NULL, common_flags }, llama_answer = { NULL, answer_flags },
                          llama_run = { NULL, run_flags }, llama_serve = { NULL, serve_flags },
                          llama_bench = { NULL, bench_flags };
