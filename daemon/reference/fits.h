/* fits.h - what `zerod plan --fit` finds for the models that it knows: the
 * tables of docs/measured/fit.md. */
#pragma once

#include <jansson.h>

/* [{"model", "rows": [[device, whole, whole in 8 bits, LoRA, QLoRA]]}]; the
 * last row is the least that the device must have. New reference. */
json_t *fits_json(void);
