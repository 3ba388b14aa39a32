#include "train/checkpoint/names.h"

#include <stdio.h>
#include <string.h>

_Static_assert(
        ARRAY_M + OPTIM_V == ARRAY_V &&
                ARRAY_M_SCALE + OPTIM_V == ARRAY_V_SCALE,
        "kinds of lanes are in the order of lanes");

const char *array_kind_name(enum array_kind kind)
{
    static const char *const names[ARRAY_KINDS] = {
            [ARRAY_MASTER] = "master",
            [ARRAY_M] = "m",
            [ARRAY_V] = "v",
            [ARRAY_M_SCALE] = "m_scale",
            [ARRAY_V_SCALE] = "v_scale",
            [ARRAY_V_BLOCKS] = "v_blocks"};
    return names[kind];
}

enum array_kind array_kind_of(const char *name)
{
    int kind = 0;
    while (kind < ARRAY_KINDS &&
           strcmp(array_kind_name((enum array_kind)kind), name) != 0)
        kind++;
    return (enum array_kind)kind;
}

void array_name(
        char out[ARRAY_NAME], enum array_kind kind, const char *tensor,
        size_t begin)
{
    snprintf(
            out, ARRAY_NAME, "%s/%s@%zu", array_kind_name(kind), tensor, begin);
}

static const struct {
    const char *name, *type;
} formats[] = {
        [OPTIM_NONE] = {"none", ""},     [OPTIM_FP32] = {"fp32", "F32"},
        [OPTIM_BF16] = {"bf16", "BF16"}, [OPTIM_8BIT] = {"8bit", "U8"},
        [OPTIM_BLOCKS] = {"blocks", ""},
};

const char *format_name(enum optim_format format)
{
    return formats[format].name;
}

const char *format_type(enum optim_format format)
{
    return formats[format].type;
}

enum optim_format format_of_type(const char *type)
{
    for (int format = OPTIM_FP32; format <= OPTIM_8BIT; format++)
        if (strcmp(formats[format].type, type) == 0)
            return (enum optim_format)format;
    return OPTIM_NONE;
}
