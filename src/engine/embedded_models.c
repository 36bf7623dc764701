// embedded_models.c - the embedded model files: see embedded.h. A translation unit of its own, so that tests
// can link it as a shared library (cmake/embedded.cmake).
//
// INGOT_EMBED, INGOT_EMBED_EYES and INGOT_EMBED_MMPROJ are paths, set by the build when the files are there.
#include "base/incbin.h"
#include "engine/api.h"
#include "engine/embedded.h"

#ifdef INGOT_EMBED
INCBIN(embedded_model, INGOT_EMBED);
#endif
#ifdef INGOT_EMBED_EYES
INCBIN(embedded_seeing, INGOT_EMBED_EYES);
INCBIN(embedded_eyes, INGOT_EMBED_MMPROJ);
#endif

const struct embedded embedded_models[] = {
#ifdef INGOT_EMBED
    { INGOT_BUILTIN, embedded_model_first, embedded_model_end, NULL, NULL },
#endif
#ifdef INGOT_EMBED_EYES
    { INGOT_BUILTIN_EYES, embedded_seeing_first, embedded_seeing_end, embedded_eyes_first,
      embedded_eyes_end },
#endif
    { 0 },
};
