/* config_keys.h - the keys of a model configuration that are not plain values:
 * those that ask for something we do not do, those nobody knows, and those that
 * a written configuration must have. Used by config.c alone. */
#ifndef ZD_MODEL_CONFIG_KEYS_H
#define ZD_MODEL_CONFIG_KEYS_H

#include "model/config.h"

/* What is read, and what a mistake in it is. */
struct config_reader {
    const json_t *json;
    const char *name;
    enum zd_status on_error;
};

/* Record a mistake, with its place; returns reader->on_error. */
enum zd_status config_fail(
        const struct config_reader *reader, const char *code,
        const char *format, ...) __attribute__((format(printf, 3, 4)));

/* E0304: an unsupported key with a value that changes the model. With
 * ZD_ERR_CONFIG, where a person typed the keys, also E0305: a key that is
 * unknown. */
enum zd_status config_keys_check(
        const struct config_reader *reader, enum model_family family);
/* E0304: a sliding window that some token would notice. */
enum zd_status config_keys_check_window(
        const struct config_reader *reader, const struct model_config *config);
/* E0304: what rope_scaling or rope_parameters (reader->json) must not hold. */
enum zd_status config_keys_check_rope(const struct config_reader *reader);

/* The keys as given plus every one whose absence transformers would fill with a
 * default of its own. New reference; NULL: no memory. */
json_t *config_keys_complete(
        const struct config_reader *reader, const struct model_config *config,
        const char *architecture);

#endif
