// model_config.h - a model's sizes, from its file.
#pragma once
#include "models/model.h"

// Fills m->config, m->own, m->layer_configs and m->factors, and checks that they fit together.
bool model_config_read(struct model *m, struct err *err);
