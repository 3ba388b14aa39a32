/* names.h - what a checkpoint calls its arrays and the formats of states.
 * Internal to the checkpoint.
 *
 *     m_scale/model.layers.0.mlp.up_proj.weight@65536
 *     kind    tensor                            its first element */
#ifndef ZD_TRAIN_CHECKPOINT_NAMES_H
#define ZD_TRAIN_CHECKPOINT_NAMES_H

#include "model/params.h"
#include "optim/optim.h"

enum array_kind {
    ARRAY_MASTER, /* weights */
    ARRAY_M,      /* and ARRAY_M + lane */
    ARRAY_V,
    ARRAY_M_SCALE, /* and ARRAY_M_SCALE + lane: of 8-bit lanes */
    ARRAY_V_SCALE,
    ARRAY_V_BLOCKS, /* Adam-mini's v */
    ARRAY_KINDS
};

const char *array_kind_name(enum array_kind kind);
/* The kind of that name; ARRAY_KINDS: none. */
enum array_kind array_kind_of(const char *name);
/* "m_scale/model.layers.0.mlp.up_proj.weight@65536" */
enum { ARRAY_NAME = PARAM_NAME_MAX + 48 };
void array_name(
        char out[ARRAY_NAME], enum array_kind kind, const char *tensor,
        size_t begin);

/* In manifest.json and in what people read: "8bit". */
const char *format_name(enum optim_format format);
/* Values of a lane as safetensors names their type; "": it has none. */
const char *format_type(enum optim_format format);
/* The format whose type it is; OPTIM_NONE: none. */
enum optim_format format_of_type(const char *type);

#endif
