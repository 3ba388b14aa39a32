/* fits.h - what `zerod plan --fit` finds for the models that it knows: the
 * tables of docs/measured/fit.md. */
#ifndef ZD_DAEMON_REFERENCE_FITS_H
#define ZD_DAEMON_REFERENCE_FITS_H

#include <jansson.h>

/* [{"model", "rows": [[device, whole, whole in 8 bits, LoRA, QLoRA]]}]; the
 * last row is the least that the device must have. New reference. */
json_t *fits_json(void);

#endif
