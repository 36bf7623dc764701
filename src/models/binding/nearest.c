// nearest.c - see nearest.h. By beginnings of names, so that a family's kin are told too; the longer ones of
// a family come first.
#include "models/binding/nearest.h"
#include <string.h>
#include "format/model_file.h"

static const struct nearest_line lines[] = {
    { "clip", "these are a model's eyes; give them as mmproj, beside the model", "idefics3" },
    { "llama4", "Llama 4 attends in chunks, and normalises queries and keys behind their rotation", "llama" },
    { "rwkv arwkv", "RWKV decays its state by a vector", "qwen35" },
    { "falcon-h1 falcon_h1", "Falcon-H1 has attention and Mamba2 side by side in a layer", "granitehybrid" },
    { "kimi-linear kimi_linear kimi-k3 kimi_k3", "Kimi Linear's delta rule decays by a vector", "qwen35" },
    { "qwen4", "Qwen3.8-Flash-Next is of another kind than Qwen3.5 to 3.8", "qwen35moe" },
    { "qwen3next qwen3_next", "Qwen3-Next orders its projections in another way than Qwen3.5", "qwen35moe" },
    { "gemma3n", "Gemma 3n has several residual streams", "gemma4" },
    { "gemma", "Gemma 1 and 2 cap the scores of attention, or have other norms", "gemma3" },
    { "deepseek32 deepseek_v32 deepseek4 deepseek_v4 glm-dsa glm_moe_dsa", "its attention is sparse",
      "deepseek2" },
    { "ernie4", "ERNIE 4.5 has another router", "glm4moe" },
    { "mamba jamba plamo", "it is Mamba of another kind, or Mamba alone", "nemotron_h" },
    { "nemotron", "Nemotron without Mamba has LayerNorm", "nemotron_h" },
    { "phimoe phi2 phi", "it has LayerNorm", "phi3" },
    { "olmo", "OLMo 1 has norms without weights", "olmo2" },
    { "command-r cohere", "Command R has LayerNorm, and the halves of a layer side by side", "llama" },
    { "falcon mpt bloom gpt2 gptneox gpt_neox starcoder stablelm", "it has LayerNorm", "llama" },
    { "minimax hunyuan dots bailing exaone-moe", "its layers are of another kind", "qwen3moe" },
    { "exaone internlm baichuan minicpm", "its layers are of another kind", "llama" },
    { "qwen2vl qwen2_vl qwen2_5_vl qwen3vl qwen3_vl", "its positions have three axes", "internvl" },
    { "mllama pixtral llava", "its tower is of another kind", "idefics3" },
    { "qwen3", "it is another model than Qwen3", "qwen3" },
    { "glm", "it is another model than GLM-4", "glm4" },
    { "granite", "it is another model than Granite 3 and 4", "granite" },
    { "mistral", "it is another model than Mistral's that are there", "mistral3" },
};

const struct nearest_line *nearest_find(struct str name)
{
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        for (const char *word = lines[i].names; *word;) {
            size_t n = strcspn(word, " ");
            if (str_starts(name, (struct str){ word, n }))
                return &lines[i];
            word += n + (word[n] == ' ');
        }
    return NULL;
}

static bool has_part(const struct model_file *file, const char *word)
{
    for (size_t i = 0; i < model_file_n_tensors(file); i++)
        if (str_find(model_file_tensor_at(file, i)->name, str_from(word)) != SIZE_MAX)
            return true;
    return false;
}

const char *nearest_by_tensors(const struct model_file *file)
{
    bool experts = has_part(file, "_exps.") || has_part(file, ".experts."),
         states = has_part(file, "ssm_") || has_part(file, ".A_log");

    if (states)
        return experts ? "nemotron_h_moe" : "nemotron_h";
    return experts ? "qwen3moe" : has_part(file, "token_type") ? "bert" : "llama";
}
