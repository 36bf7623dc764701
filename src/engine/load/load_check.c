// load_check.c - see load_check.h.
#include "engine/load/load_check.h"
#include "base/err.h"
#include "engine/load/load_split.h"
#include "models/arch.h"
#include "ops/ops.h"

static bool check_heads(const struct engine_loaded *l, const struct device *d, struct err *err)
{
    for (uint32_t i = 0; d->max_head_dim && !l->model.config.latent_dims && i < l->model.config.n_layers; i++)
        if (l->model.layer_configs[i].head_dim > d->max_head_dim)
            return err_set(err, ERR_UNSUPPORTED,
                           "%s: layer %u has heads of %u numbers, and attention on %s takes at most %u; use "
                           "%s cpu",
                           model_file_path(l->file), i, l->model.layer_configs[i].head_dim, d->name,
                           d->max_head_dim, err_option("device"));
    return true;
}

// What the model is made of must have kernels there: this is known before a weight is read.
static bool check_device(const struct engine_loaded *l, struct device *d, struct err *err)
{
    if (l->model.config.latent_dims && !d->ops->supports(d, OP_latent_attend))
        return err_set(err, ERR_UNSUPPORTED, "%s: latent attention has no kernels on %s yet; use %s cpu",
                       model_file_path(l->file), d->name, err_option("device"));
    if (model_state_words(&l->model, 0, l->model.config.n_layers) > 0 && !d->ops->supports(d, OP_conv_step))
        return err_set(err, ERR_UNSUPPORTED, "%s: recurrent layers have no kernels on %s yet; use %s cpu",
                       model_file_path(l->file), d->name, err_option("device"));
    if (!check_heads(l, d, err))
        return false;
    return l->model.n_experts == 0 || d->ops->supports(d, OP_route) ||
           l->devices.n_away >= l->model.config.n_layers - l->model.config.n_dense ||
           err_set(err, ERR_UNSUPPORTED,
                   "%s: this model's experts have no kernels on %s yet; use %s cpu, or %s cpu",
                   model_file_path(l->file), d->name, err_option("experts"), err_option("device"));
}

bool load_check_devices(const struct engine_loaded *l, struct err *err)
{
    if (!load_split_check_devices(l, err))
        return false;
    if (l->devices.experts && l->model.n_experts == 0)
        return err_set(err, ERR_INPUT, "%s: %s is given, and this model has no experts",
                       model_file_path(l->file), err_option("experts"));
    if (l->devices.experts && !l->model.arch->experts)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: the experts of %s models stay with their layers; leave out %s",
                       model_file_path(l->file), l->model.arch->name, err_option("experts"));
    for (uint32_t i = 0; i < l->devices.n; i++)
        if (!check_device(l, l->devices.at[i], err))
            return false;
    return true;
}
