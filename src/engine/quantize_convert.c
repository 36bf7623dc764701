// quantize_convert.c - a safetensors model under GGUF's names.
#include "engine/quantize_plan.h"

bool quantize_convert(struct quantize_plan *plan, struct gguf_writer *w, const struct model_file *file, struct err *err)
{
    (void)plan;
    (void)w;
    return err_set(err, ERR_UNSUPPORTED, "%s: safetensors folders cannot be converted yet; give a GGUF file",
                   model_file_path(file));
}
