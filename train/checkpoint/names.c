#include "train/checkpoint/names.h"

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

enum array_kind array_kind_of(const char *name, size_t bytes)
{
    int kind = 0;
    while (kind < ARRAY_KINDS &&
           (strlen(array_kind_name((enum array_kind)kind)) != bytes ||
            memcmp(array_kind_name((enum array_kind)kind), name, bytes) != 0))
        kind++;
    return (enum array_kind)kind;
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
